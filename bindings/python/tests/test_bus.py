"""Opening, settings, statistics, errors."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

import toroni
from toroni import Policy


def test_a_message_arrives_with_all_it_says(bus: toroni.Bus) -> None:
    subscriber = bus.subscribe("plant/**")
    bus.publisher("plant/boiler/temperature").publish(b"351.2")
    message = subscriber.receive()
    assert message.topic == "plant/boiler/temperature"
    assert (message.payload, bytes(message), message.text) == (b"351.2", b"351.2", "351.2")
    assert (message.sequence, message.position, message.next_position) == (0, 0, 16)
    assert (message.timestamp_ns, message.to_descendants, len(message)) == (None, False, 5)
    assert memoryview(message).tobytes() == b"351.2" and memoryview(message).readonly
    assert repr(message) == '<Message "plant/boiler/temperature", 5 bytes, sequence 0>'


def test_settings_and_statistics(directory: Path) -> None:
    policy = Policy.bounded(0.1, 1.0)
    with toroni.Bus.create(
        "b",
        capacity=1 << 16,
        policy=policy,
        lock="robust",
        notify="multicast:239.255.1.2:50000",
        max_publishers=3,
        timestamps=True,
        persistent=True,
        participant_name="me",
        mode=0o600,
    ) as bus:
        assert (bus.name, bus.path, len(bus.id)) == ("b", directory / "b", 32)
        stats = bus.stats()
        assert (stats.capacity, stats.policy, stats.lock) == (1 << 16, policy, "robust")
        assert (stats.notify, stats.max_publishers, stats.persistent) == (
            "multicast:239.255.1.2:50000",
            3,
            True,
        )
        publisher = bus.publisher("t")
        publisher.publish(b"abc")
        message = bus.subscribe("t", start="oldest", name="reader", gating=False).receive()
        assert message.timestamp_ns is not None and message.timestamp_ns >= stats.created_ns
        stats = bus.stats()
        assert stats.publishers is not None and stats.subscribers is not None
        assert [(one.name, one.messages) for one in stats.publishers] == [("me", 1)]
        assert not any(one.stopped or one.dumping for one in [*stats.publishers, *stats.subscribers])
        assert stats.sequence == 1 and stats.id == bus.id
        assert bus.topics() == [toroni.TopicStats(name="t", messages=1, bytes=3)]


def test_patterns_show(bus: toroni.Bus) -> None:
    subscriber = bus.subscribe("plant/*", "alarm")
    router = bus.router()
    router.on("b/**")(lambda message: None)
    subscribers = bus.stats().subscribers
    assert subscribers is not None
    assert [one.patterns for one in subscribers] == [["plant/*", "alarm"], ["b/**"]]
    assert not any(one.patterns_truncated for one in subscribers)
    subscriber.add_pattern("x" * 255)
    subscriber.add_pattern("y" * 255)
    subscribers = bus.stats().subscribers
    assert subscribers is not None and subscribers[0].patterns_truncated
    assert subscribers[0].patterns == ["plant/*", "alarm", "x" * 255]
    router.close()


def test_positions_are_starts(bus: toroni.Bus) -> None:
    bus.publisher("t").publish_batch([b"on", b"off"])
    first = bus.subscribe("t", start="oldest").receive()
    assert bus.subscribe("t", start=first.next_position).receive().text == "off"
    with pytest.raises(toroni.Invalid, match="no message starts"):
        bus.subscribe("t", start=3)


def test_sequences_are_starts(bus: toroni.Bus) -> None:
    bus.publisher("t").publish_batch([b"on", b"off"])
    first = bus.subscribe("t", start=("sequence", 0)).receive()
    assert (first.text, first.sequence) == ("on", 0)
    assert bus.subscribe("t", start=("sequence", 1)).receive().text == "off"
    assert bus.subscribe("t", start=("sequence", 2)).try_receive() is None
    with pytest.raises(toroni.Invalid, match="beyond the end"):
        bus.subscribe("t", start=("sequence", 3))
    with pytest.raises(toroni.Invalid):
        bus.subscribe("t", start=("sequence", -1))


def test_descendants(bus: toroni.Bus) -> None:
    subscriber = bus.subscribe("plant/boiler/*")
    bus.publisher("plant").publish(b"no")
    bus.publisher("plant", to_descendants=True).publish(b"stop")
    message = subscriber.receive()
    assert (message.topic, message.text, message.to_descendants) == ("plant", "stop", True)
    publisher, to_all = bus.publisher("plant"), bus.publisher("plant", to_descendants=True)
    to_all.publish(b"again", timeout=1)
    # As large as can be, too; and only with that publisher.
    largest = bytes(to_all.largest_message)
    to_all.publish(largest)
    publisher.publish(b"no")
    assert [subscriber.receive().text, subscriber.receive().payload] == ["again", largest]
    assert subscriber.try_receive() is None
    with pytest.raises(toroni.TooLong):
        to_all.publish(largest + b"x")
    assert not toroni.matches("plant/boiler/*", "plant") and toroni.matches("plant/boiler/*", "plant", True)
    assert toroni.matches("plant/**", "plant/a/b") and not toroni.matches("plant/*", "plant/a/b")


def test_each_error_has_its_class(directory: Path) -> None:
    with pytest.raises(toroni.NotFound) as not_found:
        toroni.Bus.open_existing("none")
    assert isinstance(not_found.value, FileNotFoundError) and isinstance(not_found.value, toroni.Error)
    assert str(directory / "none") in str(not_found.value)
    toroni.Bus.create("b")
    with pytest.raises(toroni.AlreadyExists):
        toroni.Bus.create("b")
    broken_ones: list[Callable[[], object]] = [
        lambda: toroni.Bus("a/b"),
        lambda: toroni.Bus("c", capacity=1000),
        lambda: toroni.Bus("c", capacity=-1),
        lambda: toroni.Bus("c", capacity=1 << 70),
        lambda: toroni.Bus("c", lock="none"),  # type: ignore[arg-type]
        lambda: toroni.Bus("c", notify="multicast:nowhere"),
        lambda: toroni.Bus("c", writers_group="no such group"),
        lambda: toroni.Bus("c", require=["colour"]),  # type: ignore[list-item]
        lambda: toroni.Bus("b").publisher("a//b"),
        lambda: toroni.Bus("b").subscribe("a/***"),
        lambda: toroni.Bus("b").publisher("t", policy=Policy.wait(None)),
        lambda: toroni.matches("", "t"),
        lambda: Policy.wait(-1.0),
        lambda: Policy.wait(float("nan")),
    ]
    for broken in broken_ones:
        with pytest.raises(toroni.Invalid):
            broken()
    wrong_ones: list[Callable[[], object]] = [
        lambda: toroni.Bus("c", colour=1),  # type: ignore[call-arg]
        lambda: toroni.Bus("c", capacity="much"),  # type: ignore[arg-type]
        lambda: toroni.Publisher(),
        lambda: toroni.Subscriber(),
    ]
    for wrong in wrong_ones:
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(toroni.SettingMismatch, match="capacity"):
        toroni.Bus("b", capacity=1 << 20, require=["capacity"])
    with pytest.raises(toroni.ForeignOwner):
        toroni.Bus("b", require_owner=os.getuid() + 1)
    (directory / "file").touch()
    with pytest.raises(toroni.Error):
        toroni.Bus("b", directory=directory / "file")


def test_errors_name_the_argument_and_its_rule(bus: toroni.Bus) -> None:
    wrong: dict[str, tuple[type[Exception], Callable[[], object]]] = {
        "capacity is '4M', but must be an integer": (
            TypeError,
            lambda: toroni.Bus("c", capacity="4M"),  # type: ignore[arg-type]
        ),
        "max_publishers is -1, but must be an integer of at least 0": (
            toroni.Invalid,
            lambda: toroni.Bus("c", max_publishers=-1),
        ),
        "persistent is 'no', but must be True or False": (
            TypeError,
            lambda: toroni.Bus("c", persistent="no"),  # type: ignore[arg-type]
        ),
        "lock is 3, but must be a string": (
            TypeError,
            lambda: toroni.Bus("c", lock=3),  # type: ignore[arg-type]
        ),
        "directory is b'/tmp', but must be a string or a path": (
            TypeError,
            lambda: toroni.Bus("c", directory=b"/tmp"),  # type: ignore[arg-type]
        ),
        "mode is 600, but must be permission bits up to 0o777, such as 0o600": (
            toroni.Invalid,
            lambda: toroni.Bus("c", mode=600),
        ),
        'notify is "bell", but must be one of futex, datagram, multicast, multicast:ADDRESS:PORT': (
            toroni.Invalid,
            lambda: toroni.Bus("c", notify="bell"),
        ),
        'policy is "wait:1s", but must be one of overwrite, wait, wait:forever, or a toroni.Policy': (
            toroni.Invalid,
            lambda: toroni.Bus("c", policy="wait:1s"),  # type: ignore[arg-type]
        ),
        "policy is 3, but must be one of overwrite, wait, wait:forever, or a toroni.Policy": (
            TypeError,
            lambda: bus.publisher("t", policy=3),  # type: ignore[arg-type]
        ),
        "require is 3, but must be a string or a list of strings": (
            TypeError,
            lambda: toroni.Bus("test", require=3),  # type: ignore[arg-type]
        ),
        "a pattern is 3, but must be a string or a list of strings": (
            TypeError,
            lambda: bus.subscribe("a", 3),  # type: ignore[arg-type]
        ),
        "a pattern is b'a', but must be a string or a list of strings": (
            TypeError,
            lambda: bus.subscribe(b"a"),  # type: ignore[arg-type]
        ),
        'start is "first", but must be one of latest, oldest, the position of a message, or ("sequence", n)': (
            toroni.Invalid,
            lambda: bus.subscribe("t", start="first"),  # type: ignore[arg-type]
        ),
        'start is -1, but must be one of latest, oldest, the position of a message, or ("sequence", n)': (
            toroni.Invalid,
            lambda: bus.subscribe("t", start=-1),
        ),
        'start is 1.5, but must be one of latest, oldest, the position of a message, or ("sequence", n)': (
            TypeError,
            lambda: bus.subscribe("t", start=1.5),  # type: ignore[arg-type]
        ),
        "start is ('position', 1), but must be one of latest, oldest": (
            TypeError,
            lambda: bus.subscribe("t", start=("position", 1)),  # type: ignore[arg-type]
        ),
    }
    for text, (kind, call) in wrong.items():
        with pytest.raises(kind) as raised:
            call()
        assert str(raised.value).startswith(text)


def test_an_error_of_the_argument_itself_stays(directory: Path) -> None:
    class Broken:
        def __index__(self) -> int:
            raise ZeroDivisionError

        def __fspath__(self) -> str:
            raise ZeroDivisionError

    calls: list[Callable[[], object]] = [
        lambda: toroni.Bus("c", capacity=Broken()),  # type: ignore[arg-type]
        lambda: toroni.Bus("c", directory=Broken()),
    ]
    for call in calls:
        with pytest.raises(ZeroDivisionError):
            call()


RUST = re.compile(r"::|\{|Some\(|\b(Wait|Overwrite|Bounded|Lease|Robust|Futex|Datagram|BusConfig)\b")


def test_no_message_speaks_of_rust(bus: toroni.Bus, hasty: toroni.Bus) -> None:
    """Settings can be objects of Python or words, as on the command line."""
    lapped = hasty.subscribe("t")
    hasty.publisher("t").burst([bytes(1000)] * 100)
    calls: list[Callable[[], object]] = [
        lambda: toroni.Bus.open_existing("none"),
        lambda: toroni.clean("none"),
        lambda: toroni.Bus("test", policy="overwrite", require="policy"),
        lambda: toroni.Bus("test", lock="robust", require="lock"),
        lambda: toroni.Bus("test", notify="datagram", require="notify"),
        lambda: bus.publisher("t", policy=Policy.bounded(0.1, 1)),
        lambda: toroni.Bus("c", policy=Policy.wait(4000)),
        lapped.receive,
        lambda: bus.subscribe("t", start=3),
    ]
    for call in calls:
        with pytest.raises(toroni.Error) as raised:
            call()
        assert RUST.search(str(raised.value)) is None, raised.value


def test_the_version_is_that_of_the_package() -> None:
    assert toroni.__version__ == importlib.metadata.version("toroni")


# Python ignores SIGXFSZ, so the kernel returns EFBIG.
LIMITED = """
import errno, resource, toroni
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    toroni.Bus("c", capacity=1 << 24)
except toroni.NoSpace as error:
    assert isinstance(error, toroni.System)
    print(errno.errorcode[error.errno], error)
