"""A thread that publishes to its own subscriber gets an error instead of waiting forever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import toroni


def receive_many(subscriber: toroni.Subscriber) -> object:
    return subscriber.receive_many(1)


@pytest.mark.parametrize(
    "receive",
    [toroni.Subscriber.receive, toroni.Subscriber.try_receive, receive_many, lambda subscriber: None],
    ids=["receive", "try_receive", "receive_many", "never"],
)
def test_a_thread_that_publishes_to_itself_gets_an_error(
    small: toroni.Bus, receive: Callable[[toroni.Subscriber], object]
) -> None:
    publisher, subscriber = small.publisher("t"), small.subscribe("t")
    publisher.publish(b"one")
    receive(subscriber)
    with pytest.raises(toroni.WouldWaitForItself):
        for _ in range(2000):
            publisher.publish(bytes(100))
    assert subscriber.try_receive() is not None
    publisher.publish(b"continues")
