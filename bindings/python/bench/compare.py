"""Measures messages per second from one Python process to another, for Toroni, pyzmq and iceoryx2.

    cargo xtask bindings python --measure

The ways run alternately, several times, so that other work of the machine affects all of them. The table shows
medians. The receiver gets each message as bytes, counts the messages, and checks the numbers of some. Publishers
wait for the receiver, so a lost message is an error. --help lists the options.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import toroni

Send = Callable[[list[bytes]], None]
"""Sends some messages."""
Receive = Callable[[], list[bytes]]
"""Waits for messages and returns them."""

AT_ONCE = 1024
END = b"\xff" * 8


class Way:
    """A way to transfer messages: a sender and a receiver."""

    def sender(self, place: str, size: int) -> Send:
        raise NotImplementedError

    def receiver(self, place: str, size: int) -> Receive:
        raise NotImplementedError


class Toroni(Way):
    """publish and receive, one call for each message; or burst and receive_many; or arrays of rows; or asyncio."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def sender(self, place: str, size: int) -> Send:
        publisher = self.bus(place).publisher("bench")
        if self.kind in ("calls", "asyncio"):

            def each(messages: list[bytes]) -> None:
                publish = publisher.publish
                for message in messages:
                    publish(message)

            return each
        return publisher.burst

    def receiver(self, place: str, size: int) -> Receive:
        subscriber = self.bus(place).subscribe("bench")
        if self.kind == "many":
            return lambda: [message.payload for message in subscriber.receive_many(AT_ONCE)]
        if self.kind == "into":
            buffer = bytearray(size)

            def into() -> list[bytes]:
                subscriber.receive_into(buffer)
                return [bytes(buffer[:8])]

            return into
        if self.kind == "asyncio":
            loop = asyncio.new_event_loop()

            async def some() -> list[bytes]:
                return [(await subscriber.receive_async()).payload for _ in range(16)]

            return lambda: loop.run_until_complete(some())
        return lambda: [subscriber.receive().payload]

    def bus(self, place: str) -> toroni.Bus:
        return toroni.Bus("bench", directory=place, policy=toroni.Policy.wait(None))


class ZeroMq(Way):
    """PUB and SUB over ipc://. The publisher waits instead of dropping messages (XPUB_NODROP)."""

    def sender(self, place: str, size: int) -> Send:
        import zmq

        socket: Any = zmq.Context.instance().socket(zmq.XPUB)
        socket.setsockopt(zmq.XPUB_NODROP, 1)
        socket.bind(f"ipc://{place}/socket")
        socket.recv()  # The subscription.

        def send(messages: list[bytes]) -> None:
            for message in messages:
                socket.send(message)

        return send

    def receiver(self, place: str, size: int) -> Receive:
        import zmq

        socket: Any = zmq.Context.instance().socket(zmq.SUB)
        socket.connect(f"ipc://{place}/socket")
        socket.subscribe(b"")
        return lambda: [socket.recv()]


class Iceoryx2(Way):
    """send_copy and receive. receive does not wait, so the receiver polls. The publisher waits for the receiver."""

    def sender(self, place: str, size: int) -> Send:
        import iceoryx2

        service, payload = self.service(place, size)
        strategy = iceoryx2.BackpressureStrategy.RetryUntilDelivered
        publisher = service.publisher_builder().backpressure_strategy(strategy).create()
        while not service.dynamic_config.number_of_subscribers:
            time.sleep(0.001)
        publisher.update_connections()

        def send(messages: list[bytes]) -> None:
            for message in messages:
                # The result is the number of receivers. With the strategy alone, some messages were lost on a full buffer.
                while not publisher.send_copy(payload.from_buffer_copy(message)):
                    time.sleep(0)

        return send

    def receiver(self, place: str, size: int) -> Receive:
        service, _ = self.service(place, size)
        subscriber = service.subscriber_builder().create()

        def receive() -> list[bytes]:
            while (sample := subscriber.receive()) is None:
                pass
            return [ctypes.string_at(sample.payload_ptr, size)]

        return receive

    def service(self, place: str, size: int) -> tuple[Any, Any]:
        import iceoryx2

        iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
        payload = type("Payload", (ctypes.Structure,), {"_fields_": [("bytes", ctypes.c_uint8 * size)]})
        self.node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)
        builder = self.node.service_builder(iceoryx2.ServiceName.new(place)).publish_subscribe(payload)
        builder = builder.enable_safe_overflow(False).subscriber_max_buffer_size(256)
        return builder.open_or_create(), payload


