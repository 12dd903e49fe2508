"""A message that is written where it will be copied from, once, when it is complete."""

from __future__ import annotations

import weakref
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

from toroni._errors import TooLong

if TYPE_CHECKING:
    from toroni._toroni import Publisher

_LARGE = 64 << 10
_KEPT = 2
"""In a loop, the last memoryview lives until the next one has taken its name."""

_memory: weakref.WeakKeyDictionary[Publisher, deque[bytearray]] = weakref.WeakKeyDictionary()
"""The memory of each publisher's last large compositions, for the next ones: fresh memory is slow."""


def _memory_for(publisher: Publisher, length: int) -> bytearray:
    if length < _LARGE:
        return bytearray(length)
    kept = _memory.setdefault(publisher, deque(maxlen=_KEPT))
    for _ in range(len(kept)):
        try:
            memory = kept.popleft()
        except IndexError:
            # Another thread took it meanwhile.
            break
        if len(memory) == length and _is_unused(memory):
            return memory
        kept.append(memory)
    return bytearray(length)


def _is_unused(memory: bytearray) -> bool:
    """Whether nothing looks at it any more: only then it lets itself be resized."""
    try:
        memory.append(0)
    except BufferError:
        return False
    memory.pop()
    return True


class Composition:
    """A message of a length that is known, written by the body of a with statement.

    >>> with publisher.compose(1920 * 1080) as frame:  # doctest: +SKIP
    ...     camera.read_into(frame)

    What it returns is a writable memoryview of that many bytes, which hold anything until they are written. At
    the end of the body the message is published, with one copy; if the body raises, nothing is. Python code
    never runs under the writer lock, for which all publishers of the machine would wait. So the memory is this
    process's own: whoever still looks at it behind the body, or writes to it, changes no message.

    timeout is that of Publisher.publish, which this ends with, and raises what that raises.
    """

    def __init__(self, publisher: Publisher, length: int, timeout: float | None = None) -> None:
        limit = publisher.largest_message
        if length > limit:
            # As publish would, but before the work, and without the memory.
            message = f"{length} bytes are too long, the bus carries at most {limit}: split the message, or create the bus with a larger capacity"
            raise TooLong(message, length, limit)
        self._publisher = publisher
        self._length = length
        self._timeout = timeout
        self._memory: bytearray | None = None

    def __enter__(self) -> memoryview:
        if self._memory is not None:
            raise RuntimeError("the composition is in use already: make one for each message")
        self._memory = _memory_for(self._publisher, self._length)
        # Never released by force: an array of numpy counts on it as long as that lives.
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
                self._publisher.publish(memory, self._timeout)
        finally:
            if self._length >= _LARGE:
                _memory.setdefault(self._publisher, deque(maxlen=_KEPT)).append(memory)
