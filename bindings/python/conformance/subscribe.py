"""The subscriber of the test across languages: bindings/conformance/README.md says what it does."""

from __future__ import annotations

import select
import sys

import toroni


def fnv1a(payload: bytes | memoryview) -> int:
    """Returns the FNV-1a hash of 64 bits."""
    value = 0xCBF29CE484222325
    for byte in payload:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


BOUNDS = ["exact", "at_least", "at_most"]
REASONS = """gone budget memory burst jump restart silent topic too_long overtaken diverged""".split()


def shown(origin: toroni.Origin | None) -> str:
    return "-" if origin is None else ".".join(map(str, origin))


def facts(message: toroni.Received | toroni.RetainedMessage, payload: bytes | memoryview) -> str:
    number = "-" if message.number is None else message.number
    seen = f"{message.sequence}\t{message.topic}\t{len(payload)}\t{fnv1a(payload):016x}"
    return f"{seen}\t{shown(message.origin)}\t{number}"


def missing(value: toroni.ValueMissing) -> str:
    return f"missing\t{value.sequence}\t{value.topic}\t{value.length}"


class Receiver:
    """Receives messages in the way that a mode names, and returns each with its bytes."""

    def __init__(self, subscriber: toroni.Subscriber, mode: str, asks: bool) -> None:
        self.subscriber = subscriber
        self.asks = asks
        modes = {
            "receive": self.receive,
            "hold": self.receive,
            "newest": self.receive,
            "timeout": self.wait,
            "in-place": self.in_place,
            "descriptor": self.poll,
        }
        self.next = modes[mode]
        self.buffer = bytearray(64)
        self.poller = select.poll()
        if mode == "descriptor":
            self.poller.register(subscriber, select.POLLIN)

    def ask(self) -> None:
        """Writes once that the subscriber is current."""
        if self.asks and self.subscriber.is_current:
            self.asks = False
            print("current", flush=True)

    def receive(self) -> tuple[toroni.Received, bytes | memoryview]:
        self.ask()
        message = self.subscriber.receive()
        return message, message.payload

    def wait(self) -> tuple[toroni.Received, bytes | memoryview]:
        self.ask()
        while (message := self.subscriber.receive(timeout=0.1)) is None:
            self.ask()
        return message, message.payload

    def in_place(self) -> tuple[toroni.Received, bytes | memoryview]:
        while True:
            self.ask()
            try:
                received = self.subscriber.receive_into(self.buffer)
                return received, memoryview(self.buffer)[: len(received)]
            except toroni.TooLong as error:
                self.buffer = bytearray(error.length)

    def poll(self) -> tuple[toroni.Received, bytes | memoryview]:
        self.ask()
        while (message := self.subscriber.try_receive()) is None:
            self.poller.poll()
            self.ask()
        return message, message.payload


def main() -> None:
    bus_name, pattern, count, mode = sys.argv[1:]
    bus = toroni.Bus.open_existing(bus_name)
    retained = mode.startswith("retained-")
    mode = mode.removeprefix("retained-")
    if mode == "newest":
        subscriber = bus.subscribe(pattern, after_loss="newest", max_age=3600)
    else:
        subscriber = bus.subscribe(pattern, retained=retained)
    receiver = Receiver(subscriber, mode, retained)
    print("ready", flush=True)
    sys.stdin.readline()
    received = 0
    while received < int(count):
        try:
            message, payload = receiver.next()
        except toroni.Lapped as lapped:
            print(f"lost\t{lapped.lost}\t{lapped.lost_bytes}", flush=True)
            continue
        except toroni.ValueMissing as value:
            print(missing(value), flush=True)
            continue
        except toroni.Lost as lost:
            numbers = (
                f"{lost.until}\t{lost.messages}\t{BOUNDS.index(lost.bound)}\t{REASONS.index(lost.reason) + 1}"
            )
            print(f"gone\t{shown(lost.start)}\t{numbers}\t{','.join(lost.scope)}", flush=True)
            continue
        received += 1
        kind = "cleared" if message.is_cleared else "value" if message.is_retained else "message"
        print(f"{kind}\t{facts(message, payload)}", flush=True)
        if mode == "hold":
            subscriber.hold(max(message.sequence - 20, 0))
        if message.topic == "end":
            break
    if mode == "hold":
        print(f"held\t{subscriber.held}", flush=True)
        sys.stdin.readline()
        subscriber.release_hold()
        print(f"held\t{'-' if subscriber.held is None else subscriber.held}", flush=True)
        sys.stdin.readline()
    stats = subscriber.stats()
    print(f"done\t{stats.received}\t{stats.lost_messages}\t{stats.lapses}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        sys.exit(f"subscribe.py: {error}")
