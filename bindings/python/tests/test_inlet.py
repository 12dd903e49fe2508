"""Inlets: messages that come from elsewhere, and the losses of such messages."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from conftest import SECONDS
from test_processes import line, start
from test_threads import in_threads

import toroni
from toroni import Entry, Origin

ARRIVED = 2**48


def origin(number: int, stream: int = 0) -> Origin:
    return Origin(7, 1, stream, number)


def bring(inlet: toroni.Inlet, topic: toroni.InletTopic, *numbers: int) -> None:
    """Brings one message with each number of the stream 0, which is also its text."""
    for number in numbers:
        inlet.publish(topic, b"%d" % number, origin=origin(number))


def texts(subscriber: toroni.Subscriber) -> list[str]:
    return [message.text for message in subscriber.receive_many(timeout=0)]


def test_an_inlet_publishes_what_comes_from_elsewhere(bus: toroni.Bus) -> None:
    subscriber, into, below = bus.subscribe("**"), bus.subscribe("**"), bus.subscribe("a/below")
    with bus.inlet() as inlet:
        assert not inlet.closed and repr(inlet) == "<toroni.Inlet>"
        a = inlet.topic("a")
        assert (a.topic, repr(a)) == ("a", '<toroni.InletTopic "a">')
        last = Origin(2**32 - 1, 2**32 - 1, 2**16 - 1, 2**48 - 1)
        inlet.publish(
            a,
            [b"from ", b"", bytearray(b"afar")],
            SECONDS,
            origin=last,
            number=2**64 - 1,
            timestamp_ns=5,
            to_descendants=True,
        )
        inlet.publish(a, numpy.arange(3, dtype=numpy.uint8), timeout=None)
        large = bytes(100_000)
        inlet.burst([Entry(a, (large, b"!"), number=3), Entry(inlet.topic("b"), b"b", (1, 2, 3, 4))])
        inlet.publish(a, [])
        first, plain, big, other, empty = (subscriber.receive() for _ in range(5))
        assert (first.topic, first.text, first.timestamp_ns, first.to_descendants) == (
            "a",
            "from afar",
            5,
            True,
        )
        assert (first.origin, first.number) == (last, 2**64 - 1)
        assert type(first.origin) is Origin and first.origin.stream == 2**16 - 1
        assert (plain.payload, plain.origin, plain.number, plain.timestamp_ns) == (
            b"\0\1\2",
            None,
            None,
            None,
        )
        assert (big.payload, big.origin, big.number) == (large + b"!", None, 3)
        assert (other.topic, other.text, other.origin) == ("b", "b", Origin(1, 2, 3, 4))
        assert empty.payload == b"" and subscriber.try_receive() is None
        received = into.receive_into(bytearray(100))
        assert (received.origin, received.number, len(received)) == (last, 2**64 - 1, 9)
        assert texts(below) == ["from afar"]
    assert inlet.closed and "closed" in repr(inlet)
    calls: list[Callable[[], object]] = [
        lambda: inlet.topic("a"),
        lambda: inlet.publish(a, b""),
        lambda: inlet.burst([]),
        lambda: inlet.claim(1, 1, 1),
        lambda: inlet.advance(origin(1)),
        lambda: inlet.publish_lost(origin(1), 2, messages=1, reason="gone", scope="**"),
        lambda: inlet.duplicates,
    ]
    for call in calls:
        with pytest.raises(toroni.Closed, match="inlet"):
            call()
    inlet.close()


def test_messages_are_stamped_if_the_bus_stamps_them(directory: Path) -> None:
    with toroni.Bus("stamps", timestamps=True) as bus, bus.inlet() as inlet:
        subscriber, before = bus.subscribe("**"), time.time_ns()
        inlet.publish(inlet.topic("a"), b"")
        stamp = subscriber.receive().timestamp_ns
        assert stamp is not None and before <= stamp <= time.time_ns()


def test_each_message_arrives_once(bus: toroni.Bus) -> None:
    subscriber = bus.subscribe("**")
    with bus.inlet() as inlet:
        topic = inlet.topic("a")
        bring(inlet, topic, 3, 3, 4, 8)
        assert inlet.duplicates == 1
    # A program that restarts sends everything again. The topic of the first inlet does not keep that.
    inlet = bus.inlet()
    with pytest.raises(toroni.Invalid, match="another handle"):
        bring(inlet, topic, 1)
    bring(inlet, inlet.topic("a"), *range(12))
    assert texts(subscriber) == ["3", "4", "8", "9", "10", "11"]
    assert inlet.duplicates == 9
    assert inlet.claim(7, 1, 0) == toroni.Arrived(next=12, taken_over=False)


def test_messages_of_a_stream_may_arrive_in_any_order(bus: toroni.Bus) -> None:
    subscriber, inlet = bus.subscribe("**"), bus.inlet()
    topic = inlet.topic("a")
    for number, open_from in [(2, 0), (0, 1), (4, 1)]:
        inlet.publish(topic, b"%d" % number, origin=origin(number), open_from=open_from)
    inlet.burst(
        Entry(topic, b"%d" % number, origin(number), open_from)
        for number, open_from in [(1, 3), (1, 3), (3, 5), (4, 5)]
    )
    assert texts(subscriber) == ["2", "0", "4", "1", "3"]
    assert (inlet.duplicates, inlet.claim(7, 1, 0).next) == (2, 5)


def test_losses_arrive_once_too(bus: toroni.Bus) -> None:
    inlet = bus.inlet()
    bring(inlet, inlet.topic("a"), 0)
    inlet.publish_lost(origin(1), 9, messages=5, reason="too_long", scope=["a/**", "b"], open_from=6)
    assert inlet.claim(7, 1, 0).next == 6
    for _ in range(2):
        inlet.publish_lost((7, 1, 0, 1), 9, SECONDS, messages=5, reason="gone", scope="**", bound="at_most")
    assert (inlet.claim(7, 1, 0).next, inlet.duplicates) == (9, 1)


def test_a_stream_advances_without_messages(bus: toroni.Bus) -> None:
    subscriber, inlet, other = bus.subscribe("**"), bus.inlet(), bus.inlet()
    inlet.advance(origin(7))
    inlet.advance((7, 1, 0, 5), SECONDS)
    bring(inlet, inlet.topic("a"), 6, 7)
    assert (inlet.claim(7, 1, 0).next, inlet.duplicates, texts(subscriber)) == (8, 1, ["7"])
    with pytest.raises(toroni.Taken):
        other.advance(origin(9))
    with pytest.raises(toroni.Invalid):
        inlet.advance(origin(2**48 + 1))
    with pytest.raises(TypeError):
        inlet.advance(7)  # type: ignore[arg-type]


def test_losses_from_elsewhere_are_raised_at_their_place(bus: toroni.Bus) -> None:
    subscriber, many, into, elsewhere = (bus.subscribe(pattern) for pattern in ["a/b", "**", "b", "a"])
    local = bus.subscribe("**", local_only=True)
    inlet = bus.inlet()
    topic, publisher = inlet.topic("b"), bus.publisher("a/b")
    publisher.publish(b"before")
    inlet.publish(topic, b"large" * 10_000, origin=origin(1))
    inlet.publish_lost(
        origin(2), ARRIVED, messages=2**64 - 1, bound="at_most", reason="diverged", scope=["a/*", "b"]
    )
    publisher.publish(b"after")
    inlet.publish(topic, b"end")

    def is_lost(call: Callable[[], object]) -> None:
        with pytest.raises(toroni.Lost, match="of source 00000007") as raised:
            call()
        lost = raised.value
        assert (lost.start, lost.until, lost.messages) == (origin(2), ARRIVED, 2**64 - 1)
        assert (lost.bound, lost.reason, lost.scope) == ("at_most", "diverged", ("a/*", "b"))
        restored = pickle.loads(pickle.dumps(lost))
        assert (str(restored), restored.start, restored.scope) == (str(lost), lost.start, lost.scope)

    assert subscriber.receive().text == "before"
    is_lost(subscriber.receive)
    assert subscriber.receive().text == "after"
    stats = subscriber.stats()
    assert (stats.losses, stats.lost_on_the_way, stats.lapses) == (1, 2**64 - 1, 0)
    shown = {one.slot: (one.losses, one.lost_on_the_way) for one in bus.stats().subscribers or []}
    assert shown[subscriber.slot] == (1, 2**64 - 1) and shown[many.slot] == (0, 0)
    assert [message.topic for message in many.receive_many(timeout=0)] == ["a/b", "b"]
    is_lost(lambda: many.receive_many(timeout=0))
    assert texts(many) == ["after", "end"]
    buffer = bytearray(50_000)
    assert into.receive_into(buffer).origin == origin(1)
    is_lost(lambda: into.receive_into(buffer))
    assert len(into.receive_into(buffer)) == 3
    assert elsewhere.try_receive() is None
    assert texts(local) == ["before", "after", "end"]


def test_routers_handle_losses_from_elsewhere(bus: toroni.Bus) -> None:
    router, raising, coroutine = bus.router(), bus.router(), bus.router()
    seen: list[object] = []
    for one in (router, raising, coroutine):
        one.on("**")(lambda message: seen.append(message.text))
    for one in (router, coroutine):
        one.on_lost(lambda lost: seen.append((lost.reason, lost.start)))
    inlet = bus.inlet()
    inlet.publish_lost(origin(1), 2, messages=1, reason="silent", scope="**")
    inlet.publish(inlet.topic("t"), b"after")
    assert router.poll() == 2
    assert seen == [("silent", origin(1)), "after"]
    with pytest.raises(toroni.Lost):
        raising.poll()
    assert raising.poll() == 1
    seen.clear()

    async def run() -> None:
        arrived = asyncio.Event()
        coroutine.on("t")(lambda _: arrived.set())
        task = asyncio.create_task(coroutine.run_async())
        await arrived.wait()
        coroutine.close()
        await task

    asyncio.run(asyncio.wait_for(run(), SECONDS))
    assert seen == [("silent", origin(1)), "after"]


def test_one_inlet_at_a_time_brings_a_stream(directory: Path) -> None:
    mine, other = toroni.Bus("b", participant_name="bridge"), toroni.Bus("b")
    first, second = mine.inlet(), other.inlet()
    topics = first.topic("a"), second.topic("a")
    bring(first, topics[0], 5)
    calls: list[Callable[[], object]] = [
        lambda: bring(second, topics[1], 6),
        lambda: second.claim(7, 1, 0),
        lambda: second.publish_lost(origin(6), 7, messages=1, reason="gone", scope="a"),
        lambda: second.burst([Entry(topics[1], b"6", origin(6))]),
    ]
    for call in calls:
        with pytest.raises(toroni.Taken, match='"bridge"') as taken:
            call()
        assert (taken.value.name, taken.value.pid) == ("bridge", os.getpid())
        assert (taken.value.source, taken.value.series) == (7, 1)
        restored = pickle.loads(pickle.dumps(taken.value))
        assert (str(restored), restored.source) == (str(taken.value), 7)
    second.publish(topics[1], b"of no source")
    assert second.claim(7, 2, 0).next == second.claim(7, 1, 3).next == 0
    first.close()
    assert second.claim(7, 1, 0) == (6, True)
    bring(second, topics[1], 6)


def test_invalid_values_publish_nothing(directory: Path) -> None:
    bus = toroni.Bus("b", max_arrivals=2)
    inlet, elsewhere = bus.inlet(), bus.inlet().topic("t")
    topic = inlet.topic("t")
    good = Entry(topic, b"good", origin(1))
    entries: list[tuple[type[Exception], str, Any]] = [
        (toroni.Invalid, "another handle", Entry(elsewhere, b"")),
        (toroni.Invalid, "48 bits", Entry(topic, b"", origin(ARRIVED))),
        (toroni.Invalid, "48 bits", Entry(topic, b"", origin(0), open_from=ARRIVED + 1)),
        (toroni.Invalid, "stream is 65536", Entry(topic, b"", origin(0, 65536))),
        (toroni.Invalid, "number is -1", Entry(topic, b"", number=-1)),
        (toroni.Invalid, "timestamp_ns", Entry(topic, b"", timestamp_ns=2**64)),
        (toroni.TooLong, "too long|larger|most", Entry(topic, [bytes(2 << 20)] * 2)),
        (TypeError, "toroni.Origin", Entry(topic, b"", (1, 2, 3))),  # type: ignore[arg-type]
        (TypeError, "toroni.Entry", Entry("t", b"")),  # type: ignore[arg-type]
        (TypeError, "toroni.Entry", (topic, b"")),
        (TypeError, "str", Entry(topic, "text")),  # type: ignore[arg-type]
        (TypeError, "to_descendants", Entry(topic, b"", to_descendants="yes")),  # type: ignore[arg-type]
    ]
    for kind, text, bad in entries:
        with pytest.raises(kind, match=text) as raised:
            inlet.burst([good, bad])
        assert getattr(raised.value, "published", None) == 0
    with pytest.raises(TypeError) as not_entries:
        inlet.burst(1)  # type: ignore[arg-type]
    assert getattr(not_entries.value, "published", None) == 0
    publishes: list[tuple[type[Exception], Callable[[], object]]] = [
        (toroni.Invalid, lambda: inlet.topic("a//b")),
        (toroni.Invalid, lambda: inlet.publish(topic, b"", origin=origin(ARRIVED))),
        (toroni.Invalid, lambda: inlet.publish(topic, b"", timeout=-1)),
        (toroni.Invalid, lambda: inlet.publish(topic, b"", open_from=-1)),
        (TypeError, lambda: inlet.publish(topic, b"", origin=3)),  # type: ignore[arg-type]
        (TypeError, lambda: inlet.publish("t", b"")),  # type: ignore[arg-type]
        (TypeError, lambda: inlet.publish(topic, ["text"])),  # type: ignore[list-item]
        (TypeError, toroni.Inlet),
        (toroni.Invalid, lambda: inlet.claim(2**32, 1, 1)),
        (toroni.Invalid, lambda: inlet.publish_lost(origin(5), 4, messages=1, reason="gone", scope="a")),
        (toroni.Invalid, lambda: inlet.publish_lost(origin(5), 6, messages=1, reason="gone", scope=[])),
        (
            toroni.Invalid,
            lambda: inlet.publish_lost(origin(5), 6, messages=1, reason="gone", scope=["a"] * 17),
        ),
        (toroni.Invalid, lambda: inlet.publish_lost(origin(5), 6, messages=1, reason="gone", scope="a//b")),
        (toroni.Invalid, lambda: inlet.publish_lost(origin(5), 6, messages=1, reason="gon", scope="a")),  # type: ignore[arg-type]
        (
            toroni.Invalid,
            lambda: inlet.publish_lost(origin(5), 6, messages=1, reason="gone", scope="a", bound=""),  # type: ignore[arg-type]
        ),
    ]
    for kind, call in publishes:
        with pytest.raises(kind):
            call()
    assert bus.stats().sequence == 0 and bus.stats().max_arrivals == 2
    for stream in range(9):
        inlet.claim(1, 1, stream)
    inlet.advance((1, 1, 0, 1))
    inlet.advance((1, 1, 1, 1))
    with pytest.raises(toroni.TooManyArrivals, match="max_arrivals") as full:
        inlet.advance((1, 1, 2, 1))
    assert full.value.limit == 2
    with pytest.raises(toroni.TooManyArrivals):
        toroni.Bus("none", max_arrivals=0).inlet().advance((1, 1, 0, 1))


def test_an_exclusive_publisher_refuses_inlets(directory: Path) -> None:
    inlet = toroni.Bus("b").inlet()
    topic = inlet.topic("a")
    with toroni.Bus("b").exclusive(), pytest.raises(toroni.Exclusive):
        bring(inlet, topic, 1)
    bring(inlet, topic, 1)


def test_an_inlet_waits_for_slow_subscribers_with_a_limit(small: toroni.Bus) -> None:
    subscriber, inlet = small.subscribe("t"), small.inlet()
    topic = inlet.topic("t")
    entries = [Entry(topic, bytes(1000), origin(number)) for number in range(100)]

    def publish() -> None:
        with pytest.raises(toroni.Timeout) as burst:
            inlet.burst(entries, 0.3)
        published = burst.value.published
        assert published is not None and 0 < published < 100
        assert inlet.claim(7, 1, 0).next == published
        with pytest.raises(toroni.Timeout):
            inlet.publish(topic, bytes(2000), 0)

    in_threads(publish)
    found = inlet.claim(7, 1, 0).next
    # Everything again: the duplicates count as published.
    received: list[int] = []

    def receive() -> None:
        for _ in range(100):
            message = subscriber.receive()
            assert message.origin is not None
            received.append(message.origin.number)

    in_threads(lambda: inlet.burst(entries), receive)
    assert received == list(range(100)) and inlet.duplicates == found


def test_a_policy_that_waits_long_is_kept(directory: Path) -> None:
    with toroni.Bus("long", capacity=64 << 10, policy=toroni.Policy.wait(0.6)) as bus:
        subscriber, inlet = bus.subscribe("t"), bus.inlet()
        topic = inlet.topic("t")

        def publish() -> None:
            with pytest.raises(toroni.Timeout):
                while True:
                    inlet.publish(topic, bytes(1000), 0)
            began = time.monotonic()
            inlet.publish(topic, bytes(1000))
            assert time.monotonic() - began >= 0.55

        in_threads(publish)
        with pytest.raises(toroni.Lapped):
            subscriber.receive()


def test_threads_share_an_inlet(bus: toroni.Bus) -> None:
    subscriber, inlet = bus.subscribe("**"), bus.inlet()

    def publish(stream: int) -> Callable[[], None]:
        def run() -> None:
            topic = inlet.topic("t")
            for number in range(100):
                inlet.publish(topic, b"", origin=origin(number, stream))
                inlet.burst([Entry(topic, b"", origin(number, stream))])

        return run

    in_threads(*(publish(stream) for stream in range(4)))
    seen: list[list[int]] = [[], [], [], []]
    for message in subscriber.receive_many(timeout=0):
        assert message.origin is not None
        seen[message.origin.stream].append(message.origin.number)
    assert seen == [list(range(100))] * 4 and inlet.duplicates == 400


def test_a_signal_ends_a_burst_and_says_how_far_it_got(small: toroni.Bus) -> None:
    subscriber, inlet = small.subscribe("t"), small.inlet()
    topic = inlet.topic("t")
    main = threading.get_ident()

    def interrupt() -> None:
        deadline = time.monotonic() + SECONDS
        while subscriber.lag_bytes < 60_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    # Another thread has to read it: this one would wait for itself.
    reader = threading.Thread(target=lambda: subscriber.receive(timeout=0))
    reader.start()
    reader.join()
    thread.start()
    with pytest.raises(KeyboardInterrupt) as ended:
        inlet.burst(Entry(topic, bytes(1000)) for _ in range(100))
    thread.join()
    published = getattr(ended.value, "published", None)
    assert published == small.stats().sequence and 0 < published < 100


def test_entries_that_raise_publish_nothing(bus: toroni.Bus) -> None:
    inlet = bus.inlet()
    topic = inlet.topic("a")

    def entries() -> Iterator[Entry]:
        yield Entry(topic, b"")
        raise LookupError

    with pytest.raises(LookupError) as raised:
        inlet.burst(entries())
    assert getattr(raised.value, "published", None) == 0 and bus.stats().sequence == 0


BRINGS_THREE = """
import sys, toroni
inlet = toroni.Bus("test").inlet()
topic = inlet.topic("t")
for number in range(3):
    inlet.publish(topic, b"%d" % number, origin=(7, 1, 0, number))
print("published", flush=True)
sys.stdin.read()
"""


def test_a_killed_inlet_is_succeeded(bus: toroni.Bus) -> None:
    subscriber, inlet = bus.subscribe("t"), bus.inlet()
    topic = inlet.topic("t")
    child = start(BRINGS_THREE)
    assert line(child) == "published"
    with pytest.raises(toroni.Taken):
        bring(inlet, topic, 3)
    child.kill()
    child.wait()
    bring(inlet, topic, *range(5))
    assert texts(subscriber) == ["0", "1", "2", "3", "4"]
    assert inlet.duplicates == 3


def test_an_inlet_belongs_to_its_process(bus: toroni.Bus) -> None:
    inlet = bus.inlet()
    topic = inlet.topic("t")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (lambda: bring(inlet, topic, 1), lambda: inlet.claim(7, 1, 0), bus.inlet):
                with pytest.raises(toroni.Forked):
                    call()
            inlet.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    bring(inlet, topic, 1)
