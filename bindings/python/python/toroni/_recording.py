"""Recordings: what `toroni record` writes, read with the package mcap."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from toroni._errors import Corrupt, Invalid, Lapped, Lost, NotFound, ValueMissing
from toroni._inlet import Origin
from toroni._message import HasPayload
from toroni._toroni import matches

_MAGIC_BYTES = 8
_HEADER_BYTES = 9
_FOOTER = 2

if TYPE_CHECKING:
    from mcap.records import Channel
    from mcap.records import Message as McapMessage


@dataclass(frozen=True, slots=True)
class RecordedMessage(HasPayload):
    """A message of a recording. It has the attributes of a received message, without a position and an origin."""

    topic: str
    payload: bytes
    sequence: int
    """Its number among all messages of the bus."""
    timestamp_ns: int | None
    """When it was published, if its publisher stamped it: nanoseconds since 1970."""
    received_ns: int
    """When the recorder received it: nanoseconds since 1970."""
    to_descendants: bool
    is_retained: bool = False
    """Whether it is the value of a retained topic at this place, and was published before."""
    is_cleared: bool = False
    """Whether it is no message, but says that the value of its topic was cleared."""


class _Whole:
    """A file up to the end of its last whole record. The package mcap takes parts of records for records."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        length = file.seek(0, os.SEEK_END)
        position = file.seek(_MAGIC_BYTES)
        while position + _HEADER_BYTES <= length:
            file.seek(position)
            opcode, size = struct.unpack("<BQ", file.read(_HEADER_BYTES))
            if position + _HEADER_BYTES + size > length:
                break
            position += _HEADER_BYTES + size
            if opcode == _FOOTER:
                # The magic at the end.
                position = length
        self._left = min(position, length)
        file.seek(0)

    def read(self, count: int = -1) -> bytes:
        found = self._file.read(self._left if count < 0 else min(count, self._left))
        self._left -= len(found)
        return found


class Recording(Iterator[RecordedMessage]):
    """An iterator over the messages of a recording, in the order of the bus.

    It raises Lapped and Lost where messages are missing, and ValueMissing where a value is, with the sequence of that
    place. The next call continues after them. A recording whose recorder was killed ends with its last whole chunk."""

    def __init__(self, file: str | os.PathLike[str], *patterns: str) -> None:
        try:
            from mcap.stream_reader import StreamReader
        except ImportError as error:
            raise ImportError(
                "open_recording needs the package mcap: pip install 'toroni[recording]'"
            ) from error
        for pattern in patterns:
            matches(pattern, "a")  # raises Invalid
        self._patterns = patterns
        try:
            self._file: IO[bytes] = open(file, "rb")
        except FileNotFoundError as error:
            raise NotFound(*error.args) from error
        self._channels: dict[int, Channel] = {}
        self._next_sequence = 0
        self._has_begun = False
        try:
            whole = cast(IO[bytes], _Whole(self._file))
            self._records: Iterator[Any] = iter(StreamReader(whole, validate_crcs=True).records)
        except Exception:
            self._file.close()
            raise

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Recording:
        return self

    def close(self) -> None:
        """Closes the file."""
        self._records = iter(())
        self._file.close()

    def __next__(self) -> RecordedMessage:
        from mcap.exceptions import EndOfFile, InvalidMagic, McapError, RecordLengthLimitExceeded
        from mcap.records import Channel, Message, Metadata

        while True:
            try:
                record = next(self._records)
            except InvalidMagic as error:
                if self._has_begun:
                    # Cut off within the magic at the end.
                    raise StopIteration from None
                raise Invalid("this is not an MCAP file") from error
            except (EndOfFile, RecordLengthLimitExceeded):
                # The recorder was killed.
                raise StopIteration from None
            except (McapError, ValueError, struct.error) as error:
                self._records = iter(())
                raise Corrupt(f"the recording is damaged: {error}") from error
            self._has_begun = True
            if isinstance(record, Metadata) and record.name == "toroni":
                self._next_sequence = int(record.metadata.get("sequence_base", self._next_sequence))
            elif isinstance(record, Channel):
                self._channels[record.id] = record
            elif isinstance(record, Message):
                found = self._message(record)
                if found is not None:
                    return found

    def _message(self, message: McapMessage) -> RecordedMessage | None:
        channel = self._channels.get(message.channel_id)
        if channel is None:
            raise Corrupt(
                f"the recording is damaged: a message is on the unknown channel {message.channel_id}"
            )
        kind = channel.metadata.get("toroni.kind")
        if kind is not None and kind != "lost":
            return None  # origins, and notes of the recorder
        retained = channel.metadata.get("toroni.retained")
        # The file has the low 32 bits. Sequences grow, but values may be from before.
        ahead = (message.sequence - self._next_sequence) % 2**32
        sequence = self._next_sequence + ahead
        if retained in ("value", "cleared") and ahead >= 2**31:
            sequence = max(sequence - 2**32, 0)
        else:
            self._next_sequence = sequence
        if kind == "lost":
            self._raise_loss(message.data)
            return None
        to_descendants = channel.metadata.get("toroni.to_descendants") == "true"
        topic = channel.topic
        if not self._wants(topic.lstrip("/"), to_descendants):
            return None
        stamped = message.publish_time != message.log_time
        return RecordedMessage(
            topic=topic,
            payload=message.data,
            sequence=sequence,
            timestamp_ns=message.publish_time if stamped else None,
            received_ns=message.log_time,
            to_descendants=to_descendants,
            is_retained=retained == "value",
            is_cleared=retained == "cleared",
        )

    def _wants(self, topic: str, to_descendants: bool) -> bool:
        patterns = self._patterns
        return not patterns or any(matches(pattern, topic, to_descendants) for pattern in patterns)

    def _raise_loss(self, data: bytes) -> None:
        try:
            loss = json.loads(data)
            messages, origin = int(loss["messages"]), loss.get("origin")
            if origin is None:
                lost_bytes = int(loss.get("bytes") or 0)
                if loss["reason"] == "no_room_for_value":
                    (topic,) = loss["scope"]
                    if not self._wants(topic, False):
                        return
                    text = f"the value of {topic} has {lost_bytes} bytes, for which there was no room"
                    raise ValueMissing(text, topic, self._next_sequence, lost_bytes)
                raise Lapped(f"{messages} messages are missing from the recording", messages, lost_bytes)
            raise Lost(
                f"{messages} messages were lost on their way to the bus",
                Origin(origin["source"], origin["series"], origin["stream"], origin["from"]),
                origin["until"],
                messages,
                loss.get("bound", "exact"),
                loss["reason"],
                tuple(loss.get("scope", ())),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corrupt(f"the recording is damaged: a loss cannot be parsed: {error}") from error


def open_recording(file: str | os.PathLike[str], *patterns: str) -> Recording:
    """Opens a recording, which `toroni record` or another program wrote (MCAP).

    Returns an iterator over the messages whose topics match one of the patterns, or over all messages if there is
    none. It needs the package mcap: pip install 'toroni[recording]'."""
    return Recording(file, *patterns)
