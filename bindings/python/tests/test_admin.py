"""Buses on a disk, and buses as files."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import SECONDS

import toroni


@pytest.fixture
def disk() -> Iterator[Path]:
    """A directory of buses on a disk."""
    path = Path(tempfile.mkdtemp(prefix="toroni-python-", dir="/var/tmp"))
    try:
        if not toroni.Bus("b", directory=path).stats().on_disk:
            pytest.skip("/var/tmp is in memory")
        yield path
    finally:
        shutil.rmtree(path)


def reboot(bus: Path) -> None:
    """Writes another boot id to the header, as if the machine had booted since then."""
    boot_id = bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))
    with open(bus / "ring", "r+b") as ring:
        ring.seek(ring.read(4096).index(boot_id))
        ring.write(bytes(16))


def take_part_and_die(directory: Path, notify: str) -> None:
    bus = toroni.Bus("b", directory=directory, notify=notify)
    subscriber = bus.subscribe("t")
    subscriber.fileno()
    bus.publisher("t").publish(b"x")
    os.kill(os.getpid(), signal.SIGKILL)


def kill_a_participant(directory: Path, notify: str = "futex") -> None:
    process = multiprocessing.get_context("spawn").Process(target=take_part_and_die, args=(directory, notify))
    process.start()
    process.join(SECONDS)
    assert process.exitcode == -signal.SIGKILL


def test_a_bus_on_a_disk_reports_what_it_kept(disk: Path) -> None:
    with toroni.Bus("b", directory=disk) as bus, bus.publisher("t") as publisher:
        assert bus.reopened is None
        publisher.burst([b"1", b"2"])
    reboot(disk / "b")
    with toroni.Bus("b", directory=disk) as bus:
        assert bus.reopened == toroni.Reopened(kept=True, messages=2)
        assert toroni.Bus("b", directory=disk).reopened is None
    assert bus.reopened is not None
    kill_a_participant(disk)
    reboot(disk / "b")
    assert toroni.Bus("b", directory=disk).reopened == toroni.Reopened(kept=False, messages=0)


# A burst keeps the writer lock as long as there is space.
BURSTING = """
import sys, toroni
publisher, payloads = toroni.Bus("b", directory=sys.argv[1]).publisher("t"), [b"x"] * 1_000_000
print("ready", flush=True)
while True: publisher.burst(payloads)
"""


@pytest.mark.parametrize("way", ["close", "drop", "drop the bus"])
def test_other_threads_run_while_the_last_publisher_closes(disk: Path, way: str) -> None:
    """The drop waits for a second for the writer lock, to close the bus properly; another thread must release it."""
    reopened = []
    # A busy machine may delay the other thread for that long, but not each time.
    for _ in range(5):
        bus = toroni.Bus("b", directory=disk)
        publisher = bus.publisher("t")
        publisher.publish(b"x")
        child = subprocess.Popen(
            [sys.executable, "-c", BURSTING, str(disk)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        is_free = True
        while is_free:
            child.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, child.pid, os.WSTOPPED)
            is_free = publisher.try_publish(b"x") is not None
            if is_free:
                child.send_signal(signal.SIGCONT)
        closing = threading.Event()

        def kill(child: subprocess.Popen[str] = child, closing: threading.Event = closing) -> None:
            closing.wait()
            child.kill()
            child.wait()

        thread = threading.Thread(target=kill)
        thread.start()
        if way == "drop the bus":
            publisher.close()
        else:
            bus.close()
        closing.set()
        if way == "close":
            publisher.close()
        del publisher, bus
        thread.join()
        child.stdout.close()
        reboot(disk / "b")
        with toroni.Bus("b", directory=disk) as again:
            reopened.append(again.reopened and again.reopened.kept)
        if reopened[-1]:
            break
    assert reopened[-1]


def test_buses_are_listed(directory: Path) -> None:
    assert toroni.buses() == [] == toroni.buses(directory / "missing")
    toroni.Bus("kept", persistent=True, capacity=64 << 10).close()
    (toroni.Bus("short").path / "ring").write_bytes(b"short")
    with toroni.Bus("used") as used:
        kept, short, third = toroni.buses(os.fspath(directory))
    path = directory / "kept"
    assert kept == toroni.BusEntry("kept", path, 64 << 10, in_use=False, persistent=True, problem=None)
    assert (third.name, third.path, third.in_use, third.persistent) == ("used", used.path, True, False)
    assert (short.name, short.capacity, short.persistent) == ("short", None, False) and short.problem
    with pytest.raises(toroni.Error, match="directory"):
        toroni.buses("/proc/self/exe")


def test_unused_buses_are_removed(directory: Path) -> None:
    kept = toroni.Bus("kept", persistent=True)
    kept.close()
    leftover = directory / ".gone.0123456789abcdef"
    leftover.mkdir()
    with toroni.Bus("used"):
        would = toroni.clean(dry_run=True)
        assert leftover.exists() and toroni.clean() == would and not leftover.exists()
        assert [(one.kind, one.path, one.bus, one.slot) for one in would.actions] == [
            ("leftover", leftover, None, None)
        ]
        assert str(leftover) in would.actions[0].text
        [(path, why)] = toroni.clean("used").skipped
        assert path == directory / "used" and "in use" in why
    assert toroni.clean("kept").actions == []
    [action] = toroni.clean("kept", persistent=True).actions
    assert (action.kind, action.path) == ("bus", kept.path) and not kept.path.exists()
    assert [one.path for one in toroni.clean(directory=directory).actions] == [directory / "used"]
    assert toroni.buses() == []
    with pytest.raises(toroni.NotFound):
        toroni.clean("kept")
    with pytest.raises(toroni.Invalid):
        toroni.clean("../x")
    with pytest.raises(toroni.Invalid, match="name"):
        toroni.clean(persistent=True)


def test_leftovers_of_dead_processes_are_cleaned(directory: Path) -> None:
    with toroni.Bus("b", notify="datagram") as bus:
        kill_a_participant(directory, "datagram")
        first, second, socket = toroni.clean("b").actions
        assert (first.kind, first.bus, first.file, first.slot, first.path) == (
            "slot",
            "b",
            "publishers",
            0,
            None,
        )
        assert (second.kind, second.bus, second.file, second.slot) == ("slot", "b", "readers", 0)
        assert socket.kind == "socket" and socket.path and socket.path.parent == bus.path / "sockets"
        assert toroni.clean() == toroni.CleanReport([], [])
        stats = bus.stats()
        assert (stats.publishers, stats.subscribers, stats.sockets) == ([], [], [])
