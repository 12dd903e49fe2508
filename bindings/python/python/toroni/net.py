"""Messages between hosts, without a bus.

>>> import toroni.net
>>> with toroni.net.Direct.open_file("plant.toml") as direct:  # doctest: +SKIP
...     direct.send("plant/boiler/temperature", b"351.2")
...     print(direct.receive(timeout=1.0))

Use it where one program of a host takes part. Where several do, a bus and the program toroni node cost less. The
configuration is that of a node: one [[send]], any number of [[receive]]. docs/node-configuration.md lists its keys. Give
the program a name of its own in [node], different from that of the host's node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, final

from toroni._toroni import Endpoint

if TYPE_CHECKING:
    import os
    from types import TracebackType

    from toroni._toroni import _Bytes

__all__ = ["Direct", "Flow", "Lost", "Message"]


class Flow(NamedTuple):
    """Who has sent a message."""

    source: int
    """The node or program; 32 bits."""
    session: int
    """Its life: later ones are greater."""
    series: int
    """What its numbers count."""
    stream: int
    """The stream of the source; 16 bits."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message from another host."""

    topic: str
    payload: bytes
    number: int
    """Its place in the series."""
    flow: Flow
    timestamp_ns: int | None
    """When it was published, in nanoseconds since 1970. None if its publisher does not use timestamps."""
    to_descendants: bool
    """Whether it is also for everything below its topic."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages that were lost. It stands at their place in the order."""

    messages: int
    bound: Literal["exact", "at_least", "at_most"]
    """How exact the number is."""
    reason: str
    """The words are those of toroni.Lost."""
    from_number: int
    """The numbers of the messages are at least this,"""
    until: int | None
    """and below this, if that is known."""
    flow: Flow


@final
class Direct:
    """A program's own end of the network.

    It starts no thread: what was sent is repaired, and what is received is acknowledged, while the program is in one of
    its methods. So call receive often, or turn if the program only sends; an event loop watches fileno for reading, and
    then calls receive(timeout=0) until it returns None. Other threads of Python run while a method waits, and threads may
    share it. Ctrl-C ends a wait within a quarter of a second.
    """

    __slots__ = ("_endpoint",)

    def __init__(self, configuration: str) -> None:
        """Opens what the text of a configuration, in TOML, describes. Its relative paths begin at the working directory.
        Raises toroni.Invalid, whose text has a line for each mistake."""
        self._endpoint = Endpoint(configuration, None)

    @classmethod
    def open_file(cls, path: str | os.PathLike[str]) -> Direct:
        """Opens what a file describes. Its relative paths begin at its directory."""
        made = cls.__new__(cls)
        made._endpoint = Endpoint(None, path)
        return made

    @property
    def streams(self) -> int:
        """How many streams of others have begun: messages come from these. One that has ended counts until another one
        needs its place."""
        return self._endpoint.streams

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._endpoint.closed

    def send(self, topic: str, payload: _Bytes, timeout: float | None = None) -> None:
        """Sends a message. If the stream's rate does not allow it yet, waits until it does; raises toroni.Timeout after
        timeout seconds, and the message was not sent."""
        self._endpoint.send(topic, payload, timeout)

    def receive(self, timeout: float | None = None) -> Message | Lost | None:
        """Returns the next message, or what was lost before it. Waits for it; returns None if there is neither within
        timeout seconds."""
        found = self._endpoint.receive(timeout)
        if found is None:
            return None
        if found[0] is None:
            _, messages, bound, reason, from_number, until, flow = found
            word = cast("Literal['exact', 'at_least', 'at_most']", bound)
            return Lost(messages, word, reason, from_number, until, Flow(*flow))
        topic, payload, number, numbers, timestamp_ns, to_descendants = found
        return Message(topic, payload, number, Flow(*numbers), timestamp_ns, to_descendants)

    def turn(self) -> None:
        """Does what is due: reads, repairs, reports to senders."""
        self._endpoint.turn()

    def fileno(self) -> int:
        """Returns a descriptor that is readable when there is something to do. It belongs to this object."""
        return self._endpoint.fileno()

    def close(self, linger: float = 1.0) -> None:
        """Ends the stream, repairs what others miss until none of them can ask any more, at most linger seconds, and
        closes the sockets. Closing again does nothing."""
        self._endpoint.close(linger)

    def __enter__(self) -> Direct:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
