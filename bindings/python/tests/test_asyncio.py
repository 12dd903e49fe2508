"""Coroutines, event loops and routers."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import threading

import pytest
from conftest import SECONDS

import toroni
from toroni import _asyncio


def run(main: object) -> None:
    async def limited() -> None:
        await asyncio.wait_for(main, SECONDS)  # type: ignore[arg-type]

    asyncio.run(limited())


@pytest.mark.parametrize("notify", ["futex", "datagram", "multicast"])
def test_async_for(directory: object, notify: str) -> None:
    async def main() -> None:
        with toroni.Bus("b", notify=notify) as bus:
            publisher, subscriber = bus.publisher("t"), bus.subscribe("t")

            async def publish() -> None:
                for number in range(100):
                    publisher.publish(str(number).encode())
                    if number % 7 == 0:
                        await asyncio.sleep(0.001)
                await asyncio.sleep(0.01)
                subscriber.close()

            task = asyncio.create_task(publish())
            assert [int(message.text) async for message in subscriber] == list(range(100))
            await task

    run(main())


def test_a_cancelled_receive_takes_no_message(bus: toroni.Bus) -> None:
    async def main() -> None:
        publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
        received: list[int] = []
        for number in range(200):
            task = asyncio.create_task(subscriber.receive_async())
            for _ in range(number % 3):
                await asyncio.sleep(0)
            publisher.publish(str(number).encode())
            for _ in range(number % 4):
                await asyncio.sleep(0)
            task.cancel()
            try:
                received.append(int((await task).text))
            except asyncio.CancelledError:
                pass
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(bus.subscribe("u").receive_async(), 0)
        received += [int(message.text) for message in subscriber.receive_many(timeout=0)]
        assert received == list(range(200))

    run(main())


def test_others_run_where_messages_come_without_end(bus: toroni.Bus) -> None:
    async def main() -> None:
        publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        publisher.burst([b"x"] * 10_000)
        for _ in range(10_000):
            await subscriber.receive_async()
        assert turns >= 10
        turns = 0
        for _ in range(100):
            publisher.burst([b"x"] * 10)
            assert len(await subscriber.receive_many_async()) == 10
        assert turns >= 100
        task.cancel()

    run(main())


def test_one_task_at_a_time(bus: toroni.Bus) -> None:
    async def main() -> None:
        subscriber = bus.subscribe("t")
        first = asyncio.create_task(subscriber.receive_async())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await subscriber.receive_async()
        bus.publisher("t").publish(b"x")
        assert (await first).text == "x"
        assert await subscriber.receive_many_async(0) == []

    run(main())


def test_closing_from_another_thread_ends_the_loop(bus: toroni.Bus) -> None:
    async def main() -> None:
        subscriber = bus.subscribe("t")
        timer = threading.Timer(0.05, subscriber.close)
        timer.start()
        async for _ in subscriber:
            raise AssertionError("nothing was published")
        timer.join()
        subscriber = bus.subscribe("t")
        timer = threading.Timer(0.05, subscriber.close)
        timer.start()
        with pytest.raises(toroni.Closed):
            await subscriber.receive_async()
        timer.join()

    run(main())
    # Garbage of earlier tests may hold descriptors, and must not be collected meanwhile.
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    run(main())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("meanwhile", [False, True])
def test_closing_while_a_task_begins_to_wait(
    bus: toroni.Bus, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    """Another thread closes the subscriber after the task found no message, and before it is stored as the waiter.

    It either completes the close, or, with meanwhile, has only seen that no task waits when the task continues.
    """
    has_seen, is_added = threading.Event(), threading.Event()
    close_state = _asyncio._State.close

    def close(state: _asyncio._State) -> None:
        if threading.current_thread() is not threading.main_thread() and meanwhile:
            has_seen.set()
            # Lets the task continue if it can.
            is_added.wait(0.2)
        close_state(state)

    async def main() -> None:
        loop, subscriber = asyncio.get_running_loop(), bus.subscribe("t")
        create_future, add_reader = loop.create_future, loop.add_reader
        thread = threading.Thread(target=subscriber.close)

        def closed_before() -> asyncio.Future[object]:
            monkeypatch.setattr(loop, "create_future", create_future)
            thread.start()
            if meanwhile:
                assert has_seen.wait(SECONDS)
            else:
                thread.join(SECONDS)
            return create_future()

        def added(*arguments: object) -> None:
            add_reader(*arguments)  # type: ignore[arg-type]
            is_added.set()
            thread.join(SECONDS)

        monkeypatch.setattr(_asyncio._State, "close", close)
        monkeypatch.setattr(loop, "create_future", closed_before)
        monkeypatch.setattr(loop, "add_reader", added)
        with pytest.raises(toroni.Closed):
            await subscriber.receive_async()
        thread.join(SECONDS)
        monkeypatch.setattr(loop, "add_reader", add_reader)
        # The loop does not watch a number that was closed and reused.
        other = bus.subscribe("t")
        task = asyncio.create_task(other.receive_async())
        await asyncio.sleep(0)
        bus.publisher("t").publish(b"x")
        assert (await task).text == "x"

    run(main())


def test_the_loop_watches_its_own_descriptor(bus: toroni.Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop does not watch the subscriber's own descriptor, whose number may be reused after it is closed."""

    async def main() -> None:
        loop, subscriber = asyncio.get_running_loop(), bus.subscribe("t")
        watched: list[int] = []
        add_reader = loop.add_reader

        def added(descriptor: int, *arguments: object) -> None:
            watched.append(descriptor)
            add_reader(descriptor, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "add_reader", added)
        task = asyncio.create_task(subscriber.receive_async())
        await asyncio.sleep(0)
        [descriptor], number = watched, subscriber.fileno()
        assert descriptor != number
        # A duplicate, so both are readable at the same time.
        assert os.fstat(descriptor)[:3] == os.fstat(number)[:3]
        subscriber.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)
        # It stays open until the loop no longer watches it.
        os.fstat(descriptor)
        with pytest.raises(toroni.Closed):
            await task
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)

    run(main())


