"""Exclusive publishers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SECONDS
from test_processes import line, start
from test_threads import in_threads

import toroni


def texts(subscriber: toroni.Subscriber) -> list[str]:
    return [message.text for message in subscriber.receive_many(timeout=0)]


def test_an_exclusive_publisher_publishes_in_every_way(bus: toroni.Bus) -> None:
    subscriber, below = bus.subscribe("**"), bus.subscribe("a/below")
    with bus.exclusive(always_fenced=True) as exclusive:
        assert not exclusive.closed and repr(exclusive) == "<toroni.ExclusivePublisher>"
        a, to_all = exclusive.topic("a"), exclusive.topic("a", to_descendants=True, policy="overwrite")
        assert (a.topic, repr(a)) == ("a", '<toroni.ExclusiveTopic "a">') and a.largest_message > 1 << 20
        exclusive.publish(a, b"1")
        exclusive.publish(a, memoryview(b"2"), timeout=SECONDS)
        assert exclusive.try_publish(a, b"3") == 2
        exclusive.publish_batch(a, [b"4", b"5"])
        exclusive.publish_batch(a, [b"6"], timeout=0)
        exclusive.burst(a, [b"7", b"8"], SECONDS)
        with exclusive.compose(a, 1) as view:
            view[:] = b"9"
        with pytest.raises(KeyError), exclusive.compose(a, 1):
            raise KeyError
        exclusive.publish(to_all, b"all")
        large = bytes(100_000)
        exclusive.publish(a, large)
        assert exclusive.try_publish(a, large) == 11
        with exclusive.compose(a, len(large)) as view:
            view[:] = large
    assert exclusive.closed and "closed" in repr(exclusive)
    assert texts(subscriber)[:10] == ["1", "2", "3", "4", "5", "6", "7", "8", "9", "all"]
    assert texts(below) == ["all"]
    # The topic serves the next exclusive publisher of the same bus.
    with bus.exclusive(timeout=0) as exclusive:
        exclusive.publish(a, b"again")
    calls: list[Callable[[], object]] = [
        lambda: exclusive.topic("a"),
        lambda: exclusive.publish(a, b""),
        lambda: exclusive.try_publish(a, b""),
        lambda: exclusive.publish_batch(a, [b""]),
        lambda: exclusive.burst(a, [b""]),
        lambda: exclusive.compose(a, 1),
    ]
    for call in calls:
        with pytest.raises(toroni.Closed, match="exclusive publisher"):
            call()
    exclusive.close()


def test_every_other_call_that_publishes_is_refused(directory: Path) -> None:
    mine, other = toroni.Bus("b", participant_name="feed"), toroni.Bus("b")
    publisher = other.publisher("t")
    exclusive = mine.exclusive()
    calls: list[Callable[[], object]] = [
        lambda: publisher.publish(b"x"),
        lambda: publisher.publish(b"x", timeout=SECONDS),
        lambda: publisher.publish(bytes(100_000)),
        lambda: publisher.try_publish(b"x"),
        lambda: publisher.publish_batch([b"x"]),
        lambda: publisher.burst([b"x"]),
        lambda: other.exclusive(timeout=0),
        lambda: other.exclusive(timeout=0.3),
        # They would wait for their own Bus.
        mine.exclusive,
        lambda: mine.exclusive(timeout=SECONDS),
    ]
    for call in calls:
        with pytest.raises(toroni.Exclusive, match="feed") as refused:
            call()
        assert (refused.value.name, refused.value.pid) == ("feed", os.getpid())
    with pytest.raises(toroni.Exclusive) as burst:
        publisher.burst([b"x"])
    assert burst.value.published == 0
    owner = other.stats().lock_owner
    assert owner is not None and owner.exclusive and owner.pid == os.getpid()
    topic = exclusive.topic("t")
    exclusive.publish(topic, b"mine")
    exclusive.close()
    publisher.publish(b"yours")
    with other.exclusive() as second, pytest.raises(toroni.Invalid, match="topic"):
        second.publish(topic, b"not")


def test_errors_have_their_classes(directory: Path, bus: toroni.Bus) -> None:
    with pytest.raises(toroni.Error, match="lease"):
        toroni.Bus("robust", lock="robust").exclusive()
    with pytest.raises(TypeError):
        toroni.ExclusivePublisher()
    with pytest.raises(toroni.Invalid, match="timeout"):
        bus.exclusive(timeout=-1)
    with bus.exclusive() as exclusive:
        topic = exclusive.topic("t")
        with pytest.raises(toroni.Invalid):
            exclusive.topic("a//b")
        with pytest.raises(toroni.Invalid):
            exclusive.topic("t", policy="wait:forever")
        with pytest.raises(toroni.TooLong):
            exclusive.publish(topic, bytes(topic.largest_message + 1))
        with pytest.raises(toroni.TooLong):
            exclusive.compose(topic, topic.largest_message + 1)
        with pytest.raises(TypeError):
            exclusive.publish("t", b"")  # type: ignore[arg-type]
        with pytest.raises(TypeError) as burst:
            exclusive.burst(topic, [1])  # type: ignore[list-item]
        assert getattr(burst.value, "published", None) == 0


def test_waits_for_slow_subscribers_have_limits(small: toroni.Bus) -> None:
    subscriber, other = small.subscribe("t"), toroni.Bus("small").publisher("t")
    with small.exclusive() as exclusive:
        topic = exclusive.topic("t")

        def publish() -> None:
            while exclusive.try_publish(topic, bytes(1000)) is not None:
                pass
            for timeout in (0.0, 0.3):
                with pytest.raises(toroni.Timeout):
                    exclusive.publish(topic, bytes(1000), timeout)
                with pytest.raises(toroni.Timeout):
                    exclusive.publish_batch(topic, [bytes(1000)] * 2, timeout)
                with pytest.raises(toroni.Timeout) as burst:
                    exclusive.burst(topic, [bytes(1000)] * 2, timeout)
                assert burst.value.published == 0
            with pytest.raises(toroni.Exclusive):
                other.publish(b"x")
            exclusive.publish(exclusive.topic("t", policy="overwrite"), bytes(1000))

        in_threads(publish)
    with pytest.raises(toroni.Lapped):
        subscriber.receive()


@pytest.mark.parametrize("way", ["publish", "publish_batch", "burst"])
def test_a_policy_that_waits_long_is_kept_over_all_slices(directory: Path, way: str) -> None:
    with toroni.Bus("long", capacity=64 << 10, policy=toroni.Policy.wait(0.6)) as bus:
        subscriber, exclusive = bus.subscribe("t"), bus.exclusive()
        topic = exclusive.topic("t")

        def publish() -> None:
            while exclusive.try_publish(topic, bytes(1000)) is not None:
                pass
            began = time.monotonic()
            getattr(exclusive, way)(topic, bytes(1000) if way == "publish" else [bytes(1000)])
            assert time.monotonic() - began >= 0.55

        in_threads(publish)
        with pytest.raises(toroni.Lapped):
            subscriber.receive()


def test_threads_share_an_exclusive_publisher(small: toroni.Bus) -> None:
    subscriber, exclusive = small.subscribe("**"), small.exclusive()
    count = 500
    received: list[tuple[str, int]] = []

    def publish(name: str) -> None:
        topic = exclusive.topic(name)
        for number in range(0, count, 5):
            messages = [(number + one).to_bytes(8, "little") * 20 for one in range(5)]
            exclusive.publish(topic, messages[0])
            exclusive.burst(topic, messages[1:3])
            exclusive.publish_batch(topic, messages[3:])

    def receive() -> None:
        while len(received) < 3 * count:
            message = subscriber.receive()
            received.append((message.topic, int.from_bytes(message.payload[:8], "little")))

    in_threads(lambda: publish("a"), lambda: publish("b"), lambda: publish("c"), receive)
    for name in "abc":
        assert [number for topic, number in received if topic == name] == list(range(count))


def test_other_threads_run_while_one_waits(small: toroni.Bus) -> None:
    """One thread waits to be exclusive, and then for a slow subscriber; this one ends both waits."""
    other, subscriber = toroni.Bus("small"), small.subscribe("t")
    first = other.exclusive()
    steps: list[str] = []

    def wait() -> None:
        with small.exclusive() as exclusive:
            steps.append("exclusive")
            topic = exclusive.topic("t")
            for _ in range(200):
                exclusive.publish(topic, bytes(1000))
            steps.append("published")

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    time.sleep(0.4)
    assert steps == []
    first.close()
    for _ in range(200):
        assert subscriber.receive(timeout=SECONDS) is not None
    thread.join(SECONDS)
    assert steps == ["exclusive", "published"]
    other.publisher("t").publish(b"after")


def test_closing_ends_the_wait_of_another_thread(small: toroni.Bus) -> None:
    subscriber, exclusive = small.subscribe("t"), small.exclusive()
    topic = exclusive.topic("t")

    def publish() -> None:
        with pytest.raises(toroni.Closed):
            exclusive.burst(topic, [bytes(1000)] * 1000)

    def close() -> None:
        deadline = time.monotonic() + SECONDS
        while subscriber.lag_bytes < 60_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        # The ring is full, and the other thread waits; this one does not.
        assert exclusive.try_publish(topic, bytes(1000)) is None
        exclusive.close()

    in_threads(publish, close)
    # The lock is free, or will be soon.
    toroni.Bus("small").exclusive(timeout=SECONDS).close()


INTERRUPTED = """
import sys, toroni
bus = toroni.Bus("small")
print("ready", flush=True)
try:
    exclusive = bus.exclusive()
    topic = exclusive.topic("t")
    if sys.argv[1] == "publish":
        while True: exclusive.publish(topic, bytes(1000))
    elif sys.argv[1] == "batch":
        while True: exclusive.publish_batch(topic, [bytes(1000)] * 3)
    else:
        exclusive.burst(topic, [bytes(1000)] * 1000)
