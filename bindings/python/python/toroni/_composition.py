"""Messages that the body of a with statement writes."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from toroni._errors import TooLong

if TYPE_CHECKING:
    from toroni._toroni import ExclusivePublisher, ExclusiveTopic, Publisher

_LARGE = 64 << 10
_KEPT = 2
"""Two, because in a loop the last memoryview lives until the next one is assigned to its name."""

_memory: weakref.WeakKeyDictionary[Publisher | ExclusiveTopic, deque[bytearray]] = weakref.WeakKeyDictionary()
"""The memory of the last large compositions of each publisher, and of each topic of an exclusive one. It is reused, because new memory is slow."""


def _memory_for(target: Publisher | ExclusiveTopic, length: int) -> bytearray:
    if length < _LARGE:
        return bytearray(length)
    kept = _memory.setdefault(target, deque(maxlen=_KEPT))
    for _ in range(len(kept)):
        try:
            memory = kept.popleft()
        except IndexError:
            # Another thread took it.
            break
        if len(memory) == length and _is_unused(memory):
            return memory
        kept.append(memory)
    return bytearray(length)


def _is_unused(memory: bytearray) -> bool:
    """Returns whether no view of the memory exists any longer: only then it can be resized."""
    try:
        memory.append(0)
    except BufferError:
        return False
    memory.pop()
    return True


class Composition:
    """A message of a given length that the body of a with statement writes. Made by Publisher.compose and
    ExclusivePublisher.compose.

    >>> with publisher.compose(1920 * 1080) as frame:  # doctest: +SKIP
    ...     camera.read_into(frame)

    The with statement returns a writable memoryview of that many bytes, whose contents are undefined. At the end
    of the body the message is published with one copy. If the body raises, nothing is published. The memory
    belongs to this process, so reading or writing it after the body changes no message: Python code never runs
    under the writer lock, for which all publishers of the machine would wait.

    At its end this calls publish with timeout, and raises what that raises. Then sequence is the sequence of the message.
    """

    def __init__(
        self,
        publish: Callable[[bytearray, float | None], int],
        target: Publisher | ExclusiveTopic,
        length: int,
        timeout: float | None = None,
    ) -> None:
        limit = target.largest_message
        if length > limit:
            # publish would raise the same, but only after the body, and this much memory might not exist.
            message = f"{length} bytes are too long, the bus carries at most {limit}: split the message, or create the bus with a larger capacity"
            raise TooLong(message, length, limit)
        self._publish = publish
        self._target = target
        self._length = length
        self._timeout = timeout
        self._memory: bytearray | None = None
        self.sequence: int | None = None
        """The sequence of the message, once it is published. The first message of a bus has the sequence 0."""

    def __enter__(self) -> memoryview:
        if self._memory is not None:
            raise RuntimeError("the composition is already in use: make one for each message")
        self.sequence = None
        self._memory = _memory_for(self._target, self._length)
        # The view is not released at the end, because a numpy array made from it may still use the memory.
        return memoryview(self._memory)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        memory, self._memory = self._memory, None
        if memory is None:
            raise RuntimeError("the composition is not in use")
        try:
            if kind is None:
                self.sequence = self._publish(memory, self._timeout)
        finally:
            if self._length >= _LARGE:
                _memory.setdefault(self._target, deque(maxlen=_KEPT)).append(memory)


def exclusive(
    publisher: ExclusivePublisher, topic: ExclusiveTopic, length: int, timeout: float | None
) -> Composition:
    """Returns a composition that an exclusive publisher publishes."""

    def publish(memory: bytearray, timeout: float | None) -> int:
        return publisher.publish(topic, memory, timeout)

    return Composition(publish, topic, length, timeout)
