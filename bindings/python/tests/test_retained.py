"""Retained values: the bus keeps the newest message of a topic for late subscribers."""

from __future__ import annotations

import asyncio
import functools
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
from conftest import SECONDS
from test_processes import line, start

import toroni
from toroni import Entry, Origin, Policy, RetainedMessage

KIB = 1 << 10


@pytest.fixture
def tight(directory: Path) -> Iterator[toroni.Bus]:
    """A bus with a ring of 64 KiB whose publishers never wait, and little room for values."""
    settings = {"capacity": 64 * KIB, "retained_topics": 3, "retained_bytes": 4 * KIB}
    with toroni.Bus("tight", policy="overwrite", **settings) as bus:  # type: ignore[arg-type]
        yield bus


def lap(bus: toroni.Bus) -> None:
    """Overwrites everything in a ring of 64 KiB."""
    noise = bus.publisher("noise")
    for _ in range(100):
        noise.publish(bytes(1000))


def value(bus: toroni.Bus, topic: str) -> str | None:
    message = bus.retained(topic)
    return None if message is None else message.text


def all_of(subscriber: toroni.Subscriber) -> list[tuple[str, bool, bool]]:
    messages = subscriber.receive_many(timeout=0)
    return [(message.text, message.is_retained, message.is_cleared) for message in messages]


def test_a_late_subscriber_receives_the_value_and_then_the_stream(bus: toroni.Bus) -> None:
    setpoint, mode = (
        bus.publisher("plant/setpoint", retained=True),
        bus.publisher("plant/mode", retained=True),
    )
    for text in (b"340", b"350"):
        setpoint.publish(text)
    mode.publish(b"manual")
    bus.publisher("plant/plain").publish(b"not kept")
    with bus.subscribe("plant/**", retained=True) as late:
        assert not late.is_current
        first = late.receive(SECONDS)
        assert first is not None
        assert (first.topic, first.text, first.sequence) == ("plant/setpoint", "350", 1)
        assert first.is_retained and not first.is_cleared and not late.is_current
        assert all_of(late) == [("manual", True, False)] and late.is_current
        setpoint.publish(b"360")
        assert all_of(late) == [("360", False, False)] and late.stats().received == 3
    # One that did not ask receives none.
    with bus.subscribe("plant/**") as plain:
        assert plain.is_current and plain.try_receive() is None
        setpoint.clear()
        assert plain.try_receive() is None and plain.stats().unknown == 0


def test_a_value_that_is_newer_than_the_start_is_in_the_stream(bus: toroni.Bus) -> None:
    publisher = bus.publisher("a", retained=True)
    publisher.publish_batch([b"1", b"2"])
    with bus.subscribe("a", retained=True, start="oldest") as subscriber:
        assert subscriber.is_current and all_of(subscriber) == [("1", False, False), ("2", False, False)]
    with bus.subscribe("a", retained=True) as subscriber:
        publisher.publish(b"3")
        assert all_of(subscriber) == [("3", False, False)]


@pytest.mark.parametrize("way", ["publisher", "exclusive"])
def test_a_value_that_was_cleared_is_none_until_the_next_message(bus: toroni.Bus, way: str) -> None:
    if way == "exclusive":
        exclusive = bus.exclusive()
        topic = exclusive.topic("a", retained=True)
        publish: Callable[..., int] = functools.partial(exclusive.publish, topic)
        clear: Callable[..., int] = functools.partial(exclusive.clear, topic)
    else:
        publisher = bus.publisher("a", retained=True)
        publish, clear = publisher.publish, publisher.clear
    assert value(bus, "a") is None
    publish(b"x")
    subscriber, into = bus.subscribe("a", retained=True), bus.subscribe("a", retained=True)
    assert value(bus, "a") == "x" and all_of(subscriber) == [("x", True, False)]
    buffer = bytearray(10)
    assert into.receive_into(buffer).is_retained and buffer[:1] == b"x"
    assert clear() == 1 and value(bus, "a") is None
    for message in (subscriber.receive(), into.receive_into(buffer)):
        assert message.is_cleared and not message.is_retained
        assert (message.topic, message.sequence, len(message)) == ("a", 1, 0)
    late = bus.subscribe("a", retained=True)
    assert late.is_current and late.try_receive() is None
    publish(b"")
    assert value(bus, "a") == "", "an empty message is a value"
    assert not subscriber.receive().is_cleared
    assert clear(SECONDS) == 3


