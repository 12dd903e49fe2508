"""What is known of buses as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class BusEntry:
    """A bus in a directory of buses."""

    name: str
    path: Path
    """Its directory."""
    capacity: int | None
    """Bytes of its ring, if its header can be read."""
    in_use: bool | None
    """Whether any process has it open; None if this process cannot see that."""
    persistent: bool
    """Whether toroni.clean leaves it alone."""
    problem: str | None
    """Why it cannot be opened."""


@dataclass(frozen=True)
class CleanAction:
    """One thing that was cleaned."""

    kind: Literal["slot", "socket", "bus", "leftover", "other"]
    """The slot or the socket of a participant that died, a bus that nobody has open, or one whose creator, or
    cleaner, died half-way."""
    text: str
    """All of this, as a sentence for people."""
    path: Path | None
    """What was removed; None for a slot."""
    bus: str | None
    """Of a slot: the name of its bus."""
    file: Literal["publishers", "readers"] | None
    """Of a slot: the file that it is in."""
    slot: int | None
    """Its number."""


@dataclass(frozen=True)
class CleanReport:
    """What toroni.clean did, or would do."""

    actions: list[CleanAction]
    """In the order in which they were done."""
    skipped: list[tuple[Path, str]]
    """What was left alone although it may be rubbish, and why."""
