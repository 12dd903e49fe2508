"""What an inlet publishes: messages that come from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from toroni._toroni import InletTopic, _Bytes


class Origin(NamedTuple):
    """Names a message that was first published elsewhere: on another host, on another bus or at another time. The name
    is the same wherever the message arrives. The messages of one stream and series have growing numbers, which need not
    be consecutive."""

    source: int
    """The host or program that published it first; 32 bits."""
    series: int
    """The series of numbers; 32 bits. A source begins a new one when it counts from 0 again."""
    stream: int
    """The stream of the source; 16 bits."""
    number: int
    """Number of the message in its series; 48 bits."""


class Arrived(NamedTuple):
    """How far a stream has arrived. Made by Inlet.claim."""

    next: int
    """The lowest number that has not arrived, neither as a message nor as a loss."""
    taken_over: bool
    """Whether another inlet brought the stream until now."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message for Inlet.burst."""

    topic: InletTopic
    payload: _Bytes | list[_Bytes] | tuple[_Bytes, ...]
    """Its bytes, or a list or tuple of parts that are written one after the other."""
    origin: Origin | tuple[int, int, int, int] | None = None
    """Where it was first published. Without it, the message is never a duplicate."""
    open_from: int | None = None
    """If the messages of the stream arrive in any order: the lowest number that is still missing. No message with this
    or a higher number is then dropped. None means that they arrive in the order of their numbers."""
    number: int | None = None
    """Its place in an order over several buses; 64 bits."""
    timestamp_ns: int | None = None
    """When it was first published, in nanoseconds since 1970 (UTC). If it is None, the message is stamped if the bus
    was opened with timestamps."""
    to_descendants: bool = False
    """Whether it is also published to everything below its topic."""