def test_only_a_publisher_that_declared_the_topic_clears_its_value(bus: toroni.Bus) -> None:
    bus.publisher("a", retained=True).publish(b"x")
    publisher = bus.publisher("a")
    with pytest.raises(toroni.NotRetained, match="retained=True"):
        publisher.clear()
    publisher.publish(b"by any publisher")
    assert value(bus, "a") == "by any publisher"
    publisher.close()
    with pytest.raises(toroni.Closed):
        publisher.clear()
    with bus.exclusive() as exclusive:
        topic = exclusive.topic("a")
        with pytest.raises(toroni.NotRetained):
            exclusive.clear(topic, timeout=0)
        with pytest.raises(toroni.Exclusive):
            bus.publisher("b", retained=True)
        with bus.inlet() as inlet, pytest.raises(toroni.Exclusive):
            inlet.topic("b", retained=True)
        with pytest.raises(TypeError):
            exclusive.clear("a")  # type: ignore[arg-type]
    with pytest.raises(toroni.Closed):
        exclusive.clear(topic)
    with pytest.raises(toroni.Invalid, match="timeout"):
        bus.publisher("a", retained=True).clear(timeout=-1)


def test_each_way_to_publish_keeps_the_newest_message(bus: toroni.Bus) -> None:
    publisher = bus.publisher("a", retained=True, to_descendants=True, policy="overwrite")
    publisher.publish_batch([b"1", b"2", b"3"])
    assert value(bus, "a") == "3"
    publisher.burst([b"4", b"5"])
    assert value(bus, "a") == "5"
    with publisher.compose(3) as view:
        view[:] = b"666"
    assert value(bus, "a") == "666"
    publisher.try_publish(b"7")
    assert value(bus, "a") == "7"
    large = bytes(100_000)
    assert publisher.publish(large) == 7
    message = bus.retained("a")
    assert message is not None and message.payload == large
    # Large messages are copied from the ring.
    subscriber = bus.subscribe("a", retained=True)
    assert subscriber.receive().is_retained
    publisher.publish(large)
    assert not subscriber.receive().is_retained
    publisher.clear()
    assert subscriber.receive().is_cleared
    # The subscribers below the topic receive the value, too.
    publisher.publish(b"all")
    assert all_of(bus.subscribe("a/below", retained=True)) == [("all", True, False)]


def test_a_value_has_all_that_its_message_has(directory: Path) -> None:
    with toroni.Bus("b", timestamps=True) as bus, bus.inlet() as inlet:
        before = time.time_ns()
        bus.publisher("plant/setpoint", retained=True).publish(b"350")
        message = bus.retained("plant/setpoint")
        assert message is not None and message.timestamp_ns is not None
        assert before <= message.timestamp_ns <= time.time_ns()
        assert (message.topic, message.payload, message.text) == ("plant/setpoint", b"350", "350")
        assert (message.sequence, message.position, message.origin, message.number) == (0, 0, None, None)
        assert message.to_descendants is False
        assert (len(message), bytes(message), bool(message)) == (3, b"350", True)
        assert pickle.loads(pickle.dumps(message)) == message
        topic, origin = inlet.topic("afar", retained=True), Origin(1, 2, 3, 4)
        inlet.burst([Entry(topic, b"\xff", origin, number=5, timestamp_ns=6)])
        assert bus.retained("afar") == RetainedMessage(
            topic="afar",
            payload=b"\xff",
            position=bus.subscribe("afar", start=("sequence", 1)).receive().position,
            sequence=1,
            to_descendants=False,
            timestamp_ns=6,
            origin=origin,
            number=5,
        )
        assert value(bus, "afar") == "\ufffd"
        # A duplicate does not reach the value.
        bus.publisher("afar").publish(b"")
        inlet.publish(topic, b"again", origin=origin)
        empty = bus.retained("afar")
        assert empty is not None and empty and not len(empty)
        assert value(bus, "none") is None


