"""Publishing and receiving bytes: buffers, batches, compositions, losses."""

from __future__ import annotations

import array
import collections
import copy
import ctypes
import gc
import mmap
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import numpy.typing
import pytest

import toroni
from toroni import _composition


def test_every_kind_of_buffer(bus: toroni.Bus) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    anonymous = mmap.mmap(-1, 4096)
    payloads: list[Any] = [
        b"",
        b"abc",
        bytearray(b"abc"),
        memoryview(b"abcdef")[2:4],
        array.array("d", [1.0, 2.0]),
        anonymous,
        numpy.arange(12, dtype=numpy.float32).reshape(3, 4),
        numpy.empty((0, 3)),
        numpy.float64(3.0),
    ]
    for payload in payloads:
        publisher.publish(payload)
        assert subscriber.receive().payload == bytes(
            memoryview(payload).cast("B") if len(bytes(payload)) else b""
        )


def test_messages_that_are_not_kept_start_no_collection(bus: toroni.Bus) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    buffer = bytearray(10)
    phases: list[str] = []

    def note(phase: str, _info: dict[str, int]) -> None:
        phases.append(phase)

    gc.collect()
    gc.callbacks.append(note)
    try:
        for _ in range(3_000):
            publisher.publish(b"abc")
            publisher.publish(b"abc")
            subscriber.receive()
            subscriber.receive_into(buffer)
    finally:
        gc.callbacks.remove(note)
    assert not phases


def test_buffers_must_be_contiguous(bus: toroni.Bus) -> None:
    publisher = bus.publisher("t")
    for payload in ["text", 3, None, [1, 2]]:
        with pytest.raises(TypeError):
            publisher.publish(payload)  # type: ignore[arg-type]
    matrix = numpy.zeros((4, 4))
    strided: list[Any] = [matrix[:, 1], matrix.T, memoryview(b"abcdef")[::2]]
    for payload in strided:
        with pytest.raises(BufferError, match="contiguous"):
            publisher.publish(payload)
    with pytest.raises(ValueError):
        released = memoryview(b"abc")
        released.release()
        publisher.publish(released)


def test_arrays_of_any_size_come_back(bus: toroni.Bus) -> None:
    """Large messages are received in another way than small ones, from the second one on."""
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    for length in [0, 1, 7, 8, 4096, 65535, 65536, 65537, 1_000_000, 3, 1_000_001, 1_000_002, 5, 6]:
        payload = numpy.arange(length, dtype=numpy.uint32).astype(numpy.uint8)
        publisher.publish(payload)
        message = subscriber.receive()
        assert numpy.array_equal(numpy.frombuffer(message.payload, numpy.uint8), payload)
        assert len(message) == length and not numpy.frombuffer(message.payload, numpy.uint8).flags.writeable


def test_too_long(bus: toroni.Bus) -> None:
    publisher = bus.publisher("t")
    most = publisher.largest_message
    calls: list[Callable[[], object]] = [
        lambda: publisher.publish(bytes(most + 1)),
        lambda: publisher.try_publish(bytes(most + 1)),
        lambda: publisher.compose(most + 1),
        lambda: publisher.burst([b"", bytes(most + 1)]),
    ]
    for call in calls:
        with pytest.raises(toroni.TooLong) as error:
            call()
        assert (error.value.length, error.value.limit) == (most + 1, most)
    # More memory than any machine has: refused before it is allocated.
    with pytest.raises(toroni.TooLong) as error:
        publisher.compose(1 << 45)
    assert (error.value.length, error.value.limit) == (1 << 45, most)
    with pytest.raises(toroni.TooLong):
        publisher.publish_batch([bytes(most), b""])
    publisher.publish(bytes(most))