def test_losses_and_other_loops(hasty: toroni.Bus) -> None:
    """Two loops use one subscriber, one after the other."""
    publisher, subscriber = hasty.publisher("t"), hasty.subscribe("t")

    async def lose() -> None:
        publisher.burst([bytes(1000)] * 200)
        with pytest.raises(toroni.Lapped) as lapped:
            await subscriber.receive_async()
        assert lapped.value.lost + len(subscriber.receive_many()) == 200
        receiving = asyncio.create_task(subscriber.receive_async())
        await asyncio.sleep(0)
        publisher.publish(b"x")
        assert (await receiving).payload == b"x"

    run(lose())
    run(lose())


def test_a_loop_that_was_closed_leaves_no_waiter(bus: toroni.Bus) -> None:
    """A task of a closed loop never continued, so it left its waiter. It ends when it is collected as garbage."""
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    loop = asyncio.new_event_loop()
    task = loop.create_task(subscriber.receive_async())
    loop.run_until_complete(asyncio.sleep(0))
    assert not task.done()
    loop.close()

    async def main() -> None:
        nonlocal task
        receiving = asyncio.create_task(subscriber.receive_async())
        await asyncio.sleep(0)
        # The old task must not remove the waiter or the descriptor of this loop.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task = receiving
        gc.collect()
        with pytest.raises(RuntimeError, match="another task"):
            await subscriber.receive_async()
        publisher.publish(b"x")
        assert (await receiving).text == "x"

    run(main())


def test_a_descriptor_for_any_event_loop(bus: toroni.Bus) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    publisher.publish(b"early")
    readable, _, _ = select.select([subscriber], [], [], SECONDS)
    assert readable == [subscriber]
    early = subscriber.try_receive()
    assert early is not None
    assert early.text == "early"
    assert subscriber.try_receive() is None
    assert select.select([subscriber], [], [], 0) == ([], [], [])
    publisher.publish(b"late")
    assert select.select([subscriber], [], [], SECONDS)[0]
    assert subscriber.fileno() == subscriber.fileno()


def test_a_router_calls_each_handler_that_matches(bus: toroni.Bus) -> None:
    calls: list[tuple[str, str]] = []
    with bus.router() as router:

        @router.on("plant/*/temperature")
        def temperature(message: toroni.Message) -> None:
            calls.append(("temperature", message.topic))

        router.on("plant/**")(lambda message: calls.append(("all", message.topic)))
        with pytest.raises(toroni.Invalid):
            router.on("a//b")
        for topic in ("plant/a/temperature", "plant/b", "other"):
            bus.publisher(topic).publish(b"")
        bus.publisher("plant/c", to_descendants=True).publish(b"")
        assert router.poll() == 3
        assert calls == [
            ("temperature", "plant/a/temperature"),
            ("all", "plant/a/temperature"),
            ("all", "plant/b"),
            ("temperature", "plant/c"),
            ("all", "plant/c"),
        ]
        assert not router.run_once(timeout=0.01)
        thread = threading.Timer(0.05, router.close)
        thread.start()
        router.run()
        thread.join()


def test_a_router_is_interrupted_and_goes_on(bus: toroni.Bus) -> None:
    seen: list[str] = []
    with bus.router() as router:
        router.on("t")(lambda message: seen.append(message.text))
        thread = threading.Timer(0.05, router.interrupt)
        thread.start()
        with pytest.raises(toroni.Interrupted):
            router.run()
        thread.join()
        bus.publisher("t").publish(b"x")
        assert router.run_once(timeout=SECONDS)
        assert seen == ["x"]


def test_a_router_reports_losses_and_runs_in_a_loop(hasty: toroni.Bus) -> None:
    publisher = hasty.publisher("t")
    lost: list[int] = []
    seen: list[str] = []
    router = hasty.router()
    router.on("t")(lambda message: seen.append(message.topic))
    publisher.burst([bytes(1000)] * 200)
    with pytest.raises(toroni.Lapped):
        router.poll()
    router.poll()
    publisher.burst([bytes(1000)] * 200)
    router.on_lapped(lambda messages, size: lost.append(messages))
    router.poll()
    assert len(lost) == 1

    async def main() -> None:
        publisher.burst([bytes(1000)] * 200)
        task = asyncio.create_task(router.run_async())
        while router.subscriber.lag_bytes:  # noqa: ASYNC110 (there is no event to wait for)
            await asyncio.sleep(0.001)
        router.close()
        await task

    run(main())
    assert len(lost) == 2
