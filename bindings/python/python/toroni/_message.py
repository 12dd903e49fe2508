"""What messages have in common that are written in Python."""

from __future__ import annotations


class HasPayload:
    """A message with its bytes."""

    __slots__ = ()
    payload: bytes

    @property
    def text(self) -> str:
        """The payload as text. Bytes that are not UTF-8 become U+FFFD."""
        return self.payload.decode("utf-8", "replace")

    def __len__(self) -> int:
        return len(self.payload)

    def __bool__(self) -> bool:
        return True

    def __bytes__(self) -> bytes:
        return self.payload