def test_batches_and_bursts(bus: toroni.Bus) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    for publish in (publisher.publish_batch, publisher.burst):
        publish([b"a", bytearray(b"b"), numpy.frombuffer(b"c", numpy.uint8)])
        publish((b"d",))
        publish(bytes([number]) for number in range(3))
        publish(numpy.arange(6, dtype=numpy.uint8).reshape(3, 2))
        publish([])
        publish(numpy.empty((0, 5)))
        publish(numpy.empty((2, 0)))
        payloads = [message.payload for message in subscriber.receive_many()]
        assert payloads == [b"a", b"b", b"c", b"d", b"\0", b"\1", b"\2", b"\0\1", b"\2\3", b"\4\5", b"", b""]
        for wrong in [b"abc", numpy.zeros(3)]:
            with pytest.raises(BufferError):
                publish(wrong)
        with pytest.raises(TypeError):
            publish([b"a", 1])  # type: ignore[list-item]
        with pytest.raises(BufferError):
            publish(numpy.zeros((4, 4))[:, :2])
        # None of these messages was published.
        assert subscriber.try_receive() is None


def test_every_exception_of_a_burst_has_the_published_number(small: toroni.Bus) -> None:
    publisher, subscriber = small.publisher("t"), small.subscribe("t")

    def interrupted() -> Iterator[bytes]:
        yield b"x"
        raise KeyboardInterrupt

    long = bytes(publisher.largest_message + 1)
    endings: list[tuple[type[BaseException], Callable[[], object]]] = [
        (TypeError, lambda: publisher.burst([b"x", 1])),  # type: ignore[list-item]
        (TypeError, lambda: publisher.burst(1)),  # type: ignore[arg-type]
        (BufferError, lambda: publisher.burst([b"x", numpy.zeros((4, 4))[:, 1]])),
        (BufferError, lambda: publisher.burst(b"abc")),
        (KeyboardInterrupt, lambda: publisher.burst(interrupted())),
        (toroni.Invalid, lambda: publisher.burst([b"x"], timeout=-1)),
        (toroni.TooLong, lambda: publisher.burst([b"a", b"b", long])),
    ]
    for kind, call in endings:
        with pytest.raises(kind) as ended:
            call()
        assert ended.value.published == 0  # type: ignore[attr-defined]
        assert subscriber.try_receive() is None
    with pytest.raises(toroni.WouldWaitForItself) as full:
        publisher.burst([bytes(1000)] * 100)
    assert full.value.published == len(subscriber.receive_many()) > 50
    publisher.close()
    with pytest.raises(toroni.Closed) as closed:
        publisher.burst([b"x"])
    assert closed.value.published == 0


def test_receive_many_stops_at_its_limit(bus: toroni.Bus) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    publisher.burst([bytes([number]) for number in range(10)])
    assert [message.payload[0] for message in subscriber.receive_many(4)] == [0, 1, 2, 3]
    assert subscriber.receive_many(0) == []
    assert [message.payload[0] for message in subscriber.receive_many(4)] == [4, 5, 6, 7]
    assert len(subscriber.receive_many()) == 2
    assert subscriber.receive_many(timeout=0) == []
    assert subscriber.receive_many(timeout=0.01) == []


def test_receive_into(bus: toroni.Bus) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    numbers = numpy.arange(1000, dtype=numpy.int64)
    target = numpy.zeros(1001, dtype=numpy.int64)
    publisher.publish(numbers)
    received = subscriber.receive_into(target)
    assert type(received) is toroni.Received
    assert (len(received), received.topic, received.sequence, received.position) == (8000, "t", 0, 0)
    assert numpy.array_equal(target[:1000], numbers) and target[1000] == 0
    assert subscriber.receive_into(target, timeout=0) is None
    unfit: list[Any] = [b"abc", memoryview(b"abc"), numpy.zeros((4, 4))[:, 1]]
    for wrong in unfit:
        with pytest.raises(BufferError):
            subscriber.receive_into(wrong)


class Plain(ctypes.Structure):
    _fields_ = [("O", ctypes.c_int32), ("P", ctypes.c_double)]


class Packed(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("kind", ctypes.c_int8), ("value", ctypes.c_int64)]


class Holder(ctypes.Structure):
    _fields_ = [("object", ctypes.py_object), ("number", ctypes.c_long)]


class Nested(ctypes.Structure):
    _fields_ = [("holders", Holder * 3), ("number", ctypes.c_int)]


# ctypes gives the next four a format that does not mention the object: it writes "B", or omits the field.
class PackedHolder(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("kind", ctypes.c_int8), ("object", ctypes.py_object)]


class Union(ctypes.Union):
    _fields_ = [("object", ctypes.py_object), ("number", ctypes.c_long)]


