"""Other processes: killed, interrupted, forked, and workers."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy
import numpy.typing
import pytest
from conftest import SECONDS

import toroni
from toroni import Policy, _asyncio


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts another Python process that runs a program."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


ENDLESS = """
import sys, toroni
publisher = toroni.Bus("test").publisher("t")
number = 0
print("ready", flush=True)
while True:
    payload = number.to_bytes(8, "little") * 50
    if number % 3 == 0:
        publisher.publish(payload)
    elif number % 3 == 1:
        publisher.publish_batch([payload])
    else:
        with publisher.compose(len(payload)) as view:
            view[:] = payload
    number += 1
"""


def test_a_killed_publisher_does_no_harm(directory: Path) -> None:
    """The publisher waits without limit for this process, which may be slow on a busy machine."""
    bus = toroni.Bus("test", policy=toroni.Policy.wait(None))
    subscriber = bus.subscribe("t")
    publisher = bus.publisher("t")
    for count in (1, 10, 300, 3000):
        child = start(ENDLESS)
        try:
            for number in range(count):
                payload = subscriber.receive(timeout=SECONDS)
                assert payload is not None
                assert payload.payload == number.to_bytes(8, "little") * 50
        finally:
            child.kill()
            child.communicate()
        following = count
        while (message := subscriber.receive(timeout=0.05)) is not None:
            assert message.payload == following.to_bytes(8, "little") * 50
            following += 1
        publisher.publish(b"alive", timeout=SECONDS)
        message = subscriber.receive(timeout=SECONDS)
        assert message is not None
        assert message.payload == b"alive"


# Overwrites the ring several times, and then waits for the subscriber, which may be slower. The subscriber receives what
# is left, and while it copies the last messages, the next round begins.
OVERWRITING = """
import sys, time, toroni, numpy
publisher = toroni.Bus("over").publisher("t")
payload = numpy.zeros(int(sys.argv[1]), numpy.uint64)
rush = 4 * (1 << 19) // payload.nbytes
number = 0
print("ready", flush=True)
while True:
    for _ in range(rush):
        payload[:] = number
        publisher.publish(payload)
        number += 1
    time.sleep(0.0005 * (number // rush % 3))
"""


@pytest.mark.parametrize("way", ["receive", "receive_into", "receive_many"])
@pytest.mark.parametrize("words", [100, 20_000])
def test_no_message_is_torn_and_no_loss_is_silent(directory: Path, way: str, words: int) -> None:
    """The publisher never waits, and overwrites messages that are being copied."""
    with toroni.Bus("over", capacity=1 << 19, policy=toroni.Policy.overwrite()) as bus:
        subscriber = bus.subscribe("t")
        child = start(OVERWRITING, str(words))
        received, lost, lapses, following = 0, 0, 0, 0
        target = numpy.empty(words, numpy.uint64)
        try:
            assert line(child) == "ready"
            # On a machine of any speed, only the counts end the loop if all is well.
            until = time.monotonic() + 10 * SECONDS
            while (lapses < 30 or received < 30) and time.monotonic() < until:
                messages: list[tuple[int, numpy.typing.NDArray[numpy.uint64]]]
                try:
                    if way == "receive_into":
                        messages = [(subscriber.receive_into(target).sequence, target)]
                    else:
                        some = [subscriber.receive()] if way == "receive" else subscriber.receive_many()
                        messages = [
                            (one.sequence, numpy.frombuffer(one.payload, numpy.uint64)) for one in some
                        ]
                except toroni.Lapped as lapped:
                    lost += lapped.lost
                    lapses += 1
                    following += lapped.lost
                    # Lets the publisher overtake again: before the next call, or perhaps while that copies.
                    time.sleep(0.0005 * (lapses % 5))
                    while lapses % 2 == 0 and subscriber.lag_bytes <= 1 << 19 and time.monotonic() < until:
                        time.sleep(0.0005)
                    continue
                for sequence, payload in messages:
                    assert sequence == following
                    assert payload.size == words
                    assert payload.min() == payload.max() == sequence
                    following += 1
                    received += 1
        finally:
            child.kill()
            child.communicate()
        assert lapses >= 30
        assert received >= 30
        # A loss after the last returned messages may be kept for the next call.
        while True:
            try:
                rest = subscriber.receive_many(timeout=0)
            except toroni.Lapped as lapped:
                lost += lapped.lost
                lapses += 1
            else:
                received += len(rest)
                if not rest:
                    break
        stats = subscriber.stats()
        assert (stats.lost_messages, stats.lapses) == (lost, lapses)
        assert stats.received == received


def test_a_subscriber_that_is_killed_stops_no_publisher(small: toroni.Bus) -> None:
    child = start(
        'import toroni, time; s = toroni.Bus("small").subscribe("t"); print("r", flush=True); time.sleep(600)'
    )
    try:
        assert line(child) == "r"
        publisher = small.publisher("t")
        with pytest.raises(toroni.Timeout):
            for _ in range(100):
                publisher.publish(bytes(1000), timeout=0.05)
    finally:
        child.kill()
        child.communicate()
    for _ in range(100):
        publisher.publish(bytes(1000), timeout=SECONDS)


INTERRUPTED = """
import sys, toroni
mode = sys.argv[1]
bus = toroni.Bus("small")
publisher, subscriber = bus.publisher("t"), bus.subscribe("u", gating=False)
try:
    print("ready", flush=True)
    if mode == "receive":
        subscriber.receive()
    elif mode == "receive spinning":
        bus.subscribe("u", wait="spin").receive()
    elif mode == "receive many":
        subscriber.receive_many()
    elif mode == "receive into":
        subscriber.receive_into(bytearray(10))
    elif mode == "receive iterating":
        for message in subscriber: pass
    elif mode == "publish":
        while True: publisher.publish(bytes(1000))
    elif mode == "batch":
        while True: publisher.publish_batch([bytes(1000)] * 3)
    elif mode == "burst":
        publisher.burst([bytes(1000)] * 1000)
except KeyboardInterrupt as interrupt:
    print("interrupted", getattr(interrupt, "published", None), flush=True)
"""


@pytest.mark.parametrize(
    "mode",
    [
        "receive",
        "receive spinning",
        "receive many",
        "receive into",
        "receive iterating",
        "publish",
        "batch",
        "burst",
    ],
)
def test_ctrl_c_ends_every_wait(small: toroni.Bus, mode: str) -> None:
    """The slow subscriber belongs to this process, so the publisher in the other process waits."""
    watched = small.subscribe("t")
    child = start(INTERRUPTED, mode)
    try:
        assert line(child) == "ready"
        if not mode.startswith("receive"):
            # The publisher waits when the ring is full.
            deadline = time.monotonic() + SECONDS
            while watched.lag_bytes < 60_000 and time.monotonic() < deadline:
                time.sleep(0.01)
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=SECONDS)
    finally:
        child.kill()
    assert out.startswith("interrupted"), err
    if mode == "burst":
        assert int(out.split()[1]) == len(watched.receive_many()) > 50


def test_a_handler_of_a_signal_runs_during_a_wait(bus: toroni.Bus) -> None:
    """The handler may use the bus, and even the subscriber that waits."""
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    seen = []

    def handle(number: int, frame: object) -> None:
        seen.append(subscriber.try_receive())
        publisher.publish(b"from the handler")

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        message = subscriber.receive(timeout=SECONDS)
        assert message is not None
        assert message.text == "from the handler"
        assert seen == [None]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_handles_do_not_work_in_the_child_of_a_fork(bus: toroni.Bus) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    publisher.publish(b"before")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for call in (
                lambda: publisher.publish(b""),
                lambda: publisher.burst([b""]),
                subscriber.receive,
                subscriber.receive_many,
                lambda: subscriber.receive_into(bytearray(10)),
                subscriber.interrupt,
                lambda: publisher.try_publish(b""),
                lambda: bus.publisher("t"),
                bus.stats,
            ):
                try:
                    call()
                except toroni.Forked:
                    continue
                os._exit(2)
            subscriber.close()
            publisher.close()
            with toroni.Bus("test") as own:
                own.publisher("t").publish(b"from the child")
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [subscriber.receive().text, subscriber.receive().text] == ["before", "from the child"]


def test_a_child_of_a_fork_waits_for_no_lock_of_coroutines(bus: toroni.Bus) -> None:
    """A thread of the parent holds the subscriber, and does not exist in the child."""

    async def receive() -> None:
        bus.publisher("t").publish(b"x")
        for subscriber in (kept, dropped):
            await subscriber.receive_async()

    kept, dropped = bus.subscribe("t"), bus.subscribe("t")
    asyncio.run(receive())
    has_locks, ended = threading.Event(), threading.Event()

    def hold() -> None:
        with _asyncio._states[kept].lock, _asyncio._states[dropped].lock:
            has_locks.set()
            ended.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    has_locks.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(int(SECONDS))
        code = 1
        try:
            kept.close()
            del dropped
            code = 0
        finally:
            os._exit(code)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        ended.set()
        thread.join()


def test_a_child_of_a_fork_waits_for_no_thread_of_its_parent(bus: toroni.Bus) -> None:
    """The process forks while a thread of the parent is at any step of using the subscriber."""
    subscriber = bus.subscribe("t")
    ended = threading.Event()

    def use() -> None:
        while not ended.is_set():
            subscriber.receive(timeout=0.00002)

    # On a busy machine, a fork waits for these threads, for up to a second.
    count = 60
    threads = [threading.Thread(target=use, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    codes = []
    try:
        for _ in range(count):
            child = os.fork()
            if child == 0:
                # Only the exit code leaves the child.
                signal.alarm(int(SECONDS))
                code = 1
                try:
                    subscriber.closed  # noqa: B018
                    try:
                        subscriber.try_receive()
                    except toroni.Forked:
                        code = 0
                    subscriber.close()
                    if not subscriber.closed:
                        code = 2
                finally:
                    os._exit(code)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            if codes[-1] != 0:
                break
    finally:
        ended.set()
    for thread in threads:
        thread.join(SECONDS)
    assert codes == [0] * count


def worker(number: int) -> int:
    """A worker of a pool."""
    with toroni.Bus("test") as bus:
        bus.publisher(f"worker/{number}").publish(number.to_bytes(4, "little"))
    return number


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_of_multiprocessing(bus: toroni.Bus, method: str) -> None:
    subscriber = bus.subscribe("worker/*")
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(worker, range(20)) == list(range(20))
    messages = subscriber.receive_many()
    assert sorted(int.from_bytes(message.payload, "little") for message in messages) == list(range(20))
    assert [message.sequence for message in messages] == list(range(20))


def open_again() -> None:
    """Uses the bus in the child of a fork. SIGALRM ends the child if it hangs."""
    signal.alarm(int(SECONDS))
    with toroni.Bus("test") as bus, bus.subscribe("child") as subscriber:
        bus.publisher("child").publish(b"from the child")
        assert subscriber.receive().text == "from the child"


def test_a_child_of_a_busy_process_opens_the_bus_again(directory: Path) -> None:
    """The child must not need a lock that another thread of its parent held at the fork.

    Each publisher checks all subscribers of its process, here once for each round of a small ring. With many
    subscribers the check is slow enough that a fork often happens during it.
    """
    idle_bus = toroni.Bus("idle", max_subscribers=300)
    idle = [idle_bus.subscribe("t") for _ in range(300)]
    busy = toroni.Bus("busy", capacity=64 << 10, policy=Policy.wait(0))
    payloads = [bytes(1000)] * 1000
    ended = threading.Event()

    def publish() -> None:
        publisher = busy.publisher("t")
        with busy.subscribe("u"):
            while not ended.is_set():
                publisher.burst(payloads)

    threads = [threading.Thread(target=publish) for _ in range(2)]
    for thread in threads:
        thread.start()
    codes = []
    try:
        for _ in range(12):
            child = multiprocessing.get_context("fork").Process(target=open_again)
            child.start()
            child.join()
            codes.append(child.exitcode)
            if codes[-1] != 0:
                break
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert codes == [0] * 12
    for subscriber in idle:
        subscriber.close()


def test_the_programs_of_the_test_across_languages_understand_each_other(bus: toroni.Bus) -> None:
    folder = Path(__file__).parent.parent / "conformance"
    expected = None
    for receiving in ("receive", "timeout", "in-place", "descriptor"):
        for publishing in ("one", "try", "batch", "burst", "in-place"):
            first = bus.stats().sequence
            command = [sys.executable, folder / "subscribe.py", "test", "t/**", "40", receiving]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            subscriber = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]
            command = [sys.executable, folder / "publish.py", "test", "t/p", "7", "40", "90", publishing]
            publisher = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]
            try:
                assert [line(subscriber), line(publisher)] == ["ready", "ready"]
                subscriber.stdin.write("\n")
                subscriber.stdin.flush()
                said = publisher.communicate("\n", timeout=SECONDS)
                received = subscriber.communicate(timeout=SECONDS)
            finally:
                publisher.kill()
                subscriber.kill()
            assert said == ("published\t40\n", "")
            lines = [one.split("\t") for one in received[0].splitlines()]
            assert lines[-1] == ["done", "40", "0", "0"], received[1]
            assert [one[:3] for one in lines[:-1]] == [["message", str(first + n), "t/p"] for n in range(40)]
            assert [int(one[3]) for one in lines[:-1]] == [16 + n * 37 % 75 for n in range(40)]
            hashes = [one[4] for one in lines[:-1]]
            expected = expected or hashes
            assert hashes == expected
