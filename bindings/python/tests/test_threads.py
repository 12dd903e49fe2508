"""Threads of Python, and leaks."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from random import Random

import pytest
from conftest import SECONDS

import toroni


def in_threads(*calls: Callable[[], None]) -> None:
    """Runs each function in a thread, and raises what one of them raises."""
    errors: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "it hangs"
    if errors:
        raise errors[0]


def test_threads_share_a_publisher_and_a_subscriber(small: toroni.Bus) -> None:
    publisher, subscriber = small.publisher("t"), small.subscribe("t")
    count, received = 2000, []

    def publish(first: int) -> None:
        for number in range(first, first + count, 4):
            publisher.publish(number.to_bytes(8, "little"))
            publisher.burst((number + one).to_bytes(8, "little") for one in (1, 2, 3))

    def receive() -> None:
        buffer = bytearray(8)
        for turn in range(count):
            if turn % 4 == 0:
                received.append(int.from_bytes(subscriber.receive().payload, "little"))
            elif turn % 4 == 1:
                subscriber.receive_into(buffer)
                received.append(int.from_bytes(buffer, "little"))
            elif turn % 4 == 2:
                some = subscriber.receive_many(1)
                received.append(int.from_bytes(some[0].payload, "little"))
            else:
                received.append(int.from_bytes(next(subscriber).payload, "little"))

    in_threads(*[lambda first=first: publish(first) for first in (0, count)], receive, receive)
    assert sorted(received) == list(range(2 * count))
    assert subscriber.stats() == toroni.SubscriberStats(2 * count, 0, 0)


def test_other_threads_run_while_one_waits(small: toroni.Bus) -> None:
    subscriber = small.subscribe("t")
    publisher = small.publisher("u")
    full = small.subscribe("u")
    assert full.try_receive() is None
    started = threading.Event()
    published = 0

    def receive() -> None:
        started.set()
        assert subscriber.receive().payload == b"end"

    def publish() -> None:
        # Not the thread of the subscriber that publishers wait for.
        nonlocal published
        for _ in range(100):
            publisher.publish(bytes(1000), timeout=SECONDS)
            published += 1

    def waits() -> int:
        publishers = small.stats().publishers
        assert publishers is not None
        return publishers[0].waits

    def count() -> None:
        assert started.wait(SECONDS)
        deadline = time.monotonic() + SECONDS
        while waits() == 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        # Waits for the mutex without a call of the library: the waiting thread must detach from the interpreter.
        for _ in range(50):
            time.sleep(0.001)
        assert 0 < published < 100, "it waits, until this thread ends that"
        full.close()
        small.publisher("t").publish(b"end")

    in_threads(receive, publish, count)


@pytest.mark.parametrize(
    ("way", "length", "count"),
    [("receive", 24 << 20, 1), ("receive_into", 24 << 20, 1), ("many", 60_000, 400), ("many", 1000, 24_000)],
)
def test_other_threads_run_while_one_copies(directory: object, way: str, length: int, count: int) -> None:
    """Otherwise no other thread runs as long as the call takes."""
    until, ended = time.monotonic() + 4 * SECONDS, threading.Event()
    longest, computed = 1.0, 0.0
    turns: list[float] = []

    def take_turns() -> None:
        while not ended.is_set():
            turns.append(time.monotonic())
            time.sleep(0)

    thread = threading.Thread(target=take_turns)
    before = sys.getswitchinterval()
    try:
        # A call that lets others run lets them run at once.
        sys.setswitchinterval(1e-5)
        with toroni.Bus("large", capacity=64 << 20) as bus:
            publisher, payload, target = bus.publisher("t"), bytes(length), bytearray(length)
            thread.start()
            # A busy machine may not run the other thread meanwhile, but not each time.
            while longest > computed / 2 and time.monotonic() < until:
                with bus.subscribe("t") as subscriber:
                    publisher.burst([payload] * count)
                    turns.clear()
                    while not turns:
                        time.sleep(0)
                    began, computed = time.monotonic(), time.thread_time()
                    if way == "many":
                        received: object = subscriber.receive_many(count)
                    elif way == "receive":
                        received = subscriber.receive()
                    else:
                        received = subscriber.receive_into(target)
                    computed, end = time.thread_time() - computed, time.monotonic()
                    while turns[-1] <= end:
                        time.sleep(0)
                    seen = list(turns)
                    pauses = itertools.pairwise(seen)
                    longest = max(to - since for since, to in pauses if to > began and since < end)
                    assert len(received) == (count if way == "many" else length)  # type: ignore[arg-type]
    finally:
        sys.setswitchinterval(before)
        ended.set()
        thread.join(SECONDS)
    assert longest <= computed / 2


def test_an_exception_of_a_signal_handler_is_raised_after_a_close(bus: toroni.Bus) -> None:
    """A loop over messages raises the exception of a signal handler, even if the handler closed the subscriber."""
    subscriber = bus.subscribe("t")

    def handle(number: int, frame: object) -> None:
        subscriber.close()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handle)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            list(subscriber)
    finally:
        signal.signal(signal.SIGALRM, before)


# The program ends by itself, or hangs, and then no thread of it can be ended. There are more threads than can be served
# before a waiting thread checks for signals.
HANDLING = """
import signal, threading, time, toroni
bus = toroni.Bus("test")
subscriber, publisher = bus.subscribe("t"), bus.publisher("t")
seen = []

