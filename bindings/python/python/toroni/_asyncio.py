"""Receiving in coroutines: a subscriber's descriptor in asyncio's event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from typing import TYPE_CHECKING

from toroni._errors import Closed

if TYPE_CHECKING:
    from toroni._toroni import Message, Subscriber

_MOST_IN_A_ROW = 256
"""A subscriber with much to read is always ready: so often it goes first, then others have a turn."""


class _State:
    """What is kept of a subscriber that coroutines use.

    The loop watches a duplicate of its descriptor: whoever closes the subscriber, in whatever thread, must not
    close a number that a loop still has on its list, and that the kernel may give to something else.
    """

    def __init__(self, subscriber: Subscriber) -> None:
        self.in_a_row = 0
        # Of the waiter and the descriptor. The handler of a signal may close in the midst of whatever this
        # thread does here, so the thread may take the lock again.
        self.lock = threading.RLock()
        self.waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self.descriptor = -1
        self.descriptor = subscriber._duplicate()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        with self.lock:
            descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    async def run_others(self) -> None:
        await asyncio.sleep(0)
        self.in_a_row = 0

    async def readable(self, subscriber: Subscriber) -> None:
        """Waits until the descriptor is readable, or the subscriber is closed."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self.lock:
            # A loop that was closed resumes nobody.
            if self.waiter is not None and not self.waiter[0].is_closed():
                message = "another task already awaits this subscriber: share one task, or make a subscriber for each"
                raise RuntimeError(message)
            # From here on, whoever closes leaves the descriptor to this task.
            self.waiter = waiter = loop, future
            descriptor = self.descriptor
            if descriptor < 0:
                # Closed before: the next look for a message says so.
                self.waiter = None
                return
        try:
            loop.add_reader(descriptor, _finish, future)
            # Whoever closed it before this did not see the waiter.
            if not subscriber.closed:
                await future
        finally:
            # Before somebody else may close it.
            loop.remove_reader(descriptor)
            # Else the loop was closed, this is what becomes of its task, and another task waits by now.
            if self.waiter is waiter:
                self.waiter = None
                self.in_a_row = 0
                if subscriber.closed:
                    self.close()


_states: weakref.WeakKeyDictionary[Subscriber, _State] = weakref.WeakKeyDictionary()


async def receive(subscriber: Subscriber) -> Message:
    """The next message. Cancelled, it takes none: nothing is awaited behind try_receive."""
    state = _states.get(subscriber) or _first(subscriber)
    state.in_a_row += 1
    if state.in_a_row > _MOST_IN_A_ROW:
        await state.run_others()
    while (message := subscriber.try_receive()) is None:
        await state.readable(subscriber)
    return message


async def receive_many(subscriber: Subscriber, limit: int) -> list[Message]:
    """The messages that are there, at most limit; at least one, unless that is 0."""
    state = _states.get(subscriber) or _first(subscriber)
    await state.run_others()
    while not (messages := subscriber.receive_many(limit, 0)) and limit > 0:
        await state.readable(subscriber)
    return messages


async def next_message(subscriber: Subscriber) -> Message:
    """As receive; the loop of an async for ends when the subscriber is closed."""
    try:
        return await receive(subscriber)
    except Closed:
        raise StopAsyncIteration from None


def closing(subscriber: Subscriber) -> None:
    """Wakes whoever awaits a subscriber that was just closed; called by Subscriber.close in any thread."""
    state = _states.pop(subscriber, None)
    if state is None:
        return
    with state.lock:
        waiter = state.waiter
        if waiter is None:
            state.close()
            return
    loop, future = waiter
    try:
        loop.call_soon_threadsafe(_finish, future)
    except RuntimeError:
        # The loop was closed: nobody waits any more.
        state.close()


def _renew_locks() -> None:
    """In the child of a fork, the thread that had one is not there, and does not let it go."""
    for state in list(_states.values()):
        state.lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)


def _first(subscriber: Subscriber) -> _State:
    return _states.setdefault(subscriber, _State(subscriber))


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
