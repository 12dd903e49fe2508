"""An asyncio dashboard of a host. It draws what the telemetry daemon publishes, twice a second.

    cargo run -p toroni --example telemetry -- --interval 0.5 /tmp &
    python examples/dashboard.py

Two tasks share one event loop: one receives messages; the other one draws, and shows the rate of the bus and which
subscribers lag. Without a terminal, each drawing is printed after the last one. --turns N exits after N drawings.
TORONI_BUS names the bus (default: "default"), TORONI_DIR the directory of buses.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
from collections import deque
from dataclasses import dataclass, field

import toroni

BARS = " ▁▂▃▄▅▆▇█"
HISTORY = 40
INTERVAL_S = 0.5
MOST = 1 << 63
"""Larger numbers are ignored: no host has so much of anything."""


@dataclass
class Host:
    """What is known about the host."""

    busy: dict[int, deque[float]] = field(default_factory=dict)
    """The last loads of each processor in per cent."""
    memory: dict[str, int] = field(default_factory=dict)
    """Fields of /proc/meminfo, in bytes."""
    network: dict[str, float] = field(default_factory=dict)
    """Bytes per second by interface and direction."""
    files: deque[str] = field(default_factory=lambda: deque(maxlen=5))
    """The last events of files."""
    lost: int = 0

    def note(self, message: toroni.Message) -> None:
        """Stores what one message of the daemon says. Ignores unknown messages."""
        topic = message.topic.split("/")
        match topic, numbers_in(message):
            case ["host", "files", event], _:
                self.files.append(f"{event} {message.text}")
            case ["host", "cpu", number], {"busy_percent": int() | float() as share} if (
                number.isdigit() and 0 <= share <= 100
            ):
                self.busy.setdefault(int(number), deque(maxlen=HISTORY)).append(share)
            case ["host", "memory", name], {"bytes": int() as size} if 0 <= size < MOST:
                self.memory[name] = size
            case ["host", "network", interface, way], {"bytes_per_s": int() | float() as rate} if (
                0 <= rate < MOST
            ):
                self.network[f"{interface} {way}"] = rate


def numbers_in(message: toroni.Message) -> object:
    """Returns the JSON value of a message, or None if it is not JSON."""
    try:
        return json.loads(message.text)
    except (ValueError, RecursionError):
        return None


async def receive(subscriber: toroni.Subscriber, host: Host) -> None:
    while True:
        try:
            for message in await subscriber.receive_many_async():
                host.note(message)
        except toroni.Lapped as lapped:
            host.lost += lapped.lost


async def draw(bus: toroni.Bus, host: Host, turns: int) -> None:
    before = bus.stats()
    turn = 0
    while turns == 0 or turn < turns:
        await asyncio.sleep(INTERVAL_S)
        turn += 1
        # A snapshot takes a few system calls, which may wait for a disk.
        now = await asyncio.to_thread(bus.stats)
        show(picture(host, now, (now.sequence - before.sequence) / INTERVAL_S))
        before = now


def picture(host: Host, bus: toroni.BusStats, rate: float) -> list[str]:
    """Returns the lines of the dashboard."""
    publishers, subscribers = bus.publishers or [], bus.subscribers or []
    lines = [
        f"bus {bus.name}: {rate:,.0f} messages/s, {bus.sequence:,} in all, "
        f"{len(publishers)} publishing, {len(subscribers)} subscribed",
        *(f"  {one.name} (pid {one.pid}) lags {size(one.lag_bytes)}" for one in subscribers if one.lag_bytes),
        "",
        "processors",
        *(
            f"  {number:3} {bars(shares):{HISTORY}} {shares[-1]:5.1f} %"
            for number, shares in sorted(host.busy.items())
        ),
        "",
        "memory",
    ]
    total, available = host.memory.get("MemTotal", 0), host.memory.get("MemAvailable", 0)
    if total:
        used = total - available
        full = round(used / total * HISTORY)
        lines.append(f"      {'█' * full + '░' * (HISTORY - full)} {size(used)} of {size(total)}")
    lines += ["", "network"]
    lines += [f"  {name:20} {size(rate)}/s" for name, rate in sorted(host.network.items())]
    if host.files:
        lines += ["", "files", *(f"  {one}" for one in host.files)]
    if host.lost:
        lines += ["", f"missed {host.lost:,} messages of the bus"]
    return lines


def bars(shares: deque[float]) -> str:
    return "".join(BARS[min(round(share / 100 * 8), 8)] for share in shares)


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.1f} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1024
    return f"{count:.1f} TiB"


def show(lines: list[str]) -> None:
    if sys.stdout.isatty():
        columns, rows = shutil.get_terminal_size()
        print("\x1b[H\x1b[J" + "\n".join(line[:columns] for line in lines[: rows - 1]), flush=True)
    else:
        print("\n".join(lines), end="\n\n", flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=0, help="number of drawings [default: no limit]")
    turns = parser.parse_args().turns
    host = Host()
    bus = toroni.Bus(os.environ.get("TORONI_BUS") or "default")
    # It does not gate, so that it never slows publishers, and starts with the messages that are in the ring.
    with bus, bus.subscribe("host/**", gating=False, start="oldest", name="dashboard") as subscriber:
        drawing = asyncio.create_task(draw(bus, host, turns))
        receiving = asyncio.create_task(receive(subscriber, host))
        loop = asyncio.get_running_loop()
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, drawing.cancel)
        await asyncio.wait([drawing, receiving], return_when=asyncio.FIRST_COMPLETED)
        for task in (drawing, receiving):
            if not task.cancel() and not task.cancelled():
                task.result()


if __name__ == "__main__":
    asyncio.run(main())