class AroundUnion(ctypes.Structure):
    _fields_ = [("number", ctypes.c_long), ("unions", Union * 2)]


class Derived(Holder):
    _fields_ = [("more", ctypes.c_int)]


OF_OBJECTS: list[Any] = [
    numpy.array([None, {}]),
    numpy.array(None),
    numpy.array([[None], [None]]),
    numpy.zeros(2, dtype=[("a", "f8"), ("b", "O")]),
    numpy.zeros(2, dtype=[("a", "f8"), ("b", "O")])[0],
    numpy.zeros(2, dtype=[("a", [("b", ">i4"), ("c", "O", (2, 3))])]),
    numpy.zeros(2, dtype=numpy.dtype({"names": ["a"], "formats": ["O"], "offsets": [16], "itemsize": 64})),
    # The buffer protocol has no code for times, nor for strings of variable length.
    numpy.zeros(2, dtype=[("a", "M8[s]"), ("b", "O")]),
    numpy.array(["text"], dtype=numpy.dtypes.StringDType()),
    memoryview(numpy.array([None]).data),
    pickle.PickleBuffer(numpy.array([None]).data),
    ctypes.py_object(None),
    (ctypes.py_object * 2)(),
    Holder(),
    (Holder * 2)(),
    Nested(),
    PackedHolder(),
    (PackedHolder * 2)(),
    Union(),
    AroundUnion(),
    Derived(),
    memoryview(Derived()),
]

OF_POINTERS: list[Any] = [
    (ctypes.c_void_p * 2)(),
    (ctypes.c_char_p * 2)(),
    (ctypes.c_wchar_p * 2)(),
    (ctypes.POINTER(ctypes.c_int) * 2)(),
    ctypes.CFUNCTYPE(None)(),
    memoryview(bytearray(16)).cast("P"),
]

OF_DATA: list[Any] = [
    # "T{f:O:f:Or:}": O is the name of a field.
    numpy.zeros(2, dtype=[("O", "f4"), ("Or", "f4")]),
    numpy.zeros(2, dtype="M8[s]"),
    numpy.zeros(1, dtype=[("a", "m8[s]"), ("b", "f8")]),
    numpy.zeros(1, dtype="c16"),
    numpy.zeros(2, dtype=[("Z", "c8")]),
    numpy.zeros(2, dtype="V8"),
    numpy.zeros(4, dtype=">U1"),
    (ctypes.c_wchar * 4)(),
    Plain(),
    (Packed * 2)()[0],
    memoryview(Packed()),
]


def name_of_buffer(buffer: Any) -> str:
    return f"{type(buffer).__name__} {getattr(buffer, 'dtype', '')}"


@pytest.mark.parametrize("buffer", OF_OBJECTS + OF_POINTERS, ids=name_of_buffer)
def test_every_call_refuses_a_buffer_of_objects_or_pointers(bus: toroni.Bus, buffer: Any) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    calls: list[Callable[[], object]] = [
        lambda: publisher.publish(buffer),
        lambda: publisher.publish(buffer, timeout=1),
        lambda: publisher.try_publish(buffer),
        lambda: publisher.publish_batch([b"first", buffer]),
        lambda: publisher.publish_batch((buffer,)),
        lambda: publisher.publish_batch(iter([buffer])),
        lambda: publisher.burst([b"first", buffer]),
    ]
    if getattr(buffer, "ndim", 1) > 1:
        calls += [lambda: publisher.publish_batch(buffer), lambda: publisher.burst(buffer)]
    for call in calls:
        with pytest.raises(BufferError, match="Python objects or pointers"):
            call()
        assert subscriber.try_receive() is None
    publisher.publish(bytes(1))
    with pytest.raises(BufferError, match=r"Python objects or pointers|cannot be written"):
        subscriber.receive_into(buffer)
    # The refused call took no message.
    assert subscriber.receive().payload == bytes(1)


@pytest.mark.parametrize("buffer", OF_DATA, ids=name_of_buffer)
def test_names_of_fields_do_not_matter(bus: toroni.Bus, buffer: Any) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    publisher.publish(bytes(range(1, 10)))
    assert len(subscriber.receive_into(buffer)) == 9
    publisher.publish(buffer)
    assert subscriber.receive().payload[:9] == bytes(range(1, 10))


