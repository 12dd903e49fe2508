"""The state of buses and subscribers. Positions and sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toroni._toroni import Policy


@dataclass(frozen=True)
class SubscriberStats:
    """What happened to a subscriber since it subscribed."""

    received: int
    """Messages that its calls have returned, or keep for the next call."""
    lost_messages: int
    """Messages of the whole bus that were overwritten before it read them."""
    lapses: int
    """How often that happened."""
    losses: int = 0
    """How often Lost was raised."""
    lost_on_the_way: int = 0
    """The sum of messages of these losses."""
    stale: int = 0
    """Messages that were older than max_age, and that it passed over."""
    unknown: int = 0
    """Records of a kind that only a later release knows, and that it passed over."""


@dataclass(frozen=True)
class ValueStats:
    """The value of a retained topic."""

    state: Literal["kept", "missing", "none"]
    """"kept"; "missing" if the bus had no room for it; or "none" if nothing was published since the topic was declared,
    or if the value was cleared."""
    sequence: int | None
    """The number of its message among all messages of the bus; None if there is none."""
    bytes: int | None
    """Bytes of the payload; if it is missing, with what precedes that; None if there is none."""
    timestamp_ns: int | None
    """When it was published, in nanoseconds since 1970 (UTC). None if that is not known."""


@dataclass(frozen=True)
class TopicStats:
    """What the ring holds of one topic."""

    name: str
    """The topic."""
    messages: int
    """Number of its messages that can still be read."""
    bytes: int
    """Bytes of the payloads of these messages."""
    value: ValueStats | None = None
    """Its value; None if it is not retained."""


@dataclass(frozen=True)
class Reopened:
    """What happened to a bus on a disk when it was opened for the first time since the machine booted."""

    kept: bool
    """Whether its messages are intact, because its last publisher had closed it. Otherwise the machine went down
    while a publisher had it open, so it starts empty."""
    messages: int
    """Messages that were kept and can still be read."""


@dataclass(frozen=True)
class RetainedStats:
    """What a bus keeps of retained topics. All is 0 on a bus that keeps no values."""

    topics: int
    """How many topics are retained."""
    max_topics: int
    """How many topics can be retained."""
    missing: int
    """How many of them have a value that is missing: the bus had no room for it, and its message has left the ring."""
    used_bytes: int
    """Bytes in use for values. They only grow."""
    bytes: int
    """Bytes that there are for values."""


@dataclass(frozen=True)
class LockOwner:
    """The participant that holds the writer lock."""

    slot: int | None
    """Number of its slot among the publishers; None for the lock "robust"."""
    pid: int | None
    """Id of its process, or, for the lock "robust", of its thread; None if it is not known."""
    alive: bool | None
    """Whether it is alive; None if this process cannot tell."""
    stopped: bool
    """Whether it is stopped (SIGSTOP)."""
    dumping: bool
    """Whether it crashed and its core dump is being written. With the lock "lease", the next publisher takes over at
    once; with "robust", all publishers wait until the dump is written."""
    exclusive: bool
    """Whether it is an exclusive publisher, which keeps the lock until it is closed."""


@dataclass(frozen=True)
class _Participant:
    slot: int
    name: str
    pid: int
    """Id of its process, in its own PID namespace."""
    same_pid_namespace: bool
    """Whether that is the PID namespace of this process."""
    alive: bool
    stopped: bool
    dumping: bool
    """Whether it crashed and its core dump is being written, as far as the PID namespace of this process shows."""


@dataclass(frozen=True)
class PublisherStats(_Participant):
    """A publishing participant."""

    started_ns: int
    """When it opened the bus for publishing, in nanoseconds since 1970 (UTC)."""
    messages: int
    """Messages that it published; for an inlet, with the losses that it published."""
    bytes: int
    """Bytes of the stream that these messages took."""
    waits: int
    """How often it waited for slow subscribers."""
    waited: float
    """Duration of these waits in all, in seconds."""
    overwrites: int
    """How often it overwrote what a slow subscriber had not read."""
    wakes: int
    """Wake-ups that it sent."""


@dataclass(frozen=True)
class SubscriberSlotStats(_Participant):
    """A subscriber of the bus."""

    gating: bool
    """Whether publishers wait for it."""
    started_ns: int
    """When it subscribed, in nanoseconds since 1970 (UTC)."""
    position: int
    """Position up to which it has read, as it last published."""
    lag_bytes: int
    """Bytes from there to the end of the stream."""
    received: int
    lost_messages: int
    lapses: int
    losses: int
    """How often it was told that messages from elsewhere were lost, at most 2**32 - 1."""
    lost_on_the_way: int
    """The sum of the messages of these losses."""
    lapped_now: bool
    """Whether publishers have overtaken it since it last published its position."""
    patterns: list[str] | None
    """Its patterns, or only the first ones if patterns_truncated; None if they cannot be read."""
    patterns_truncated: bool
    """Whether it has more patterns than its slot has space for."""


@dataclass(frozen=True)
class BusStats:
    """A snapshot of a bus. Made by Bus.stats."""

    name: str
    path: Path
    id: str
    capacity: int
    topic_table_bytes: int
    policy: Policy
    lock: str
    notify: str
    persistent: bool
    on_disk: bool
    """Whether its directory is on a file system that survives a reboot."""
    created_ns: int
    """When the bus was created, in nanoseconds since 1970 (UTC)."""
    max_publishers: int
    max_subscribers: int
    max_arrivals: int
    """For how many streams from elsewhere the bus can keep track of what has arrived."""
    tail: int
    """Bytes published since the bus was created: the position at which the next message will start."""
    sequence: int
    """The sequence of the next message: how many messages, and losses from elsewhere, were published since the bus was
    created."""
    oldest_position: int
    """Position of the oldest message that can still be read."""
    topics: int
    """Number of names in the topic table."""
    retained: RetainedStats
    """What it keeps of retained topics."""
    lock_owner: LockOwner | None
    """The participant that holds the writer lock, or None."""
    publishers: list[PublisherStats] | None
    """The publishing participants; None if this process may not read them."""
    subscribers: list[SubscriberSlotStats] | None
    """The subscribers; None if this process may not read them."""
    sockets: list[str]
    """Names of the files in sockets/."""
