"""The observer of the test across languages: bindings/conformance/README.md describes it."""

from __future__ import annotations

import sys

import toroni

Seen = toroni.LockOwner | toroni.PublisherStats | toroni.SubscriberSlotStats


def show(what: str, name: str, one: Seen) -> None:
    print(what, name, int(one.alive is True), int(one.stopped), int(one.dumping), sep="\t")


def main() -> None:
    (bus_name,) = sys.argv[1:]
    stats = toroni.Bus.open_existing(bus_name).stats()
    if stats.lock_owner is not None:
        show("lock", "-", stats.lock_owner)
    for publisher in stats.publishers or []:
        show("publisher", publisher.name, publisher)
    for subscriber in stats.subscribers or []:
        show("subscriber", subscriber.name, subscriber)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        sys.exit(f"observe.py: {error}")