def test_a_buffer_that_is_too_small_loses_no_message(bus: toroni.Bus) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    publisher.burst([b"first", b"second", b"third"])
    for room in (0, 4):
        with pytest.raises(toroni.TooLong) as error:
            subscriber.receive_into(bytearray(room))
        assert (error.value.length, error.value.limit) == (5, room)
    target = bytearray(100)
    assert subscriber.position == 0
    received = subscriber.receive_into(target)
    assert received.sequence == 0 and target[: len(received)] == b"first"
    with pytest.raises(toroni.TooLong):
        subscriber.receive_into(bytearray(3))
    assert subscriber.receive().text == "second"
    with pytest.raises(toroni.TooLong):
        subscriber.receive_into(bytearray(3))
    assert [message.text for message in subscriber.receive_many()] == ["third"]
    assert subscriber.stats() == toroni.SubscriberStats(received=3, lost_messages=0, lapses=0)


def test_a_message_is_pickled_as_its_bytes(bus: toroni.Bus) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    publisher.publish(b"abc")
    message = subscriber.receive()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        restored = pickle.loads(pickle.dumps(message, protocol))
        assert type(restored) is bytes
        assert restored == b"abc"
    # A copy within the process stays a message, because it cannot change.
    assert copy.copy(message) is message
    assert copy.deepcopy([message])[0] is message
    # Received has no bytes that could be pickled.
    publisher.publish(b"abc")
    received = subscriber.receive_into(bytearray(3))
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(received)


def test_a_composition_is_published_at_its_end(bus: toroni.Bus) -> None:
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    with publisher.compose(4) as view:
        assert len(view) == 4 and not view.readonly
        view[:] = b"abcd"
        assert subscriber.try_receive() is None
    assert subscriber.receive().payload == b"abcd"
    view[:] = b"late"
    with pytest.raises(ZeroDivisionError), publisher.compose(4) as view:
        view[:] = b"efgh"
        raise ZeroDivisionError
    assert subscriber.try_receive() is None
    with publisher.compose(0):
        pass
    assert subscriber.receive().payload == b""
    composition = publisher.compose(1)
    with composition, pytest.raises(RuntimeError):
        composition.__enter__()


@pytest.mark.parametrize("count", [100, 100_000])
def test_a_composition_that_is_kept_changes_no_message(bus: toroni.Bus, count: int) -> None:
    """A numpy array relies on the memory, even if the memoryview that it was made from does not know of it."""
    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    kept: list[numpy.typing.NDArray[numpy.float64]] = []
    for number in range(7):
        with publisher.compose(count * 8) as view:
            array = numpy.frombuffer(view, numpy.float64)
            array[:] = number
            for one in kept:
                one[:] = -1
        array[:] = -2
        if number % 3 == 0:
            kept.append(array)
        message = subscriber.receive()
        assert set(numpy.frombuffer(message.payload, numpy.float64)) == {float(number)}
    assert [set(one) for one in kept] == [{-1.0}, {-1.0}, {-2.0}]


def test_the_memory_of_compositions_is_used_again(bus: toroni.Bus) -> None:
    publisher = bus.publisher("t")
    places = set()
    for _ in range(10):
        with publisher.compose(1 << 20) as view:
            places.add(numpy.frombuffer(view, numpy.uint8).ctypes.data)
    assert len(places) <= 4


def test_threads_share_the_memory_of_compositions(bus: toroni.Bus) -> None:
    """Another thread takes the kept memory after its amount was read, and before the next step."""

    class Taken(collections.deque[bytearray]):
        def __len__(self) -> int:
            length = super().__len__()
            self.clear()
            return length

    publisher, subscriber = bus.publisher("t"), bus.subscribe("t")
    _composition._memory[publisher] = Taken([bytearray(100_000)] * 2, maxlen=2)
    with publisher.compose(100_000) as view:
        view[:] = b"x" * 100_000
    assert subscriber.receive().payload == b"x" * 100_000


