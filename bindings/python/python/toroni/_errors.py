"""The exceptions of Toroni. Each message says what happened and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toroni._inlet import Origin


class Error(Exception):
    """The base class of all exceptions of Toroni."""

    published: int | None = None
    """After a burst: the number of its messages, from the front, that are published, or that an inlet dropped as
    duplicates. Otherwise None."""


class Invalid(Error, ValueError):
    """A name, topic, pattern, position, setting, origin or loss is not valid."""


class TooLong(Invalid):
    """A message, or batch, is larger than the bus can carry; or a buffer is too small for a message."""

    def __init__(self, message: str, length: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.length = length
        """Size of the message in bytes, or of the whole batch as it would be stored in the ring."""
        self.limit = limit
        """The most that fits, in bytes."""


class ValueTooLong(TooLong):
    """A message is longer than the value of a topic may be. Only a publisher that was made with retained=True raises
    this. Nothing was published. length and limit count the record, which has 8 to 40 bytes more than the message."""


class NotRetained(Invalid):
    """The publisher or topic was made without retained=True, so it cannot clear the value."""


class NotFound(Error, FileNotFoundError):
    """There is no such bus."""


class AlreadyExists(Error, FileExistsError):
    """The bus exists already."""


class PermissionDenied(Error, PermissionError):
    """The kernel refused access to a file of the bus."""


class ForeignOwner(Error):
    """The bus is not owned by the user that require_owner names, or others could replace its files."""


class SettingMismatch(Error):
    """The bus exists with another value of a setting that require names."""


class Timeout(Error, TimeoutError):
    """A message could not be published in time, and no part of it is visible; or another publisher was publishing until
    the time of Bus.exclusive was over."""


class WouldWaitForItself(Error):
    """The ring is full because of a subscriber that only this thread reads: receive first."""


class Exclusive(Error):
    """The bus has an exclusive publisher: no other one can publish until it is closed or its process ends."""

    def __init__(self, message: str, name: str = "", pid: int = 0) -> None:
        super().__init__(message)
        self.name = name
        """What the exclusive publisher calls itself."""
        self.pid = pid
        """Id of its process, in its own PID namespace."""


class Taken(Error):
    """Another inlet brings the messages of this stream, until it is closed or its process ends."""

    def __init__(self, message: str, name: str = "", pid: int = 0, source: int = 0, series: int = 0) -> None:
        super().__init__(message)
        self.name = name
        """What the participant calls itself."""
        self.pid = pid
        """Id of its process, in its own PID namespace."""
        self.source = source
        """The source, as in Origin.source."""
        self.series = series
        """The series, as in Origin.series."""


class TooManyArrivals(Error):
    """The bus cannot keep track of more streams from elsewhere: create it with a larger max_arrivals."""

    def __init__(self, message: str, limit: int = 0) -> None:
        super().__init__(message)
        self.limit = limit
        """The number of streams of which it can keep track."""


class NoValues(Error):
    """The bus keeps no values of retained topics: create it with retained_topics."""


class TooManyRetained(Error):
    """The bus can retain no other topic: the message says which limit was reached."""

    def __init__(self, message: str, limit: int | None = None) -> None:
        super().__init__(message)
        self.limit = limit
        """The number of topics that can be retained; None if the topic table is full."""


class RetainedFull(Error):
    """The bytes of the bus for values are in use, so there is no room for a message. Only a publisher that was made with
    retained=True raises this. Nothing was published."""

    def __init__(self, message: str, limit: int = 0) -> None:
        super().__init__(message)
        self.limit = limit
        """How many bytes the bus has for values."""


class Overwritten(Error):
    """The message at which a subscriber was to start, or which it was to hold, is no longer in the ring."""

    def __init__(self, message: str, oldest: int = 0) -> None:
        super().__init__(message)
        self.oldest = oldest
        """The sequence of the oldest message that is; if a position was given, its position."""


class Lapped(Error):
    """Messages were overwritten before this subscriber read them. The next call continues after them."""

    def __init__(self, message: str, lost: int = 0, lost_bytes: int = 0) -> None:
        super().__init__(message)
        self.lost = lost
        """Messages of the whole bus that were missed, whatever their topics."""
        self.lost_bytes = lost_bytes
        """Bytes of the stream that were missed."""


class Lost(Error):
    """Messages from elsewhere were lost on their way to the bus. The next call continues after them.

    It is raised once, at its place among the messages, if a pattern of the subscriber and one of scope could match the
    same topic."""

    def __init__(
        self,
        message: str,
        start: Origin | None = None,
        until: int = 0,
        messages: int = 0,
        bound: str = "exact",
        reason: str = "",
        scope: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.start = start
        """The stream, and in its number the first one that may be lost. None only if a program made this exception."""
        self.until = until
        """The number after the last one that may be lost."""
        self.messages = messages
        """How many messages were lost. It may be less than the difference of the numbers, which also count messages of
        other streams."""
        self.bound = bound
        """How exact that is: "exact", "at_least" or "at_most"."""
        self.reason = reason
        """Why they were lost:

        - "gone": the sender no longer had them
        - "budget": they could not be repaired in the time that the receiver waits for repairs
        - "memory": the receiver had no memory left to hold what came after them
        - "burst": more of them were missing at once than the receiver keeps track of
        - "jump": the sender was suddenly far ahead
        - "restart": the source restarted with a new series
        - "silent": the source fell silent, so it is not known what it published last
        - "topic": the name of their topic did not arrive
        - "too_long": they were too long for the network or for this bus
        - "overtaken": at the source, publishers overtook the program that sends the messages on
        - "diverged": the members of a replicated service disagreed about them

        Later releases may add others."""
        self.scope = scope
        """Patterns of the topics that they may have had."""


class ValueMissing(Error):
    """A topic has a value, but the bus had no room for it. A subscriber continues with the next call."""

    def __init__(self, message: str, topic: str = "", sequence: int = 0, length: int = 0) -> None:
        super().__init__(message)
        self.topic = topic
        """The topic."""
        self.sequence = sequence
        """The sequence of its newest message."""
        self.length = length
        """Bytes of that message, and of what it carries besides."""


class Interrupted(Error):
    """Subscriber.interrupt has ended the wait. Nothing is lost."""


class Unlinked(Error):
    """The bus was removed: open it again."""


class Forked(Error):
    """The handle was made before a fork and belongs to the parent: open the bus again in the child."""


class Corrupt(Error):
    """Shared memory holds something that no correct process writes."""


class Closed(Error, ValueError):
    """The handle was closed."""


class System(Error, OSError):
    """The operating system refused; errno says why."""


class NoSpace(System):
    """Too little space or too few inodes for the bus, or its files are longer than the process may write."""