def test_values_are_listed_in_the_order_of_the_bus(bus: toroni.Bus) -> None:
    one, two, other = (bus.publisher(topic, retained=True) for topic in ("p/1", "p/2", "q"))
    for publisher, text in ((one, b"a"), (two, b"b"), (other, b"c"), (one, b"d")):
        publisher.publish(text)
    assert [str(value) for value in bus.retained_matching("p/*") if isinstance(value, toroni.Error)] == []
    shown = [(one.topic, one.text) for one in bus.retained_matching("**") if isinstance(one, RetainedMessage)]
    assert shown == [("p/2", "b"), ("q", "c"), ("p/1", "d")]
    two.clear()
    assert [bytes(value) for value in bus.retained_matching("p/*") if isinstance(value, RetainedMessage)] == [
        b"d"
    ]
    assert bus.retained_matching("none") == []
    for call in (lambda: bus.retained("a//b"), lambda: bus.retained_matching("a/***")):
        with pytest.raises(toroni.Invalid):
            call()
    bus.close()
    with pytest.raises(toroni.Closed):
        bus.retained("a")
    with pytest.raises(toroni.Closed):
        bus.retained_matching("a")


def test_what_finds_no_room_is_refused_or_missing(tight: toroni.Bus) -> None:
    publisher, plain = tight.publisher("a", retained=True), tight.publisher("a")
    assert publisher.publish(bytes(100)) == 0
    with pytest.raises(toroni.ValueTooLong) as too_long:
        publisher.publish(bytes(1020))
    assert (too_long.value.length, too_long.value.limit) == (1032, 1024)
    assert isinstance(too_long.value, toroni.TooLong)
    with pytest.raises(toroni.ValueTooLong) as burst:
        publisher.burst([b"1", bytes(1020), b"3"])
    assert burst.value.published == 1 and value(tight, "a") == "1"
    # Another publisher knows nothing of values.
    sequence = plain.publish(bytes(1020))
    assert len(tight.retained("a") or b"") == 1020, "it is in the ring"
    lap(tight)
    with pytest.raises(toroni.ValueMissing) as missing:
        tight.retained("a")
    assert (missing.value.topic, missing.value.sequence, missing.value.length) == ("a", sequence, 1020)
    tight.publisher("b", retained=True).publish(b"b")
    first, second = tight.retained_matching("*")
    assert isinstance(first, toroni.ValueMissing) and first.sequence == sequence
    assert isinstance(second, RetainedMessage) and second.text == "b"
    with tight.subscribe("*", retained=True) as late:
        with pytest.raises(toroni.ValueMissing) as missing:
            late.receive()
        assert (missing.value.topic, missing.value.sequence, missing.value.length) == ("a", sequence, 1020)
        assert not late.is_current and late.receive().text == "b"
    # An error after a message comes with the next call.
    with tight.subscribe("*", retained=True) as late:
        tight.publisher("c", retained=True).publish(b"c")
    plain.publish(bytes(1020))
    lap(tight)
    with tight.subscribe("*", retained=True) as late:
        assert all_of(late) == [("b", True, False), ("c", True, False)] and not late.is_current
        with pytest.raises(toroni.ValueMissing):
            late.try_receive()
        assert late.is_current and late.try_receive() is None
    publisher.publish(bytes(100))
    assert len(tight.retained("a") or b"") == 100


def test_the_room_for_values_has_a_limit(tight: toroni.Bus) -> None:
    publishers = [tight.publisher(topic, retained=True) for topic in "abc"]
    with pytest.raises(toroni.TooManyRetained, match="3 topics") as topics:
        tight.publisher("d", retained=True)
    assert topics.value.limit == 3
    # It is retained already.
    tight.publisher("a", retained=True)
    with pytest.raises(toroni.RetainedFull) as full:
        for publisher in publishers:
            for _ in range(2):
                publisher.publish(bytes(1000))
    assert full.value.limit == 4 * KIB
    with tight.exclusive() as exclusive, pytest.raises(toroni.TooManyRetained):
        exclusive.topic("d", retained=True)


def test_an_inlet_loses_nothing_for_want_of_room(tight: toroni.Bus) -> None:
    with tight.inlet() as inlet:
        topic = inlet.topic("a", retained=True)
        subscriber = tight.subscribe("a")
        inlet.publish(topic, bytes(2000))
        assert len(subscriber.receive()) == 2000
        lap(tight)
        with pytest.raises(toroni.ValueMissing):
            tight.retained("a")
        for name in "bc":
            inlet.topic(name, retained=True)
        with pytest.raises(toroni.TooManyRetained):
            inlet.topic("d", retained=True)
        inlet.topic("d")


