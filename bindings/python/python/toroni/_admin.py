"""Buses as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class BusEntry:
    """A bus in a directory of buses."""

    name: str
    path: Path
    """The directory of the bus."""
    capacity: int | None
    """Bytes of its ring; None if its header cannot be read."""
    in_use: bool | None
    """Whether any process has it open; None if this process cannot tell."""
    persistent: bool
    """Whether toroni.clean keeps it."""
    problem: str | None
    """Why it cannot be opened; None if it can."""


@dataclass(frozen=True)
class CleanAction:
    """One thing that toroni.clean did, or would do."""

    kind: Literal["slot", "socket", "bus", "leftover", "other"]
    """"slot" or "socket" of a dead participant, a "bus" that no process has open, or a "leftover": an incomplete
    bus, whose creation or removal was cut short by a death."""
    text: str
    """All of this as a readable sentence."""
    path: Path | None
    """What was removed; None for a slot."""
    bus: str | None
    """For a slot, the name of its bus."""
    file: Literal["publishers", "readers"] | None
    """For a slot, the file that contains it."""
    slot: int | None
    """For a slot, its number."""


@dataclass(frozen=True)
class CleanReport:
    """What toroni.clean did, or would do."""

    actions: list[CleanAction]
    """The actions, in the order in which they were done."""
    skipped: list[tuple[Path, str]]
    """What was not touched although it may be a leftover, and why."""
