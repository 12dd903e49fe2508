"""Gives every test its own directory of buses, on the file system that buses usually use."""

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
"""A limit for waits that must succeed, generous enough for a busy machine."""

# If the tests run in the background of a script, SIGINT is ignored. Processes that tests start would inherit that, and
# Python would not install its handler.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of buses for this process and the processes that it starts."""
    path = Path(tempfile.mkdtemp(prefix="toroni-python-", dir="/dev/shm"))
    monkeypatch.setenv("TORONI_DIR", os.fspath(path))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def bus(directory: Path) -> Iterator[toroni.Bus]:
    """An empty bus."""
    with toroni.Bus("test") as bus:
        yield bus


@pytest.fixture
def small(directory: Path) -> Iterator[toroni.Bus]:
    """A bus with a ring of 64 KiB, whose publishers wait for subscribers without limit."""
    with toroni.Bus("small", capacity=64 << 10, policy=toroni.Policy.wait(None)) as bus:
        yield bus


@pytest.fixture
def hasty(directory: Path) -> Iterator[toroni.Bus]:
    """A bus with a ring of 64 KiB, whose publishers never wait for subscribers."""
    with toroni.Bus("hasty", capacity=64 << 10, policy=toroni.Policy.overwrite()) as bus:
        yield bus


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the line with which cargo's tests end, because .ci/run adds up the numbers in it."""
    passed, failed = (len(terminalreporter.getreports(kind)) for kind in ("passed", "failed"))
    terminalreporter.write_line(f"test result: {passed} passed; {failed} failed".replace(": ", ": ok. ", 1))