def handle(number, frame):
    try:
        subscriber.stats()
        subscriber.try_receive()
        seen.append(subscriber.position)
    except toroni.Closed:
        return
    signal.setitimer(signal.ITIMER_REAL, 0.01)

def receive():
    try:
        while True: subscriber.receive()
    except toroni.Closed:
        pass

def publish():
    while len(seen) < 4:
        publisher.publish(b"x")
        time.sleep(0.2)
    subscriber.close()

signal.signal(signal.SIGALRM, handle)
threads = [threading.Thread(target=one) for one in [receive] * 3 + [publish]]
for thread in threads: thread.start()
signal.setitimer(signal.ITIMER_REAL, 0.01)
receive()
signal.signal(signal.SIGALRM, signal.SIG_IGN)
for thread in threads: thread.join()
print("ended", flush=True)
"""


def test_a_signal_handler_may_use_a_subscriber_that_others_wait_for(bus: toroni.Bus) -> None:
    """The handler runs in a thread that waits for the mutex. It must block neither this thread nor others."""
    child = subprocess.Popen(
        [sys.executable, "-c", HANDLING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.communicate(timeout=SECONDS) == ("ended\n", "")
    finally:
        child.kill()


@pytest.mark.parametrize("notify", ["futex", "datagram", "multicast"])
def test_closing_ends_the_waits_of_other_threads(directory: object, notify: str) -> None:
    with toroni.Bus("b", notify=notify) as bus:
        subscriber = bus.subscribe("t")
        waiting = threading.Barrier(4)

        def receive() -> None:
            waiting.wait(SECONDS)
            with pytest.raises(toroni.Closed):
                subscriber.receive()

        def iterate() -> None:
            waiting.wait(SECONDS)
            assert list(subscriber) == []

        def close() -> None:
            waiting.wait(SECONDS)
            time.sleep(0.05)
            subscriber.close()

        in_threads(receive, iterate, receive, close)
        assert bus.stats().subscribers == []


@pytest.mark.parametrize("way", ["receive", "receive_many", "receive_into", "iterate"])
def test_an_interruption_ends_one_wait(bus: toroni.Bus, way: str) -> None:
    publisher, subscriber, target = bus.publisher("t"), bus.subscribe("t"), bytearray(1)
    calls: dict[str, Callable[[], object]] = {
        "receive": subscriber.receive,
        "receive_many": subscriber.receive_many,
        "receive_into": lambda: subscriber.receive_into(target),
        "iterate": lambda: next(subscriber),
    }

    def wait() -> None:
        with pytest.raises(toroni.Interrupted):
            calls[way]()

    # An interrupt before the wait is kept, and takes no message. Several count as one.
    for delay in (0, 0.05):

        def interrupt(delay: float = delay) -> None:
            time.sleep(delay)
            subscriber.interrupt()

        in_threads(wait, interrupt)
    subscriber.interrupt()
    subscriber.interrupt()
    publisher.publish(b"x")
    calls[way]()
    assert subscriber.try_receive() is None
    assert subscriber.receive(timeout=0) is None
    wait()
    assert subscriber.receive(timeout=0.01) is None
    assert subscriber.stats() == toroni.SubscriberStats(1, 0, 0)
    subscriber.interrupt()
    subscriber.close()
    with pytest.raises(toroni.Closed):
        subscriber.interrupt()


def test_a_waiting_thread_respects_its_timeout(bus: toroni.Bus) -> None:
    """One thread waits for a message, and other threads can use the subscriber meanwhile."""
    subscriber = bus.subscribe("t")

    def receive() -> None:
        with pytest.raises(toroni.Closed):
            subscriber.receive()

    def others() -> None:
        for _ in range(3):
            assert subscriber.receive(timeout=0.01) is None
            assert subscriber.stats().received == 0
            assert subscriber.try_receive() is None
        subscriber.close()

    in_threads(receive, others)


@pytest.mark.parametrize("way", ["publish", "publish_batch", "burst"])
def test_a_policy_that_waits_long_is_kept_over_all_slices(directory: object, way: str) -> None:
    """Calls of the library end each quarter of a second to check for signals; the limit spans all of them."""
    with toroni.Bus("long", capacity=64 << 10, policy=toroni.Policy.wait(0.6)) as bus:
        subscriber, publisher = bus.subscribe("t"), bus.publisher("t")

        def publish() -> None:
            while publisher.try_publish(bytes(1000)) is not None:
                pass
            began = time.monotonic()
            payload = bytes(1000)
            getattr(publisher, way)(payload if way == "publish" else [payload])
            assert time.monotonic() - began >= 0.55

        in_threads(publish)
        with pytest.raises(toroni.Lapped):
            subscriber.receive()


@pytest.mark.parametrize("kind", ["bus", "publisher", "subscriber"])
def test_a_finalizer_may_use_the_handle_whose_error_is_made(bus: toroni.Bus, kind: str) -> None:
    """Python 3.11 collects garbage whenever it makes an object; later versions do so between calls."""
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    for handle in (bus, publisher, subscriber):
        handle.close()
    calls: dict[str, Callable[[], object]] = {
        "bus": bus.stats,
        "publisher": lambda: publisher.publish(b"x"),
        "subscriber": subscriber.try_receive,
    }
    call = calls[kind]
    # What a finalizer raises is not passed on, so it is stored and compared.
    raised: list[type[BaseException] | None] = []

    class Garbage:
        def __init__(self) -> None:
            self.myself = self

        def __del__(self) -> None:
            try:
                call()
            except BaseException as error:
                raised.append(type(error))
            else:
                raised.append(None)

    before = gc.get_threshold()
    try:
        for _ in range(20):
            Garbage()
            gc.set_threshold(1)
            # Not pytest.raises: the exception must be the first object that is made.
            try:
                call()
            except toroni.Closed:
                pass
            gc.set_threshold(*before)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert raised == [toroni.Closed] * 20


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a global lock")
def test_the_global_lock_stays_off() -> None:
    """Importing a module that needs the lock causes a warning."""
    subprocess.run([sys.executable, "-W", "error", "-c", "import toroni"], check=True)


def test_threads_do_everything_at_once(hasty: toroni.Bus) -> None:
    """Threads act in a random order, which TORONI_SEED=<number> changes. Finds most in a Python without a global lock."""
    seed = int(os.environ.get("TORONI_SEED", "1"))
    print("TORONI_SEED", seed)
    publisher = hasty.publisher("t/all")
    shared = [hasty.subscribe("t/**", gating=False) for _ in range(2)]
    own = [hasty.subscribe("**", gating=False) for _ in range(8)]

    def payload(random: Random) -> bytes:
        return bytes([random.randrange(256)]) * random.randrange(2000)

    def check(payload: bytes | bytearray) -> None:
        assert payload == payload[:1] * len(payload)

    def act(thread: int, random: Random, buffer: bytearray) -> None:
        which, mine = random.randrange(len(shared)), own[thread]
        match random.randrange(12):
            case 0:
                publisher.publish(payload(random))
            case 1:
                publisher.burst([payload(random) for _ in range(random.randrange(9))])
            case 2:
                publisher.publish_batch([payload(random) for _ in range(random.randrange(9))])
            case 3:
                with publisher.compose(80_000 // random.choice([9, 90])) as memory:
                    memory[:] = bytes(len(memory))
            case 4:
                check(bytes(shared[which].receive(timeout=0.001) or b""))
            case 5:
                for message in shared[which].receive_many(random.randrange(20), 0):
                    check(message.payload)
            case 6:
                received = shared[which].receive_into(buffer, 0)
                check(buffer[: len(received) if received else 0])
            case 7:
                replaced, shared[which] = shared[which], hasty.subscribe("t/**", gating=False)
                replaced.close()
            case 8:
                shared[which].stats(), shared[which].position, shared[which].fileno(), repr(shared[which])
            case 9:
                hasty.stats(), hasty.topics(), gc.collect(0)
            case 10:
                check(mine.receive(timeout=1).payload if mine.lag_bytes else b"")  # type: ignore[union-attr]
            case _:
                with toroni.Bus(f"other{random.randrange(3)}") as other, other.router() as router:
                    router.on("**")(lambda message: check(message.payload))
                    other.publisher("t").publish(payload(random))
                    router.poll()

    def run(thread: int) -> None:
        random, buffer = Random(f"{seed} {thread}"), bytearray(10_000)
        for _ in range(300):
            try:
                act(thread, random, buffer)
            except (toroni.Closed, toroni.Lapped):
                # Another thread has closed the subscriber, or it was slow.
                pass

    in_threads(*[lambda thread=thread: run(thread) for thread in range(len(own))])
    for subscriber in own:
        left = True
        while left:
            try:
                left = bool(subscriber.receive_many(timeout=0))
            except toroni.Lapped:
                pass
        stats = subscriber.stats()
        assert stats.received + stats.lost_messages == hasty.stats().sequence


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def mappings() -> int:
    with open("/proc/self/maps") as maps:
        return sum("toroni-python-" in line for line in maps)


def test_nothing_is_left_of_many_handles(bus: toroni.Bus) -> None:
    def use(close: bool) -> None:
        other = toroni.Bus("other")
        publisher, subscriber = other.publisher("t"), other.subscribe("t")
        subscriber.fileno()
        publisher.publish(b"x")
        subscriber.receive()
        other.router().close()
        if close:
            publisher.close()
            subscriber.close()
            other.close()

    use(True)
    gc.collect()
    before = open_descriptors(), mappings()
    for turn in range(50):
        use(turn % 2 == 0)
    gc.collect()
    assert (open_descriptors(), mappings()) == before
    stats = toroni.Bus("other").stats()
    assert (stats.publishers, stats.subscribers, stats.sockets) == ([], [], [])


def test_memory_does_not_grow(bus: toroni.Bus) -> None:
    """A million small messages and some large ones. Leaking each message would leak tens of MB."""
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    small, large = [bytes(8)] * 1000, bytearray(1 << 20)

    def turn() -> None:
        for _ in range(100):
            publisher.burst(small)
            assert len(subscriber.receive_many()) == 1000
            publisher.publish(large)
            assert len(subscriber.receive()) == 1 << 20
            with pytest.raises(toroni.Invalid):
                subscriber.add_pattern("")

    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    turn()
    before = resident()
    for _ in range(3):
        turn()
    assert resident() - before < 16 << 20