WAYS: dict[str, Way] = {
    "toroni: burst, receive_many": Toroni("many"),
    "toroni: publish, receive": Toroni("calls"),
    "toroni: burst, receive_into": Toroni("into"),
    "toroni: publish, asyncio": Toroni("asyncio"),
    "pyzmq: send, recv": ZeroMq(),
    "iceoryx2: send_copy, receive (polling)": Iceoryx2(),
}


def send(way: str, place: str, size: int, seconds: float) -> None:
    """The process of the publisher: sends as many messages as it can in that time, and then one that ends the run."""
    call = WAYS[way].sender(place, size)
    sys.stdin.readline()
    filler = bytes(size - 8)
    number = 0
    until = time.perf_counter() + seconds
    at_once = AT_ONCE if size < 4096 else 16
    messages = [one.to_bytes(8, "little") + filler for one in range(at_once)]
    while time.perf_counter() < until:
        call(messages)
        number += at_once
    print(number, flush=True)
    # Sixteen, so that a receiver that takes that many at once does not wait.
    call([END + filler] * 16)
    sys.stdin.readline()


def receive(way: str, place: str, size: int) -> None:
    """The process of the subscriber: prints how many messages arrived per second, from the first to the last."""
    call = WAYS[way].receiver(place, size)
    print("ready", flush=True)
    count = 0
    began = None
    at_once = AT_ONCE if size < 4096 else 16
    while True:
        messages = call()
        if began is None:
            began = time.perf_counter()
        if int.from_bytes(messages[0][:8], "little") != count % at_once and messages[0][:8] != END:
            sys.exit(f"{way}: message {count} of {size} bytes is {messages[0][:8]!r}")
        count += len(messages)
        if messages[-1][:8] == END:
            break
    elapsed = time.perf_counter() - began
    ends = sum(message[:8] == END for message in messages)
    print(count - ends, elapsed, flush=True)
    # The sender needs a receiver until it ends.
    sys.stdin.readline()


def once(way: str, size: int, seconds: float) -> float:
    """Returns the messages per second of one run."""
    place = tempfile.mkdtemp(prefix="toroni-bench-", dir="/dev/shm")
    python = [sys.executable, __file__, "--way", way, "--place", place, "--size", str(size)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children: list[subprocess.Popen[str]] = []
    try:
        receiver = subprocess.Popen([*python, "--role", "receive"], **pipes)  # type: ignore[call-overload]
        children.append(receiver)
        if receiver.stdout.readline().strip() != "ready":
            sys.exit(f"{way}: the receiver does not start")
        sender = subprocess.Popen([*python, "--role", "send", "--seconds", str(seconds)], **pipes)  # type: ignore[call-overload]
        children.append(sender)
        sender.stdin.write("\n")
        sender.stdin.flush()
        sent = int(sender.stdout.readline())
        received, elapsed = receiver.stdout.readline().split()
        if int(received) != sent:
            sys.exit(f"{way}: {sent} were sent, {received} came")
        # Ends it properly, because a killed process may leave files behind.
        sender.communicate("\n", timeout=60)
        receiver.communicate("\n", timeout=60)
        return sent / float(elapsed)
    finally:
        for child in children:
            child.kill()
            child.wait()
        shutil.rmtree(place)


def compare(sizes: list[int], repetitions: int, seconds: float) -> Iterator[str]:
    """Returns the lines of the table."""
    rates: dict[tuple[str, int], list[float]] = {}
    for _ in range(repetitions):
        for size in sizes:
            for way in WAYS:
                rates.setdefault((way, size), []).append(once(way, size, seconds))
    yield f"Load {os.getloadavg()[0]:.1f} at the end, {repetitions} repetitions of {seconds} s in turn; thousands"
    yield "of messages a second, medians (least to most):\n"
    yield "| | " + " | ".join(f"{size} B" for size in sizes) + " |"
    yield "|---" * (len(sizes) + 1) + "|"
    for way in WAYS:
        cells = []
        for size in sizes:
            some = [rate / 1000 for rate in rates[way, size]]
            cells.append(f"{statistics.median(some):,.0f} ({min(some):,.0f} to {max(some):,.0f})")
        yield f"| {way} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 1024, 65536], help="bytes, from 8 on")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of sending in each run")
    for hidden in ("--role", "--way", "--place"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "send":
        send(options.way, options.place, options.size, options.seconds)
    elif options.role == "receive":
        receive(options.way, options.place, options.size)
    else:
        for line in compare(options.sizes, options.repetitions, options.seconds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
