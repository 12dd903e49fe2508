"""The publisher of the test across languages: bindings/conformance/README.md describes it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import toroni

AT_ONCE = 16

FIRST = 10
"""The number of the first message in its origin, if an inlet publishes it."""


def payload(identity: int, number: int, size: int) -> bytes:
    """Returns the message of that number of a publisher."""
    length = 16 + (number * 37) % (size - 15)
    first = identity * 17 + number * 31
    head = identity.to_bytes(8, "little") + number.to_bytes(8, "little")
    return head + bytes((first + at * 7) % 256 for at in range(16, length))


def bundles(identity: int, count: int, size: int) -> Iterator[list[bytes]]:
    """Yields all messages, in lists of at most AT_ONCE; without end if count is 0."""
    number = 0
    while count == 0 or number < count:
        end = number + AT_ONCE if count == 0 else min(number + AT_ONCE, count)
        yield [payload(identity, one, size) for one in range(number, end)]
        number = end


class Exclusively:
    """An exclusive publisher and its topic, with the methods of a publisher."""

    def __init__(self, bus: toroni.Bus, topic: str, retained: bool) -> None:
        self.publisher = bus.exclusive()
        self.topic = self.publisher.topic(topic, retained=retained)

    def publish(self, message: bytes) -> int:
        return self.publisher.publish(self.topic, message)

    def try_publish(self, message: bytes) -> int | None:
        return self.publisher.try_publish(self.topic, message)

    def publish_batch(self, messages: list[bytes]) -> None:
        self.publisher.publish_batch(self.topic, messages)

    def burst(self, messages: list[bytes]) -> None:
        self.publisher.burst(self.topic, messages)

    def compose(self, length: int) -> toroni.Composition:
        return self.publisher.compose(self.topic, length)

    def clear(self) -> int:
        return self.publisher.clear(self.topic)


def main() -> None:
    bus_name, topic, identity, count, size, mode = sys.argv[1:]
    bus = toroni.Bus.open_existing(bus_name)
    retained = mode.startswith("retained-")
    mode = mode.removeprefix("retained-")
    if mode == "inlet":
        messages = bundles(int(identity), int(count), int(size))
        brought = bring(bus, topic, retained, messages, int(identity))
        print(f"published\t{brought}", flush=True)
        return
    publisher: toroni.Publisher | Exclusively
    if mode.startswith("exclusive-"):
        mode = mode.removeprefix("exclusive-")
        publisher = Exclusively(bus, topic, retained)
    else:
        publisher = bus.publisher(topic, retained=retained)
    print("ready", flush=True)
    sys.stdin.readline()
    for bundle in bundles(int(identity), int(count), int(size)):
        if mode == "batch":
            publisher.publish_batch(bundle)
        elif mode == "burst":
            publisher.burst(bundle)
        else:
            for message in bundle:
                publish(publisher, mode, message)
    if mode == "clear":
        print(f"cleared\t{publisher.clear()}", flush=True)
    print(f"published\t{count}", flush=True)


def bring(bus: toroni.Bus, on: str, retained: bool, bundles: Iterator[list[bytes]], source: int) -> int:
    """Publishes with an inlet, each message twice."""
    inlet = bus.inlet()
    topic = inlet.topic(on, retained=retained)
    print("ready", flush=True)
    sys.stdin.readline()
    start = toroni.Origin(source, 1, 2, 0)
    for _ in range(2):
        scope = ["a/*", "end"]
        inlet.publish_lost(start, FIRST, messages=7, bound="at_least", reason="burst", scope=scope)
    number = 0
    for bundle in bundles:
        entries = []
        for message in bundle:
            parts, origin = (message[:16], message[16:]), start._replace(number=FIRST + number)
            entries.append(toroni.Entry(topic, parts, origin, number=3 * number, timestamp_ns=number))
            number += 1
        inlet.burst(entries)
        inlet.burst(entries)
    return number


def publish(publisher: toroni.Publisher | Exclusively, mode: str, message: bytes) -> None:
    if mode in ("one", "clear"):
        publisher.publish(message)
    elif mode == "try":
        while publisher.try_publish(message) is None:
            time.sleep(0.001)
    elif mode == "numbered":
        print(f"sequence\t{publisher.publish(message)}")
    elif mode == "in-place":
        with publisher.compose(len(message)) as view:
            view[:] = message
    else:
        raise ValueError(f"there is no mode {mode}")


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        sys.exit(f"publish.py: {error}")
