"""What buses and subscribers tell about themselves. Positions and sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from toroni._toroni import Policy


@dataclass(frozen=True)
class SubscriberStats:
    """What a subscriber has seen since it subscribed."""

    received: int
    """Messages that its calls have returned, or keep for the next one."""
    lost_messages: int
    """Messages of the whole bus that were overwritten before it read them."""
    lapses: int
    """How often that happened."""


@dataclass(frozen=True)
class TopicStats:
    """What the ring holds of one topic."""

    name: str
    """The topic."""
    messages: int
    """Its messages that can still be read."""
    bytes: int
    """Bytes of their payloads."""


@dataclass(frozen=True)
class Reopened:
    """What became of a bus on a disk when it was opened for the first time since the machine booted."""

    kept: bool
    """Whether its messages are as they were, because its last publisher had closed it in order; else it starts
    empty, because the machine went down while somebody published."""
    messages: int
    """How many were kept and can still be read."""


@dataclass(frozen=True)
class LockOwner:
    """The owner of the writer lock."""

    slot: int | None
    """Its slot among the publishers; None for the lock "robust"."""
    pid: int | None
    """Its process, where it is known; for "robust", its thread."""
    alive: bool | None
    """Whether it lives; None if this process cannot tell."""
    stopped: bool
    """Whether it is stopped (SIGSTOP)."""


@dataclass(frozen=True)
class _Participant:
    slot: int
    name: str
    pid: int
    """Its process, in its own PID namespace."""
    same_pid_namespace: bool
    alive: bool
    stopped: bool


@dataclass(frozen=True)
class PublisherStats(_Participant):
    """A publishing participant."""

    started_ns: int
    """When it opened the bus for publishing, in nanoseconds since 1970 (UTC)."""
    messages: int
    """Messages it published."""
    bytes: int
    """Bytes of the stream that they took."""
    waits: int
    """How often it waited for slow subscribers."""
    waited: float
    """For how long in all, in seconds."""
    overwrites: int
    """How often it overwrote what a slow subscriber had not read."""
    wakes: int
    """Wake-ups it sent."""


@dataclass(frozen=True)
class SubscriberSlotStats(_Participant):
    """A subscriber of the bus."""

    gating: bool
    """Whether publishers wait for it."""
    started_ns: int
    """When it subscribed, in nanoseconds since 1970 (UTC)."""
    position: int
    """Up to where it has read, as far as it told."""
    lag_bytes: int
    """From there to the end of the stream."""
    received: int
    lost_messages: int
    lapses: int
    lapped_now: bool
    """Whether it has been overtaken by writers since it last told its position."""
    patterns: list[str] | None
    """Its patterns, or the first of them if `patterns_truncated`; None if they cannot be read."""
    patterns_truncated: bool
    """Whether it has more patterns than its slot has room for."""


@dataclass(frozen=True)
class BusStats:
    """What a bus looked like at one moment."""

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
    """Whether its directory is on a file system that outlives a reboot."""
    created_ns: int
    """When it was created, in nanoseconds since 1970 (UTC)."""
    max_publishers: int
    max_subscribers: int
    tail: int
    """Bytes published since it was created: where the next message will start."""
    sequence: int
    """Messages published since it was created."""
    oldest_position: int
    """Position of the oldest message that can still be read."""
    topics: int
    """Names in the table of topics."""
    lock_owner: LockOwner | None
    """Who holds the writer lock, if anybody does at this moment."""
    publishers: list[PublisherStats] | None
    """The publishing participants; None if this process may not look at them."""
    subscribers: list[SubscriberSlotStats] | None
    """The subscribers; None if this process may not look at them."""
    sockets: list[str]
    """Names of the files in sockets/."""