def test_a_full_topic_table_leaves_no_topic_to_retain(directory: Path) -> None:
    with toroni.Bus("b", topic_table_bytes=4096) as bus:
        for number in range(40):
            bus.publisher(f"{number:0>200}")
        with pytest.raises(toroni.TooManyRetained, match="table of topics") as full:
            bus.publisher("x" * 200, retained=True)
        assert full.value.limit is None


def test_a_bus_may_keep_no_values(directory: Path) -> None:
    with toroni.Bus("b", retained_topics=0) as bus:
        calls: list[Callable[[], object]] = [
            lambda: bus.publisher("a", retained=True),
            lambda: bus.subscribe("a", retained=True),
            lambda: bus.inlet().topic("a", retained=True),
            lambda: bus.retained("a"),
            lambda: bus.retained_matching("a"),
        ]
        for call in calls:
            with pytest.raises(toroni.NoValues, match="retained"):
                call()
        with bus.exclusive() as exclusive, pytest.raises(toroni.NoValues):
            exclusive.topic("a", retained=True)
        assert bus.stats().retained == toroni.RetainedStats(0, 0, 0, 0, 0)


def test_the_setting_is_checked(directory: Path) -> None:
    wrong: list[tuple[type[Exception], str, dict[str, object]]] = [
        (TypeError, "retained_topics is .1, 2.", {"retained_topics": (1, 2)}),
        (TypeError, "retained_bytes is '1M'", {"retained_bytes": "1M"}),
        (toroni.Invalid, "retained_topics is -1", {"retained_topics": -1}),
        (toroni.Invalid, "4097 topics", {"retained_topics": 4097}),
        (toroni.Invalid, "100 bytes", {"retained_bytes": 100}),
    ]
    for kind, text, given in wrong:
        with pytest.raises(kind, match=text):
            toroni.Bus("b", **given)  # type: ignore[arg-type]
    with toroni.Bus("b", retained_topics=None, retained_bytes=8 * KIB) as bus:
        stats = bus.stats().retained
        assert (stats.max_topics, stats.bytes) == (512, 8 * KIB)


def test_a_policy_that_is_refused_retains_no_topic(bus: toroni.Bus) -> None:
    forever = Policy.wait(None)
    with pytest.raises(toroni.Invalid):
        bus.publisher("a", retained=True, policy=forever)
    with bus.exclusive() as exclusive, pytest.raises(toroni.Invalid):
        exclusive.topic("b", retained=True, policy=forever)
    assert bus.stats().retained.topics == 0


def test_a_router_takes_no_values(bus: toroni.Bus) -> None:
    with pytest.raises(toroni.Invalid, match=r"Bus\.subscribe"):
        bus.router(retained=True)  # type: ignore[call-arg]


def test_after_a_loss_the_values_come_that_changed_within_it(tight: toroni.Bus) -> None:
    one, two, three = (tight.publisher(topic, retained=True) for topic in "abc")
    one.publish(b"old")
    with tight.subscribe("*", retained=True) as subscriber:
        assert subscriber.receive().text == "old"
        two.publish(b"lost")
        two.publish(b"new")
        three.publish(b"c")
        three.clear()
        lap(tight)
        one.publish(b"stream")
        with pytest.raises(toroni.Lapped):
            subscriber.receive()
        assert not subscriber.is_current
        found = [one for one in subscriber.receive_many(timeout=0) if one.topic != "noise"]
        assert [(one.topic, one.text, one.is_retained, one.is_cleared) for one in found] == [
            ("b", "new", True, False),
            ("c", "", True, True),
            ("a", "stream", False, False),
        ]


