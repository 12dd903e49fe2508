"""The values of retained topics, read without a subscriber."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toroni._message import HasPayload

if TYPE_CHECKING:
    from toroni._inlet import Origin


@dataclass(frozen=True, slots=True)
class RetainedMessage(HasPayload):
    """The value of a topic: a copy of its newest message. Made by Bus.retained and Bus.retained_matching. It has the
    attributes of a received message, without next_position."""

    topic: str
    payload: bytes
    position: int
    """The position of the message in the stream of the bus, in bytes."""
    sequence: int
    """The number of the message among all messages of the bus, from 0."""
    to_descendants: bool
    """Whether it was published to its topic and everything below it."""
    timestamp_ns: int | None
    """When it was published, in nanoseconds since 1970 (UTC). None if its publisher does not use timestamps."""
    origin: Origin | None
    """Where it was first published. None if it did not come from elsewhere."""
    number: int | None
    """Its place in an order over several buses. None if it has none."""
