"""The reader of values of the test across languages: bindings/conformance/README.md describes it."""

from __future__ import annotations

import sys

from subscribe import facts, missing

import toroni


def show(value: toroni.RetainedMessage | toroni.Error | None) -> None:
    if isinstance(value, toroni.RetainedMessage):
        print(f"value\t{facts(value, value.payload)}")
    elif isinstance(value, toroni.ValueMissing):
        print(missing(value))
    elif value is None:
        print("none")
    else:
        raise value


def main() -> None:
    bus_name, topic, pattern = sys.argv[1:]
    bus = toroni.Bus.open_existing(bus_name)
    try:
        show(bus.retained(topic))
    except toroni.ValueMissing as value:
        show(value)
    for one in bus.retained_matching(pattern):
        show(one)
    stats = bus.stats().retained
    print("retained", stats.topics, stats.max_topics, stats.missing, stats.used_bytes, stats.bytes, sep="\t")
    for named in bus.topics():
        state = "-" if named.value is None else named.value.state
        place = [None, None] if named.value is None else [named.value.sequence, named.value.bytes]
        print("topic", named.name, state, *("-" if one is None else one for one in place), sep="\t")


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        sys.exit(f"get.py: {error}")
