"""One subscriber with many handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from toroni._errors import Closed, Lapped, Lost
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

    It belongs to one thread or task, which runs the handlers. If a handler raises, the call that ran it raises the
    same exception, and the next call continues after that message. Made by Bus.router.
    """

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        """The subscriber that receives the messages."""
        self._handlers: list[tuple[str, Handler]] = []
        self._wanted: dict[tuple[str, bool], list[Handler]] = {}
        self._on_lapped: Callable[[int, int], object] | None = None
        self._on_lost: Callable[[Lost], object] | None = None

    def on(self, pattern: str) -> Callable[[HandlerOf], HandlerOf]:
        """Returns a decorator that adds a handler for a pattern. The router calls it with each message that matches.
        Raises Invalid if the pattern is malformed."""
        self.subscriber.add_pattern(pattern)

        def add(handler: HandlerOf) -> HandlerOf:
            self._handlers.append((pattern, handler))
            self._wanted.clear()
            return handler

        return add

    def on_lapped(self, handler: Callable[[int, int], object]) -> None:
        """Sets a handler that is called with the numbers of messages and bytes that were lost, instead of raising
        Lapped."""
        self._on_lapped = handler

    def on_lost(self, handler: Callable[[Lost], object]) -> None:
        """Sets a handler that is called with each loss of messages from elsewhere, instead of raising it."""
        self._on_lost = handler

    def poll(self) -> int:
        """Handles all messages that are available, and returns their number; losses that were handled count, too."""
        count = 0
        while self._step(self.subscriber.try_receive):
            count += 1
        return count

    def run_once(self, timeout: float | None = None) -> bool:
        """Waits for the next message and handles it. Returns False if none arrives within timeout seconds."""
        return self._step(lambda: self.subscriber.receive(timeout))

    def run(self) -> None:
        """Handles messages until the router is closed. Raises Interrupted if it is interrupted."""
        while True:
            try:
                self._step(self.subscriber.receive)
            except Closed:
                if self.subscriber.closed:
                    return
                raise

    async def run_async(self) -> None:
        """Does what run does, for coroutines."""
        while True:
            try:
                message = await self.subscriber.receive_async()
            except Closed:
                if self.subscriber.closed:
                    return
                raise
            except (Lapped, Lost) as loss:
                self._handle_loss(loss)
            else:
                self._handle(message)

    def fileno(self) -> int:
        """Returns a descriptor for event loops. Call poll, then wait until the descriptor is readable, and repeat."""
        return self.subscriber.fileno()

    def interrupt(self) -> None:
        """Does what Subscriber.interrupt does. It ends run when that next waits, but not run_async. Call run again to
        continue."""
        self.subscriber.interrupt()

    def close(self) -> None:
        """Unsubscribes, and ends run."""
        self.subscriber.close()

    def __enter__(self) -> Router:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _step(self, receive: Callable[[], Message | None]) -> bool:
        try:
            message = receive()
        except (Lapped, Lost) as loss:
            self._handle_loss(loss)
            return True
        if message is None:
            return False
        self._handle(message)
        return True

    def _handle_loss(self, loss: Lapped | Lost) -> None:
        if isinstance(loss, Lapped) and self._on_lapped is not None:
            self._on_lapped(loss.lost, loss.lost_bytes)
        elif isinstance(loss, Lost) and self._on_lost is not None:
            self._on_lost(loss)
        else:
            raise loss

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
