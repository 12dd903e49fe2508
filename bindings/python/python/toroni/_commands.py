"""Commands for the sequencer, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from toroni._toroni import Received


class Sent(NamedTuple):
    """Names a command that was sent. Only its event says that it is part of the order. Made by Commands.send."""

    series: int
    """The series of the bus of commands, as in the origin of the event."""
    number: int
    """Number of the command in the series, as in the origin of the event."""

    def is_echo(self, message: Received) -> bool:
        """Returns whether a message of the feed is the event of this command."""
        origin = message.origin
        return origin is not None and (origin.series, origin.number) == (self.series, self.number)


class Echo(NamedTuple):
    """What became of a command. Made by Pending.wait."""

    outcome: Literal["event", "lost", "missed"]
    """- "event": the command is an event
    - "lost": the command never left this host, and the order says so: it was overwritten while no node ran
    - "missed": events did not reach this program, and that of the command may be among them; waiting again may still
      find it

    Later releases may add others."""
    number: int | None
    """The number of the event. None for other outcomes."""
