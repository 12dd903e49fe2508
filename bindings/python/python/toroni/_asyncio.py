"""Receiving in coroutines: asyncio's event loop watches the descriptor of a subscriber."""

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
"""After this many messages in a row, other tasks run, even if more messages are available."""


class _State:
    """The state of a subscriber that coroutines use.

    The loop watches a duplicate of its descriptor. Any thread may close the subscriber; that must not close a
    descriptor that a loop still watches, because the kernel may reuse its number.
    """

    def __init__(self, subscriber: Subscriber) -> None:
        self.in_a_row = 0
        # Protects the waiter and the descriptor. It is reentrant because a signal handler may close the subscriber
        # while this thread holds the lock.
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
        """Waits until the descriptor is readable or the subscriber is closed."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self.lock:
            # A task of a loop that was closed never resumes.
            if self.waiter is not None and not self.waiter[0].is_closed():
                message = "another task already awaits this subscriber: share one task, or make a subscriber for each"
                raise RuntimeError(message)
            # From here on, a thread that closes the subscriber leaves the descriptor to this task.
            self.waiter = waiter = loop, future
            descriptor = self.descriptor
            if descriptor < 0:
                # Closed before this: the next attempt to receive raises Closed.
                self.waiter = None
                return
        try:
            loop.add_reader(descriptor, _finish, future)
            # A thread that closed the subscriber earlier did not see the waiter.
            if not subscriber.closed:
                await future
        finally:
            # Before another thread may close it.
            loop.remove_reader(descriptor)
            # Otherwise the loop of this task was closed, and another task waits now.
            if self.waiter is waiter:
                self.waiter = None
                self.in_a_row = 0
                if subscriber.closed:
                    self.close()


_states: weakref.WeakKeyDictionary[Subscriber, _State] = weakref.WeakKeyDictionary()


async def receive(subscriber: Subscriber) -> Message:
    """Returns the next message. If it is cancelled, no message is lost: nothing is awaited after try_receive."""
    state = _states.get(subscriber) or _first(subscriber)
    state.in_a_row += 1
    if state.in_a_row > _MOST_IN_A_ROW:
        await state.run_others()
    while (message := subscriber.try_receive()) is None:
        await state.readable(subscriber)
    return message


async def receive_many(subscriber: Subscriber, limit: int) -> list[Message]:
    """Returns the available messages, at most limit. Waits for the first one, unless limit is 0."""
    state = _states.get(subscriber) or _first(subscriber)
    await state.run_others()
    while not (messages := subscriber.receive_many(limit, 0)) and limit > 0:
        await state.readable(subscriber)
    return messages


async def next_message(subscriber: Subscriber) -> Message:
    """Does what receive does. Ends an async for loop when the subscriber is closed."""
    try:
        return await receive(subscriber)
    except Closed:
        raise StopAsyncIteration from None


def closing(subscriber: Subscriber) -> None:
    """Wakes the task that awaits a subscriber that was closed. Subscriber.close calls this in any thread."""
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
        # The loop was closed, so no task waits any longer.
        state.close()


def _renew_locks() -> None:
    """Makes new locks in the child of a fork: a thread of the parent may have held one, and never releases it here."""
    for state in list(_states.values()):
        state.lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)


def _first(subscriber: Subscriber) -> _State:
    return _states.setdefault(subscriber, _State(subscriber))


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
