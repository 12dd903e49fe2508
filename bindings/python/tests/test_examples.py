"""Runs the examples as users do."""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import SECONDS

import toroni

EXAMPLES = Path(__file__).parent.parent / "examples"
ROOT = EXAMPLES.parent.parent.parent
DAEMON = os.environ.get("TORONI_TELEMETRY")
"""The path of the built program."""


def start(name: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    # An empty name of the bus means the default.
    environment = {**os.environ, "PYTHONUTF8": "1", "TORONI_BUS": ""}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment
    )


def await_subscribers(bus: toroni.Bus, count: int) -> None:
    deadline = time.monotonic() + SECONDS
    while len(bus.stats().subscribers or []) < count and time.monotonic() < deadline:
        time.sleep(0.01)


def test_three_lines_each(directory: Path) -> None:
    subscriber = start("subscribe.py")
    try:
        with toroni.Bus("demo") as bus:
            await_subscribers(bus, 1)
        publisher = start("publish.py")
        assert publisher.communicate(timeout=SECONDS) == ("", "")
        assert subscriber.stdout is not None
        assert subscriber.stdout.readline() == "plant/boiler/temperature 351.2\n"
        subscriber.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in subscriber.communicate(timeout=SECONDS)[1]
    finally:
        subscriber.kill()


def test_the_state_that_a_late_subscriber_receives(directory: Path) -> None:
    def publish(setpoint: str) -> None:
        assert start("state.py", setpoint).communicate(timeout=SECONDS) == ("", "")

    publish("340")
    publish("350")
    subscriber = start("state.py")
    try:
        assert subscriber.stdout is not None
        assert subscriber.stdout.readline() == "plant/setpoint is 350\n"
        publish("360")
        assert subscriber.stdout.readline() == "plant/setpoint changes to 360\n"
        publish("")
        assert subscriber.stdout.readline() == "plant/setpoint was cleared\n"
        subscriber.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in subscriber.communicate(timeout=SECONDS)[1]
    finally:
        subscriber.kill()
        subscriber.communicate()


@pytest.mark.parametrize("readme", ["README.md", "bindings/python/README.md"])
def test_the_lines_of_the_readme(directory: Path, readme: str) -> None:
    """The first Python block publishes. The blocks that subscribe may use its import."""
    publishing, *others = re.findall("```python\n(.*?)```", (ROOT / readme).read_text(), re.DOTALL)
    subscribing = [block for block in others if ".subscribe(" in block]
    assert ".publish(" in publishing and subscribing
    subscribers = [
        subprocess.Popen(
            [sys.executable, "-u", "-c", f"import toroni\n{block}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for block in subscribing
    ]
    try:
        with toroni.Bus("demo") as bus:
            await_subscribers(bus, len(subscribers))
        subprocess.run([sys.executable, "-c", publishing], check=True, timeout=SECONDS)
        for subscriber in subscribers:
            assert subscriber.stdout is not None
            assert subscriber.stdout.readline() == "plant/boiler/temperature 351.2\n"
    finally:
        for subscriber in subscribers:
            subscriber.kill()
            subscriber.communicate()


def test_the_package_contains_its_licences() -> None:
    """Toroni's own licences, unchanged, and those of what is linked in."""
    files = importlib.metadata.files("toroni") or []
    texts = {file.name: file.read_text() for file in files if "licenses" in file.parts}
    for own in ("LICENSE-APACHE", "LICENSE-MIT"):
        assert texts[own] == (ROOT / own).read_text()
    for linked in ("\nlibc 0.", "\npyo3 0.", "\nrustix 1.", "standard library of Rust"):
        assert linked in texts["third-party.txt"]


@pytest.mark.skipif(DAEMON is None, reason="cargo xtask bindings python builds the daemon")
def test_the_dashboard_shows_this_host(directory: Path, tmp_path: Path) -> None:
    """Uses the daemon `telemetry` itself."""
    assert DAEMON is not None
    daemon = subprocess.Popen([DAEMON, "--interval", "0.05", os.fspath(tmp_path)], stderr=subprocess.PIPE)
    try:
        with toroni.Bus() as bus, bus.subscribe("host/cpu/0", "host/network/lo/tx") as subscriber:
            # The daemon watches its folder now.
            assert subscriber.receive(SECONDS) is not None and subscriber.receive(SECONDS) is not None
            (tmp_path / "a file").touch()
            with bus.subscribe("host/files/created", start="oldest") as created:
                assert created.receive(SECONDS) is not None
        dashboard = start("dashboard.py", "--turns", "2")
        out, err = dashboard.communicate(timeout=SECONDS)
        assert (dashboard.returncode, err) == (0, "")
        picture = out.split("bus default: ")[2]
        total = int(re.findall(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())[0]) * 1024
        assert re.search(r"^    0 .* \d+\.\d %$", picture, re.MULTILINE)
        assert f" of {total / (1 << 30):.1f} GiB" in picture or total < 1 << 30
        assert re.search(r"^  lo rx +\d+(\.\d)? \w+/s$", picture, re.MULTILINE)
        assert "created a file" in picture
        daemon.send_signal(signal.SIGTERM)
        assert daemon.communicate(timeout=SECONDS)[1] == b""
        assert daemon.returncode == 0
    finally:
        daemon.kill()
        daemon.communicate()


def test_the_dashboard_shows_messages_of_the_daemon(directory: Path) -> None:
    """Uses messages in the format of the library's example `telemetry`."""
    with toroni.Bus() as bus:
        for topic, text in [
            ("cpu/0", '{"busy_percent":100.0,"user_percent":8.0}'),
            ("cpu/1", '{"busy_percent":50.0,"user_percent":8.0}'),
            ("memory/MemTotal", '{"bytes":16322232320}'),
            ("memory/MemAvailable", '{"bytes":8161116160}'),
            ("network/eth0/rx", '{"bytes_per_s":1536.0,"packets_per_s":2.0}'),
            ("files/created", "a file"),
            ("cpu/none", "nothing that it knows"),
            ("cpu/2", '{"busy_percent":1e999}'),
            ("cpu/3", "[" * 100_000),
            ("memory/MemTotal", '{"bytes":NaN}'),
        ]:
            bus.publisher(f"host/{topic}").publish(text.encode())
        dashboard = start("dashboard.py", "--turns", "1")
        out, err = dashboard.communicate(timeout=SECONDS)
        assert (dashboard.returncode, err) == (0, "")
        for part in ["█", "100.0 %", "▄", "50.0 %", "7.6 GiB of 15.2 GiB", "1.5 KiB/s", "created a file"]:
            assert part in out
        dashboard = start("dashboard.py")
        try:
            await_subscribers(bus, 1)
            assert dashboard.stdout is not None
            assert dashboard.stdout.readline().startswith("bus default:")
            dashboard.send_signal(signal.SIGINT)
            assert dashboard.communicate(timeout=SECONDS)[1] == ""
            assert dashboard.returncode == 0
        finally:
            dashboard.kill()
