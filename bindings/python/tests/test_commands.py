"""Commands, and the wait for their events. An inlet plays the node, which writes events to the bus of the feed."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import SECONDS

import toroni
from toroni import Echo, Sent


class Host:
    """The bus of events, and a program that sends commands."""

    def __init__(self) -> None:
        self.bus = toroni.Bus("orders")
        self.inlet = self.bus.inlet()
        self.topic = self.inlet.topic("new/order")
        self.commands = toroni.Commands("orders", capacity=64 << 10)

    def event(self, number: int, sent: Sent) -> None:
        self.inlet.publish(self.topic, b"7 boxes", origin=(7, sent.series, 0, sent.number), number=number)

    def watch(self) -> toroni.Pending:
        return self.commands.send_and_watch("new/order", b"7 boxes")


@pytest.fixture
def host(directory: Path) -> Host:
    return Host()


def test_a_command_is_awaited_until_its_event_comes(host: Host) -> None:
    reader = host.bus.subscribe("**")
    sent = host.commands.send("new/order", b"7 boxes")
    assert (sent.number, sent.series) == (0, host.commands.series)
    with host.watch() as pending:
        assert pending.sent == Sent(sent.series, 1)
        assert pending.wait(timeout=0.02) is None
        host.event(3, sent._replace(series=sent.series ^ 1))
        host.event(4, sent)
        assert pending.wait(timeout=0) is None
        host.event(6, pending.sent)
        assert pending.wait() == Echo("event", 6)
        assert pending.wait(timeout=0) == Echo("event", 6)
        other, own, watched = reader.receive(), reader.receive(), reader.receive()
        assert not host.commands.is_mine(other) and not sent.is_echo(other)
        assert host.commands.is_mine(own) and sent.is_echo(own) and not pending.sent.is_echo(own)
        assert host.commands.is_mine(watched) and pending.sent.is_echo(watched)
    assert (own.number, own.origin) == (4, toroni.Origin(7, sent.series, 0, 0))
    # A message of the bus that is no event.
    host.bus.publisher("new/order").publish(b"")
    local = reader.receive()
    assert not host.commands.is_mine(local) and not sent.is_echo(local)
    assert pickle.loads(pickle.dumps(sent)) == sent


def test_lost_commands_and_events_are_outcomes(host: Host) -> None:
    first, second = host.watch(), host.watch()
    series = host.commands.series
    host.inlet.publish_lost((7, series, 0, 0), 1, messages=1, reason="overtaken", scope="**")
    assert first.wait() == Echo("lost", None)
    assert second.wait(timeout=0.02) is None
    # It does not depend on the handle that sent the command.
    host.commands.close()
    # A later command of this host has its event, so the one that is awaited was missed.
    host.event(9, Sent(series, 2))
    assert second.wait() == Echo("missed", None)


def test_wrong_calls_send_nothing(directory: Path) -> None:
    commands = toroni.Commands("orders", directory=directory)
    calls: list[tuple[type[Exception], Callable[[], object]]] = [
        (toroni.Invalid, lambda: commands.send("a//b", b"")),
        (toroni.Invalid, lambda: commands.send("t", b"", timeout=-1)),
        (TypeError, lambda: commands.send("t", "text")),  # type: ignore[arg-type]
        (TypeError, lambda: commands.send(1, b"")),  # type: ignore[arg-type]
        (TypeError, lambda: commands.is_mine(b"")),  # type: ignore[arg-type]
        (TypeError, lambda: toroni.Commands()),  # type: ignore[call-arg]
        (TypeError, lambda: toroni.Commands("orders", nonsense=1)),  # type: ignore[call-arg]
        (TypeError, toroni.Pending),
        (toroni.Invalid, lambda: toroni.Commands("no/name")),
        # No node has made the bus of events.
        (toroni.NotFound, lambda: commands.send_and_watch("t", b"")),
    ]
    for kind, call in calls:
        with pytest.raises(kind):
            call()
    with pytest.raises(toroni.TooLong, match="1 MiB") as long:
        commands.send("t", bytes(1 << 20))
    assert long.value.length > long.value.limit == 1 << 20
    with pytest.raises(TypeError, match=r"Commands\(\)"):
        toroni.Commands("orders", nonsense=1)  # type: ignore[call-arg]
    assert commands.send("t", b"").number == 0
    assert (commands.feed, repr(commands)) == ("orders", '<toroni.Commands of "orders">')


def test_closed_handles(host: Host) -> None:
    pending = host.watch()
    with host.commands:
        pass
    assert host.commands.closed and "closed" in repr(host.commands)
    calls: list[Callable[[], Any]] = [
        lambda: host.commands.send("t", b""),
        lambda: host.commands.send_and_watch("t", b""),
    ]
    for call in calls:
        with pytest.raises(toroni.Closed, match="commands"):
            call()
    assert not pending.closed and len(host.bus.stats().subscribers or []) == 1
    pending.close()
    pending.close()
    assert pending.closed and pending.sent.number == 0 and "closed" in repr(pending)
    with pytest.raises(toroni.Closed):
        pending.wait()
    assert host.bus.stats().subscribers == []


def test_threads_send_and_wait(host: Host) -> None:
    pending = host.watch()
    echoes: list[Echo] = []
    waiting = [threading.Thread(target=lambda: echoes.append(pending.wait())) for _ in range(3)]
    sending = [
        threading.Thread(target=lambda: [host.commands.send("t", b"1") for _ in range(50)]) for _ in range(4)
    ]
    for thread in waiting + sending:
        thread.start()
    for thread in sending:
        thread.join(SECONDS)
    # One at a time waits, and each has its own time limit.
    assert pending.wait(timeout=0.05) is None
    host.event(1, pending.sent)
    for thread in waiting:
        thread.join(SECONDS)
    assert echoes == [Echo("event", 1)] * 3
    assert host.commands.send("t", b"").number == 201


def fill(commands: toroni.Commands) -> None:
    while True:
        commands.send("t", bytes(1000), timeout=0.01)


def test_a_full_command_bus_has_a_time_limit(host: Host) -> None:
    courier = toroni.Bus("orders.commands").subscribe("**")
    raised: list[Exception] = []

    def run() -> None:
        try:
            fill(host.commands)
        except toroni.Timeout as error:
            raised.append(error)

    # Another thread: this one would wait for itself.
    thread = threading.Thread(target=run)
    thread.start()
    thread.join(SECONDS)
    assert len(raised) == 1 and courier.lag_bytes > 50_000


def test_a_signal_ends_a_wait(host: Host) -> None:
    pending = host.watch()
    main = threading.get_ident()

    def interrupt() -> None:
        time.sleep(0.1)
        signal.pthread_kill(main, signal.SIGINT)

    def wait() -> None:
        thread.start()
        pending.wait()

    thread = threading.Thread(target=interrupt)
    # The signal may come before the wait, on a busy machine.
    with pytest.raises(KeyboardInterrupt):
        wait()
    thread.join()
    host.event(1, pending.sent)
    assert pending.wait() == Echo("event", 1)


def test_they_belong_to_their_process(host: Host) -> None:
    pending = host.watch()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            calls: list[Callable[[], object]] = [
                lambda: host.commands.send("new/order", b""),
                lambda: host.commands.send("another", b""),
                lambda: host.commands.send_and_watch("t", b""),
                lambda: pending.wait(timeout=0),
            ]
            for call in calls:
                with pytest.raises(toroni.Forked):
                    call()
            pending.close()
            host.commands.close()
            del pending
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    host.event(1, pending.sent)
    assert pending.wait() == Echo("event", 1)