def test_losses_are_counted_at_their_place(hasty: toroni.Bus) -> None:
    publisher = hasty.publisher("t")
    for receive in ("receive", "receive_many", "receive_into", "iterate"):
        subscriber = hasty.subscribe("t")
        first = hasty.stats().sequence
        for number in range(500):
            publisher.publish(number.to_bytes(2, "little") + bytes(998))
        numbers: list[int] = []
        lost, lapses = 0, 0
        buffer = bytearray(1000)
        while True:
            try:
                if receive == "receive_many":
                    some = subscriber.receive_many(7, timeout=0)
                    numbers += [message.sequence - first for message in some]
                    if not some:
                        break
                elif receive == "receive_into":
                    received = subscriber.receive_into(buffer, timeout=0)
                    if received is None:
                        break
                    assert int.from_bytes(buffer[:2], "little") == received.sequence - first
                    numbers.append(received.sequence - first)
                elif receive == "iterate":
                    numbers.append(next(subscriber).sequence - first)
                    if numbers[-1] == 499:
                        break
                else:
                    message = subscriber.receive(timeout=0)
                    if message is None:
                        break
                    numbers.append(message.sequence - first)
            except toroni.Lapped as lapped:
                assert lapped.lost > 0 and lapped.lost_bytes == lapped.lost * 1008
                lost += lapped.lost
                lapses += 1
        assert numbers == list(range(500 - len(numbers), 500)) and lost == 500 - len(numbers) > 0
        assert subscriber.stats() == toroni.SubscriberStats(len(numbers), lost, lapses)
        subscriber.close()


def test_a_loss_after_messages_is_raised_after_them(hasty: toroni.Bus) -> None:
    """receive_many returns the messages it has, and the next call raises Lapped; for both ways of copying."""
    for length in (100, 10_000):
        publisher, subscriber = hasty.publisher("t"), hasty.subscribe("t")
        publisher.burst([bytes(length)] * 3)
        assert len(subscriber.receive_many(1)) == 1
        publisher.burst([bytes(length)] * (4 * 65536 // length))
        got, lost = 1, 0
        while True:
            try:
                some = subscriber.receive_many(timeout=0)
            except toroni.Lapped as lapped:
                lost += lapped.lost
                continue
            if not some:
                break
            got += len(some)
        assert lost > 0 and got + lost == 3 + 4 * 65536 // length
        assert subscriber.stats().received == got and subscriber.stats().lost_messages == lost
        subscriber.close()


def test_a_subscriber_continues_with_the_newest_message(hasty: toroni.Bus) -> None:
    for receive in ("receive", "receive_many", "receive_into", "iterate"):
        publisher, subscriber = hasty.publisher("t"), hasty.subscribe("t", after_loss="newest")
        first = publisher.publish(bytes(100))
        assert len(subscriber.receive_many(1)) == 1
        publisher.burst([bytes(100)] * 2000)
        last = publisher.publish(b"last")
        with pytest.raises(toroni.Lapped) as raised:
            subscriber.receive(timeout=0)
        assert raised.value.lost == last - first - 1
        if receive == "receive_many":
            assert [message.payload for message in subscriber.receive_many()] == [b"last"]
        elif receive == "receive_into":
            received = subscriber.receive_into(bytearray(100))
            assert received is not None and received.sequence == last
        elif receive == "iterate":
            assert next(subscriber).payload == b"last"
        else:
            message = subscriber.receive()
            assert message is not None and message.payload == b"last"
        assert subscriber.receive(timeout=0) is None
        subscriber.close()


def test_messages_that_are_too_old_are_passed_over(directory: Path) -> None:
    with toroni.Bus("stamped", timestamps=True) as bus:
        fresh, patient = bus.subscribe("t", max_age=0), bus.subscribe("t", max_age=3600)
        bus.publisher("t").publish(b"x")
        assert fresh.receive(timeout=0) is None and fresh.stats() == toroni.SubscriberStats(0, 0, 0, stale=1)
        message = patient.receive()
        assert message is not None and message.payload == b"x" and patient.stats().stale == 0
        with pytest.raises(toroni.Invalid, match="max_age is -1"):
            bus.subscribe("t", max_age=-1)
        with pytest.raises(toroni.Invalid, match="after_loss"):
            bus.subscribe("t", after_loss="latest")  # type: ignore[arg-type]
