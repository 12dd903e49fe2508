"""Recordings, in files that the package mcap writes as `toroni record` does."""

import json
from pathlib import Path

import pytest
from mcap.writer import CompressionType, Writer

import toroni

BASE = 2**32 - 3


def write(path: Path, compression: CompressionType = CompressionType.ZSTD) -> None:
    with path.open("wb") as file:
        writer = Writer(file, compression=compression, chunk_size=4096)
        writer.start()
        writer.add_metadata("toroni", {"sequence_base": str(BASE)})
        lost = writer.register_channel("@toroni/lost", "json", 0, {"toroni.kind": "lost"})
        origin = writer.register_channel("@toroni/origin", "", 0, {"toroni.kind": "origin"})
        note = writer.register_channel("@toroni/note", "json", 0, {"toroni.kind": "note"})
        plain = writer.register_channel("plant/a", "", 0)
        below = writer.register_channel("plant", "", 0, {"toroni.to_descendants": "true"})

        def add(channel: int, number: int, data: bytes, stamp: int = 0) -> None:
            writer.add_message(channel, number * 10, data, number * 10 + stamp, (BASE + number) % 2**32)

        add(plain, 0, b"first")
        add(below, 1, b"all", 7)
        add(origin, 1, bytes(40))
        add(note, 1, b'{"kind": "paused"}')
        add(
            lost,
            2,
            json.dumps(
                {"from_sequence": BASE + 2, "messages": 3, "bytes": 99, "reason": "overtaken"}
            ).encode(),
        )
        add(plain, 5, b"\xff")
        origins = {"source": 1, "series": 2, "stream": 3, "from": 4, "until": 9}
        loss = {
            "from_sequence": 6,
            "messages": 5,
            "bound": "at_most",
            "reason": "budget",
            "scope": ["plant/**"],
        }
        add(lost, 6, json.dumps({**loss, "origin": origins}).encode())
        for number in range(7, 500):
            add(plain, number, b"x" * 50)
        writer.finish()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("compression", list(CompressionType))
def test_messages_and_losses(tmp_path: Path, compression: CompressionType) -> None:
    path = tmp_path / "a.mcap"
    write(path, compression)
    with toroni.open_recording(path) as recording:
        first = next(recording)
        assert (first.topic, first.payload, first.text, first.sequence) == (
            "plant/a",
            b"first",
            "first",
            BASE,
        )
        assert (first.timestamp_ns, first.received_ns, first.to_descendants) == (None, 0, False)
        second = next(recording)
        assert (second.to_descendants, second.timestamp_ns, bytes(second)) == (True, 17, b"all")
        with pytest.raises(toroni.Lapped) as lapped:
            next(recording)
        assert (lapped.value.lost, lapped.value.lost_bytes) == (3, 99)
        assert next(recording).text == "\ufffd"
        with pytest.raises(toroni.Lost) as lost:
            next(recording)
        assert (lost.value.start, lost.value.until) == (toroni.Origin(1, 2, 3, 4), 9)
        assert (lost.value.messages, lost.value.bound, lost.value.reason) == (5, "at_most", "budget")
        rest = list(recording)
    assert [message.sequence for message in rest] == list(range(BASE + 7, BASE + 500))


def test_values_of_retained_topics(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        writer.add_metadata("toroni", {"sequence_base": str(BASE)})
        lost = writer.register_channel("@toroni/lost", "json", 0, {"toroni.kind": "lost"})
        value, message, cleared = (
            writer.register_channel("plant/a", "", 0, {"toroni.retained": kind})
            for kind in ("value", "message", "cleared")
        )

        def add(channel: int, number: int, data: bytes) -> None:
            writer.add_message(channel, 1, data, 1, (BASE + number) % 2**32)

        loss = {"messages": 1, "bytes": 9, "reason": "no_room_for_value"}
        add(value, -7, b"before")
        for topic in ("plant/b", "other"):
            add(lost, 0, json.dumps({**loss, "from_sequence": BASE, "scope": [topic]}).encode())
        add(message, 5, b"change")
        add(cleared, 3, b"")
        add(cleared, 6, b"")
        writer.finish()  # type: ignore[no-untyped-call]
    with toroni.open_recording(path, "plant/*") as recording:
        first = next(recording)
        assert (first.text, first.sequence, first.is_retained, first.is_cleared) == (
            "before",
            BASE - 7,
            True,
            False,
        )
        with pytest.raises(toroni.ValueMissing) as missing:
            next(recording)
        assert (missing.value.topic, missing.value.sequence, missing.value.length) == ("plant/b", BASE, 9)
        rest = [(one.text, one.sequence - BASE, one.is_retained, one.is_cleared) for one in recording]
    assert rest == [("change", 5, False, False), ("", 3, False, True), ("", 6, False, True)]


def test_patterns(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write(path)
    recording = toroni.open_recording(path, "other", "plant/b/*")
    # It is for all below plant.
    assert next(recording).text == "all"
    with pytest.raises(toroni.Invalid):
        toroni.open_recording(path, "a//b")


def test_a_killed_recorder(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write(path, CompressionType.NONE)
    whole = path.read_bytes()
    for length in range(20, len(whole), 997):
        path.write_bytes(whole[:length])
        recording = toroni.open_recording(path)
        count = 0
        while True:
            try:
                if next(recording, None) is None:
                    break
                count += 1
            except (toroni.Lapped, toroni.Lost):
                pass
        assert count <= 496


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(toroni.NotFound):
        toroni.open_recording(tmp_path / "missing")
    path = tmp_path / "a.mcap"
    path.write_bytes(b"this is no recording at all, and it is long enough")
    with pytest.raises(toroni.Invalid):
        next(toroni.open_recording(path))
    write(path, CompressionType.NONE)
    damaged = bytearray(path.read_bytes())
    at = damaged.index(b"x" * 50)
    damaged[at] ^= 1
    path.write_bytes(damaged)
    recording = toroni.open_recording(path, "nothing")
    with pytest.raises(toroni.Corrupt):
        while True:
            try:
                next(recording)
            except (toroni.Lapped, toroni.Lost):
                pass
