"""Every test has a directory of buses of its own, on the file system that buses are on."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import toroni

SECONDS = 60.0
"""What a busy machine may take for something that must come."""

# Where the tests run in the background of a script, SIGINT is ignored, and would be in the processes that
# tests start: Python then does not install its handler.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where buses are, for this process and those that it starts."""
    path = Path(tempfile.mkdtemp(prefix="toroni-python-", dir="/dev/shm"))
    monkeypatch.setenv("TORONI_DIR", os.fspath(path))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def bus(directory: Path) -> Iterator[toroni.Bus]:
    """A bus that is empty."""
    with toroni.Bus("test") as bus:
        yield bus


@pytest.fixture
def small(directory: Path) -> Iterator[toroni.Bus]:
    """A bus of 64 KiB, whose publishers wait for subscribers without end."""
    with toroni.Bus("small", capacity=64 << 10, policy=toroni.Policy.wait(None)) as bus:
        yield bus


@pytest.fixture
def hasty(directory: Path) -> Iterator[toroni.Bus]:
    """A bus of 64 KiB, whose publishers wait for nobody."""
    with toroni.Bus("hasty", capacity=64 << 10, policy=toroni.Policy.overwrite()) as bus:
        yield bus


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line as cargo's tests end with: .ci/run adds them up."""
    passed, failed = (len(terminalreporter.getreports(kind)) for kind in ("passed", "failed"))
    terminalreporter.write_line(f"test result: {passed} passed; {failed} failed".replace(": ", ": ok. ", 1))