except KeyboardInterrupt as interrupt:
    print("interrupted", getattr(interrupt, "published", None), flush=True)
"""


@pytest.mark.parametrize("mode", ["open", "publish", "batch", "burst"])
def test_ctrl_c_ends_every_wait(small: toroni.Bus, mode: str) -> None:
    watched = small.subscribe("t")
    mine = small.exclusive() if mode == "open" else None
    child = start(INTERRUPTED, mode)
    try:
        assert line(child) == "ready"
        deadline = time.monotonic() + SECONDS
        while mode != "open" and watched.lag_bytes < 60_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.4)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=SECONDS)
    finally:
        child.kill()
    assert out.startswith("interrupted"), err
    if mode == "burst":
        assert int(out.split()[1]) == len(watched.receive_many()) > 50
    if mine is not None:
        mine.close()
    watched.close()
    small.publisher("t").publish(b"after", timeout=SECONDS)


HOLDER = """
import sys, toroni
exclusive = toroni.Bus("test", participant_name="holder").exclusive()
exclusive.publish(exclusive.topic("t"), b"first")
print("ready", flush=True)
sys.stdin.readline()
"""


def test_others_publish_after_a_killed_exclusive_publisher(bus: toroni.Bus) -> None:
    subscriber, publisher = bus.subscribe("t"), bus.publisher("t")
    child = start(HOLDER)
    try:
        assert line(child) == "ready"
        with pytest.raises(toroni.Exclusive) as refused:
            publisher.publish(b"too early")
        assert (refused.value.name, refused.value.pid) == ("holder", child.pid)
    finally:
        child.kill()
        child.communicate()
    publisher.publish(b"second")
    assert [(message.text, message.sequence) for message in subscriber.receive_many()] == [
        ("first", 0),
        ("second", 1),
    ]


def test_an_exclusive_publisher_belongs_to_its_process(bus: toroni.Bus) -> None:
    exclusive = bus.exclusive()
    topic = exclusive.topic("t")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for call in (
                lambda: exclusive.publish(topic, b""),
                lambda: exclusive.try_publish(topic, b""),
                lambda: exclusive.publish_batch(topic, [b""]),
                lambda: exclusive.burst(topic, [b""]),
                lambda: exclusive.topic("u"),
                bus.exclusive,
            ):
                try:
                    call()
                except toroni.Forked:
                    continue
                os._exit(2)
            exclusive.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    exclusive.publish(topic, b"still mine")
    with pytest.raises(toroni.Exclusive):
        toroni.Bus("test").publisher("t").publish(b"x")
