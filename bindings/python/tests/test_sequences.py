"""Publishers that learn the sequences of their messages, and subscribers that hold messages."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SECONDS
from test_threads import in_threads

import toroni


def fill(publisher: toroni.Publisher, subscriber: toroni.Subscriber) -> int:
    """Publishes until the ring is full, while the subscriber reads each message at once."""
    published = 0
    while publisher.try_publish(bytes(1016)) is not None:
        published += 1
        assert subscriber.try_receive() is not None
    return published


def test_publishers_learn_the_sequences_of_their_messages(bus: toroni.Bus) -> None:
    subscriber, publisher = bus.subscribe("t"), bus.publisher("t")
    large = bytes(100_000)
    assert publisher.publish(b"0") == 0
    assert publisher.publish(memoryview(b"1"), timeout=SECONDS) == 1
    assert publisher.publish(large, timeout=None) == 2
    bus.publisher("other").publish(b"")
    assert publisher.try_publish(b"4") == 4
    assert publisher.try_publish(large) == 5
    with bus.exclusive() as exclusive:
        topic = exclusive.topic("t")
        assert exclusive.publish(topic, b"6") == 6
        assert exclusive.publish(topic, large, SECONDS) == 7
        assert exclusive.try_publish(topic, b"8") == 8
        assert exclusive.try_publish(topic, large) == 9
        assert exclusive.publish_batch(topic, [b"10", b"11"]) == range(10, 12)
        composition = exclusive.compose(topic, 2)
        with composition as view:
            view[:] = b"12"
        assert composition.sequence == 12
        with pytest.raises(toroni.Exclusive):
            publisher.publish(b"")
        with pytest.raises(toroni.Exclusive):
            publisher.try_publish(b"")
    assert publisher.publish_batch([b"13", b"14"], timeout=SECONDS) == range(13, 15)
    assert not publisher.publish_batch([])
    composition = publisher.compose(2)
    assert composition.sequence is None
    with composition as view:
        view[:] = b"15"
    assert composition.sequence == 15
    with pytest.raises(ZeroDivisionError), composition:
        1 / 0  # noqa: B018
    assert composition.sequence is None, "nothing was published"
    for sequence in (*range(3), *range(4, 16)):
        message = subscriber.receive()
        assert message.sequence == sequence and (len(message) > 2 or message.text == str(sequence))
    publisher.close()
    calls: list[Callable[[], object]] = [
        lambda: publisher.publish(b""),
        lambda: publisher.try_publish(b""),
        lambda: exclusive.publish(topic, b""),
        lambda: exclusive.try_publish(topic, b""),
    ]
    for call in calls:
        with pytest.raises(toroni.Closed):
            call()


def test_a_call_for_a_sequence_waits_with_a_limit(small: toroni.Bus) -> None:
    subscriber, publisher = small.subscribe("t"), small.publisher("t")

    def publish() -> None:
        next_one = 0
        while (sequence := publisher.try_publish(bytes(1016))) is not None:
            assert sequence == next_one
            next_one += 1
        assert publisher.try_publish(bytes(20_000)) is None
        for payload in (bytes(1016), bytes(20_000)):
            for timeout in (0, 0.3):
                with pytest.raises(toroni.Timeout):
                    publisher.publish(payload, timeout)
        with small.exclusive() as exclusive:
            topic = exclusive.topic("t")
            assert exclusive.try_publish(topic, bytes(1016)) is None
            for payload in (bytes(1016), bytes(20_000)):
                with pytest.raises(toroni.Timeout):
                    exclusive.publish(topic, payload, timeout=0.01)
        with pytest.raises(toroni.Invalid):
            publisher.publish(b"", timeout=-1)
        with pytest.raises(toroni.TooLong):
            publisher.publish(bytes(publisher.largest_message + 1))

    in_threads(publish)
    seen = len(subscriber.receive_many(timeout=0))
    assert publisher.publish(b"") == seen == small.stats().sequence - 1


def test_a_signal_ends_a_call_for_a_sequence(small: toroni.Bus) -> None:
    subscriber, publisher = small.subscribe("t"), small.publisher("t")
    main = threading.get_ident()
    # Another thread has to read it: this one would wait for itself.
    reader = threading.Thread(target=lambda: subscriber.receive(timeout=0))
    reader.start()
    reader.join()
    while publisher.try_publish(bytes(1016)) is not None:
        pass

    def interrupt() -> None:
        time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    before = small.stats().sequence
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        publisher.publish(bytes(1016))
    thread.join()
    assert small.stats().sequence == before


def test_messages_are_held_until_they_are_released(small: toroni.Bus) -> None:
    subscriber, publisher = small.subscribe("t"), small.publisher("t")
    for _ in range(200):
        first = publisher.publish(bytes(1016))
        assert subscriber.receive().sequence == first
    assert subscriber.held is None
    subscriber.hold(first)
    assert subscriber.held == first
    assert 40 < fill(publisher, subscriber) < 64
    again = small.subscribe("t", start=("sequence", first), gating=False)
    assert again.receive().sequence == first
    with pytest.raises(toroni.WouldWaitForItself):
        publisher.publish(bytes(1016))
    # Each message takes one of 64 blocks.
    subscriber.hold(first + 8)
    assert fill(publisher, subscriber) == 8
    with pytest.raises(toroni.Overwritten) as gone:
        subscriber.hold(first)
    assert first < gone.value.oldest <= first + 8
    assert subscriber.held == first + 8
    subscriber.release_hold()
    subscriber.release_hold()
    assert subscriber.held is None
    for _ in range(200):
        assert publisher.try_publish(bytes(1016))
        subscriber.receive()
    with pytest.raises(toroni.Overwritten) as too_late:
        small.subscribe("t", start=("sequence", first))
    assert too_late.value.oldest > first
    with pytest.raises(toroni.Overwritten):
        small.subscribe("t", start=0)


def test_a_raised_hold_wakes_a_publisher(small: toroni.Bus) -> None:
    subscriber, publisher = small.subscribe("t"), small.publisher("t")
    subscriber.hold(0)
    published = fill(publisher, subscriber)
    sequences = []

    def publish() -> None:
        sequences.append(publisher.publish(bytes(1016), timeout=SECONDS))

    def release() -> None:
        while all(one.waits == 0 for one in small.stats().publishers or []):
            time.sleep(0.001)
        subscriber.hold(1)

    in_threads(publish, release)
    assert sequences == [published]


def test_a_hold_ends_when_the_policy_ends_it(hasty: toroni.Bus) -> None:
    subscriber, publisher = hasty.subscribe("t"), hasty.publisher("t")
    subscriber.hold(0)
    for _ in range(200):
        publisher.publish(bytes(1016))
        subscriber.receive()
    assert subscriber.held is None
    with pytest.raises(toroni.Overwritten):
        subscriber.hold(0)


def test_what_cannot_be_held_is_refused(bus: toroni.Bus) -> None:
    subscriber = bus.subscribe("t")
    with pytest.raises(toroni.Invalid, match="gate"):
        bus.subscribe("t", gating=False).hold(0)
    for wrong in (-1, 2**64):
        with pytest.raises((toroni.Invalid, OverflowError), match="sequence"):
            subscriber.hold(wrong)
    with pytest.raises(TypeError, match="sequence"):
        subscriber.hold("0")  # type: ignore[arg-type]
    subscriber.hold(0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with pytest.raises(toroni.Forked):
                subscriber.hold(5)
            with pytest.raises(toroni.Forked):
                subscriber.release_hold()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert subscriber.held == 0
    subscriber.close()
    for call in (lambda: subscriber.hold(5), subscriber.release_hold, lambda: subscriber.held):
        with pytest.raises(toroni.Closed):
            call()


def test_an_inlet_can_wait_less_than_the_bus_says(small: toroni.Bus, directory: Path) -> None:
    subscriber = small.subscribe("t")
    with small.inlet(policy="overwrite") as inlet:
        topic = inlet.topic("t")
        for _ in range(100):
            inlet.publish(topic, bytes(1016))
        with pytest.raises(toroni.Lapped):
            subscriber.receive()
        assert inlet.claim(7, 1, 0, timeout=SECONDS).next == 0
        assert inlet.claim(7, 1, 0, None).next == 0
        with pytest.raises(toroni.Invalid, match="timeout"):
            inlet.claim(7, 1, 0, timeout=-1)
        inlet.advance((7, 1, 0, 1))
        with pytest.raises(toroni.Taken):
            small.inlet().claim(7, 1, 0, SECONDS)
    with toroni.Bus("short") as short, pytest.raises(toroni.Invalid, match="policy"):
        short.inlet(policy="wait:forever")