def test_a_value_that_does_not_fit_is_kept(bus: toroni.Bus) -> None:
    publisher = bus.publisher("a", retained=True)
    publisher.publish(bytes(100))
    subscriber = bus.subscribe("a", retained=True)
    position = subscriber.position
    assert position > 0
    with pytest.raises(toroni.TooLong) as small:
        subscriber.receive_into(bytearray(10))
    # It continues where it subscribed, not where the value was.
    assert small.value.length == 100 and not subscriber.is_current and subscriber.position == position
    publisher.publish(b"next")
    array = numpy.empty(100, dtype=numpy.uint8)
    assert subscriber.receive_into(array).is_retained and subscriber.is_current
    assert not subscriber.receive_into(array).is_retained


def test_coroutines_receive_values_first(bus: toroni.Bus) -> None:
    publisher = bus.publisher("a", retained=True)
    publisher.publish(b"value")

    async def receive() -> list[tuple[str, bool]]:
        seen = []
        with bus.subscribe("a", retained=True) as subscriber:
            async for message in subscriber:
                seen.append((message.text, message.is_retained))
                if not message.is_retained:
                    return seen
                asyncio.get_running_loop().call_later(0.01, publisher.publish, b"change")
        return seen

    assert asyncio.run(asyncio.wait_for(receive(), SECONDS)) == [("value", True), ("change", False)]


def test_the_figures_of_a_bus_say_what_it_keeps(directory: Path) -> None:
    settings = {"capacity": 64 * KIB, "retained_topics": 3, "retained_bytes": 4 * KIB}
    with toroni.Bus("b", policy="overwrite", timestamps=True, **settings) as bus:  # type: ignore[arg-type]
        kept, cleared, _ = (bus.publisher(topic, retained=True) for topic in ("kept", "cleared", "missing"))
        assert {one.name: one.value for one in bus.topics()}["kept"] == toroni.ValueStats(
            "none", None, None, None
        )
        before = time.time_ns()
        sequence = kept.publish(b"12345")
        cleared.publish(b"x")
        cleared.clear()
        lost = bus.publisher("missing").publish(bytes(1500))
        lap(bus)
        values = {one.name: one.value for one in bus.topics()}
        assert values["noise"] is None
        assert values["cleared"] == toroni.ValueStats("none", None, None, None)
        assert values["missing"] == toroni.ValueStats("missing", lost, 1508, None)
        shown = values["kept"]
        assert shown is not None and shown.timestamp_ns is not None
        assert (shown.state, shown.sequence, shown.bytes) == ("kept", sequence, 5)
        assert before <= shown.timestamp_ns <= time.time_ns()
        stats = bus.stats().retained
        assert (stats.topics, stats.max_topics, stats.missing, stats.bytes) == (3, 3, 1, 4 * KIB)
        assert 0 < stats.used_bytes <= stats.bytes


def test_the_exceptions_can_be_pickled() -> None:
    for error, names in [
        (toroni.ValueMissing("gone", "a", 3, 96), ["topic", "sequence", "length"]),
        (toroni.ValueTooLong("long", 10, 5), ["length", "limit"]),
        (toroni.RetainedFull("full", 4096), ["limit"]),
        (toroni.TooManyRetained("full"), ["limit"]),
    ]:
        copy = pickle.loads(pickle.dumps(error))
        assert str(copy) == str(error) and type(copy) is type(error)
        assert [getattr(copy, name) for name in names] == [getattr(error, name) for name in names]


def test_a_value_survives_its_publisher(directory: Path) -> None:
    program = """
import time, toroni
bus = toroni.Bus("b")
bus.publisher("plant/setpoint", retained=True).publish(b"350")
print("published", flush=True)
time.sleep(600)
"""
    with toroni.Bus("b") as bus:
        publisher = start(program)
        try:
            assert line(publisher) == "published"
            publisher.send_signal(signal.SIGKILL)
            publisher.wait(SECONDS)
        finally:
            publisher.kill()
            publisher.communicate()
        assert all_of(bus.subscribe("plant/**", retained=True)) == [("350", True, False)]
        assert value(bus, "plant/setpoint") == "350"


def test_a_child_of_a_fork_cannot_use_the_handles(bus: toroni.Bus) -> None:
    publisher, subscriber = bus.publisher("a", retained=True), bus.subscribe("a", retained=True)
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (lambda: bus.retained("a"), lambda: bus.retained_matching("a"), publisher.clear):
            try:
                call()
            except toroni.Forked:
                refused += 1
        os._exit(0 if refused == 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert subscriber.try_receive() is None
