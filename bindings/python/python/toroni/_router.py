"""One subscriber with many handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from toroni._errors import Closed, Lapped
from toroni._toroni import matches

if TYPE_CHECKING:
    from toroni._toroni import Message, Subscriber

Handler = Callable[["Message"], object]
HandlerOf = TypeVar("HandlerOf", bound=Handler)

_MOST_TOPICS = 4096


class Router:
    """Receives once and calls each handler whose pattern matches, in the order in which they were added.

    >>> router = bus.router()  # doctest: +SKIP
    >>> @router.on("plant/*/temperature")  # doctest: +SKIP
    ... def show(message): print(message.topic, message.text)
    >>> router.run()  # doctest: +SKIP

    It belongs to one thread, or task, which runs the handlers. What a handler raises ends the call that it was
    called by; the next call goes on behind that message. Made by Bus.router.
    """

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        """The subscriber behind it."""
        self._handlers: list[tuple[str, Handler]] = []
        self._wanted: dict[tuple[str, bool], list[Handler]] = {}
        self._on_lapped: Callable[[int, int], object] | None = None

    def on(self, pattern: str) -> Callable[[HandlerOf], HandlerOf]:
        """A decorator that adds a handler for a pattern; it is called with each message. Invalid if the pattern
        is malformed."""
        self.subscriber.add_pattern(pattern)

        def add(handler: HandlerOf) -> HandlerOf:
            self._handlers.append((pattern, handler))
            self._wanted.clear()
            return handler

        return add

    def on_lapped(self, handler: Callable[[int, int], object]) -> None:
        """Sets what is called with the numbers of messages and bytes that were lost, in place of the error
        Lapped."""
        self._on_lapped = handler

    def poll(self) -> int:
        """Handles all messages that are there, and returns how many."""
        count = 0
        while self._step(self.subscriber.try_receive):
            count += 1
        return count

    def run_once(self, timeout: float | None = None) -> bool:
        """Waits for the next message, no longer than timeout seconds, and handles it. Whether there was one."""
        return self._step(lambda: self.subscriber.receive(timeout))

    def run(self) -> None:
        """Handles messages until the router is closed, or interrupted, which raises Interrupted."""
        while True:
            try:
                self._step(self.subscriber.receive)
            except Closed:
                if self.subscriber.closed:
                    return
                raise

    async def run_async(self) -> None:
        """As run, for coroutines."""
        while True:
            try:
                message = await self.subscriber.receive_async()
            except Closed:
                if self.subscriber.closed:
                    return
                raise
            except Lapped as lapped:
                self._lapped(lapped)
            else:
                self._handle(message)

    def fileno(self) -> int:
        """A descriptor for event loops: call poll, then wait for it to be readable, and so on."""
        return self.subscriber.fileno()

    def interrupt(self) -> None:
        """As Subscriber.interrupt: ends run, too, when it next waits, but not run_async. The next call goes on."""
        self.subscriber.interrupt()

    def close(self) -> None:
        """Unsubscribes; run ends."""
        self.subscriber.close()

    def __enter__(self) -> Router:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _step(self, receive: Callable[[], Message | None]) -> bool:
        try:
            message = receive()
        except Lapped as lapped:
            self._lapped(lapped)
            return True
        if message is None:
            return False
        self._handle(message)
        return True

    def _lapped(self, lapped: Lapped) -> None:
        if self._on_lapped is None:
            raise lapped
        self._on_lapped(lapped.lost, lapped.lost_bytes)

    def _handle(self, message: Message) -> None:
        key = (message.topic, message.to_descendants)
        handlers = self._wanted.get(key)
        if handlers is None:
            if len(self._wanted) >= _MOST_TOPICS:
                self._wanted.clear()
            handlers = [one for pattern, one in self._handlers if matches(pattern, *key)]
            self._wanted[key] = handlers
        for handler in handlers:
            handler(message)