"""


def test_no_space_is_an_error(directory: Path) -> None:
    """A file size above the limit of the process, and one above the size of any file system."""
    said = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True).stdout
    assert said.startswith("EFBIG") and "1048576" in said
    with pytest.raises(toroni.NoSpace) as error:
        toroni.Bus("c", capacity=1 << 40)
    assert error.value.errno == errno.ENOSPC


def test_the_default_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert toroni.default_directory() == directory
    monkeypatch.setenv("TORONI_DIR", "")
    assert toroni.default_directory() == Path("/dev/shm/toroni")
    monkeypatch.delenv("TORONI_DIR")
    assert toroni.default_directory() == Path("/dev/shm/toroni")


def test_an_empty_directory_is_refused(directory: Path) -> None:
    """An empty path is an error of the caller: the default directory contains buses of others."""
    calls: list[Callable[[], object]] = [
        lambda: toroni.Bus("test", directory=""),
        lambda: toroni.buses(""),
        lambda: toroni.clean(directory="", dry_run=True),
    ]
    for call in calls:
        with pytest.raises(toroni.Invalid, match="directory is empty"):
            call()


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), float("-inf")])
def test_an_invalid_timeout_is_refused_even_without_a_wait(bus: toroni.Bus, timeout: float) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    calls: list[Callable[[], object]] = [
        lambda: publisher.publish(b"x", timeout),
        lambda: publisher.publish(bytes(1 << 20), timeout),
        lambda: publisher.publish_batch([b"x"], timeout),
        lambda: publisher.burst([b"x"], timeout),
    ]
    for call in calls:
        with pytest.raises(toroni.Invalid, match="timeout"):
            call()
    assert subscriber.try_receive() is None
    publisher.publish(b"y")
    for receive in (subscriber.receive, subscriber.receive_many):
        with pytest.raises(toroni.Invalid, match="timeout"):
            receive(timeout=timeout)
    assert subscriber.receive().payload == b"y"


def test_errors_travel_between_processes() -> None:
    """multiprocessing pickles the exceptions of its workers."""
    lapped = toroni.Lapped("lost some", 3, 96)
    copy = pickle.loads(pickle.dumps(lapped))
    assert (str(copy), copy.lost, copy.lost_bytes) == ("lost some", 3, 96)
    long = pickle.loads(pickle.dumps(toroni.TooLong("too long", 10, 5)))
    assert (long.length, long.limit) == (10, 5)
    exclusive = pickle.loads(pickle.dumps(toroni.Exclusive("not now", "feed", 7)))
    assert (str(exclusive), exclusive.name, exclusive.pid) == ("not now", "feed", 7)


def test_closed_handles_say_so(bus: toroni.Bus) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    with bus, publisher, subscriber:
        pass
    assert bus.closed and publisher.closed and subscriber.closed
    assert "closed" in repr(bus) + repr(publisher) + repr(subscriber)
    calls: list[Callable[[], object]] = [
        lambda: bus.publisher("t"),
        bus.stats,
        lambda: publisher.publish(b""),
        lambda: publisher.burst([b""]),
        lambda: publisher.try_publish(b""),
        lambda: publisher.compose(1),
        subscriber.receive,
        subscriber.try_receive,
        subscriber.fileno,
        subscriber.stats,
        lambda: subscriber.receive_into(bytearray(1)),
    ]
    for call in calls:
        with pytest.raises(toroni.Closed):
            call()
    assert list(subscriber) == []
    for handle in (bus, publisher, subscriber):
        handle.close()


def test_a_bus_that_was_removed(bus: toroni.Bus) -> None:
    subscriber = bus.subscribe("t")
    for entry in sorted(bus.path.rglob("*"), reverse=True):
        entry.rmdir() if entry.is_dir() else entry.unlink()
    bus.path.rmdir()
    with pytest.raises(toroni.Unlinked):
        subscriber.receive(timeout=60)
    # The loop must not end as if the subscriber had been closed.
    with pytest.raises(toroni.Unlinked):
        list(subscriber)


def test_a_policy_without_a_duration_is_a_word(directory: Path) -> None:
    words: dict[Literal["overwrite", "wait", "wait:forever"], Policy] = {
        "overwrite": Policy.overwrite(),
        "wait": Policy.wait(),
        "wait:forever": Policy.wait(None),
    }
    for number, (word, policy) in enumerate(words.items()):
        with toroni.Bus.create(str(number), policy=word) as bus:
            assert bus.stats().policy == policy
            bus.publisher("t", policy=word).publish(b"x")
            bus.publisher("t", policy="overwrite").publish(b"x")


def test_names_may_come_in_a_list(bus: toroni.Bus) -> None:
    subscribers = [
        bus.subscribe("a", "b/*"),
        bus.subscribe(["a", "b/*"]),
        bus.subscribe(("a",), "b/*"),
        bus.subscribe(pattern for pattern in ["a", "b/*"]),
    ]
    for topic in ("a", "b/c", "d"):
        bus.publisher(topic).publish(b"x")
    for subscriber in subscribers:
        assert [message.topic for message in subscriber.receive_many()] == ["a", "b/c"]
    assert bus.subscribe([], start="oldest").try_receive() is None
    toroni.Bus("test", require="lock").close()
    with pytest.raises(toroni.SettingMismatch, match="capacity"):
        toroni.Bus("test", capacity=1 << 20, require=("lock", "capacity"))


def test_policies_are_values() -> None:
    assert Policy.wait() == Policy.wait(0.1) != Policy.wait(None)
    assert len({Policy.overwrite(), Policy.overwrite(), Policy.bounded(0.1, 1), Policy.wait()}) == 3
    assert [
        repr(one) for one in (Policy.wait(None), Policy.wait(0.5), Policy.overwrite(), Policy.bounded(0.1, 1))
    ] == [
        "Policy.wait(None)",
        "Policy.wait(0.5)",
        "Policy.overwrite()",
        "Policy.bounded(0.1, 1.0)",
    ]
