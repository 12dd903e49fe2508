"""toroni.net.Direct: both ends in Python, and programs in C and Rust at the other end."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import toroni
from toroni.net import Direct, Lost, Message

PATIENCE = 60.0
C_LIBRARY = os.environ.get("TORONI_NET_C")
"""The path of the built static library for C."""


def group() -> str:
    """A group whose port no other test uses now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return f"239.192.84.79:{free.getsockname()[1]}"


def node(name: str) -> str:
    # Other runs of these tests are on the same host.
    return f"[node]\nrealm = 'python {os.getpid()}'\nname = '{name}'\ninterfaces = ['lo']\n"


def sending(to: str, more: str = "") -> str:
    return (
        f"[[send]]\nstream = 1\npatterns = ['**']\ngroup = '{to}'\ndata_rate = '20Mbit/s'\n"
        f"generation = '4s'\nttl = 0\nloop = true\n{more}"
    )


def receiving(of: str) -> str:
    return f"[[receive]]\ngroup = '{of}'\ngeneration = '4s'\n"


def meet(sender: Direct, receiver: Direct) -> None:
    """Lets both work until the receiver follows the sender."""
    begin = time.monotonic()
    while receiver.streams == 0:
        assert time.monotonic() - begin < PATIENCE, "the receiver hears nothing"
        sender.turn()
        assert receiver.receive(timeout=0.01) is None


def next_of(sender: Direct, receiver: Direct) -> Message | Lost:
    """Returns what comes next. The sender needs its turns meanwhile: its rate may hold messages back."""
    begin = time.monotonic()
    while (received := receiver.receive(timeout=0.005)) is None:
        assert time.monotonic() - begin < PATIENCE, "nothing comes"
        sender.turn()
    return received


def test_messages_arrive_in_order_with_all_that_is_known_of_them() -> None:
    to = group()
    with Direct(node("a") + sending(to)) as sender, Direct(node("b") + receiving(to)) as receiver:
        meet(sender, receiver)
        for number in range(200):
            sender.send(f"t/{number % 3}", bytearray(f"{number}", "ascii"))
        for number in range(200):
            received = next_of(sender, receiver)
            assert isinstance(received, Message)
            assert (received.topic, received.payload) == (f"t/{number % 3}", str(number).encode())
            assert (received.number, received.flow.stream) == (number, 1)
            assert received.timestamp_ns is None
            assert not received.to_descendants
        assert receiver.receive(timeout=0) is None
    assert sender.closed
    with pytest.raises(toroni.Closed):
        sender.send("t", b"")
    with pytest.raises(toroni.Closed):
        sender.fileno()
    sender.close()


def test_a_loss_stands_at_its_place() -> None:
    to = group()
    receiver = Direct(node("b") + receiving(to))
    with Direct(node("a") + sending(to)) as sender:
        meet(sender, receiver)
        sender.send("t", b"1")
        first = next_of(sender, receiver)
        assert isinstance(first, Message)
    # Another life of the sender, with another series: what the first one had sent last is not known.
    with Direct(node("a") + sending(to)) as again:
        begin = time.monotonic()
        found: Message | Lost | None = None
        while found is None:
            assert time.monotonic() - begin < PATIENCE
            again.send("t", b"2")
            found = receiver.receive(timeout=0.01)
        if isinstance(found, Lost):
            assert (found.bound, found.reason) == ("at_least", "restart")
            assert found.flow.source == first.flow.source
        else:
            assert found.payload == b"2"
    receiver.close()


def test_an_event_loop_waits_for_the_descriptor() -> None:
    to = group()

    async def run() -> list[bytes]:
        got: list[bytes] = []
        done = asyncio.get_running_loop().create_future()

        def readable() -> None:
            while (received := receiver.receive(timeout=0)) is not None:
                assert isinstance(received, Message)
                got.append(received.payload)
            if len(got) == 50 and not done.done():
                done.set_result(None)

        loop = asyncio.get_running_loop()
        loop.add_reader(receiver.fileno(), readable)
        loop.add_reader(sender.fileno(), sender.turn)
        for number in range(50):
            sender.send("t", str(number).encode())
        await asyncio.wait_for(done, PATIENCE)
        return got

    with Direct(node("a") + sending(to)) as sender, Direct(node("b") + receiving(to)) as receiver:
        meet(sender, receiver)
        assert asyncio.run(run()) == [str(number).encode() for number in range(50)]
        # What was taken is not announced again and again.
        turns = 0
        begin = time.monotonic()
        while time.monotonic() - begin < 0.5:
            if select.select([receiver], [], [], 0.1)[0]:
                receiver.turn()
                turns += 1
        assert turns < 200


def test_a_wait_ends_in_time_and_a_rate_is_kept() -> None:
    to = group()
    with Direct(node("a") + sending(to, "window = '16MiB'\nmessage_max = '4MiB'\n")) as sender:
        assert sender.receive(timeout=0.05) is None
        with pytest.raises(toroni.Timeout):
            for _ in range(100):
                sender.send("t", bytes(500_000), timeout=0)
        with pytest.raises(toroni.TooLong):
            sender.send("t", bytes(5_000_000))
        with pytest.raises(toroni.Invalid, match="is no topic"):
            sender.send("a/*", b"")
        sender.close(linger=0)


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(toroni.Invalid, match="data_rate: is missing"):
        Direct(node("a") + "[[send]]\nstream = 1\npatterns = ['**']\n")
    with pytest.raises(toroni.Invalid, match="has an effect only in a node"):
        Direct(node("a") + "[[receive]]\naccept = ['a/**']\n")
    with pytest.raises(toroni.System, match="cannot read the configuration"):
        Direct.open_file("/nonesuch/node.toml")
    with Direct(node("a") + receiving(group())) as deaf, pytest.raises(toroni.Error, match="sends nothing"):
        deaf.send("t", b"")


def test_another_process_receives_what_a_file_says(tmp_path: Path) -> None:
    to = group()
    file = tmp_path / "node.toml"
    file.write_text(node("b") + receiving(to))
    program = (
        "import sys\n"
        "from toroni.net import Direct, Message\n"
        "with Direct.open_file(sys.argv[1]) as direct:\n"
        "    for number in range(20):\n"
        "        received = direct.receive(timeout=60)\n"
        "        assert isinstance(received, Message), received\n"
        "        print(received.payload.decode(), flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, file], stdout=subprocess.PIPE, text=True) as other:
        try:
            with Direct(node("a") + sending(to)) as sender:
                begin = time.monotonic()
                number = 0
                while other.poll() is None:
                    assert time.monotonic() - begin < PATIENCE
                    sender.send("t", str(number).encode())
                    sender.turn()
                    number += 1
                    time.sleep(0.002)
            assert other.stdout is not None
            numbers = [int(line) for line in other.stdout]
            assert other.wait() == 0
            assert len(numbers) == 20
            assert numbers == list(range(numbers[0], numbers[0] + 20))
        finally:
            other.kill()


def in_c(folder: Path, name: str) -> Path:
    """Compiles an example in C."""
    if C_LIBRARY is None:
        pytest.skip("TORONI_NET_C is not set: cargo xtask bindings builds the library for C")
    sources = Path(__file__).parent.parent.parent / "c-net"
    program = folder / name
    flags = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-I", str(sources / "include")]
    libraries = ["-lutil", "-lrt", "-lpthread", "-lm", "-ldl"]
    files = [str(sources / "examples" / f"{name}.c"), "-o", str(program), C_LIBRARY]
    subprocess.run(["cc", *flags, *files, *libraries], check=True)
    return program


def test_what_a_program_in_c_sends_arrives(tmp_path: Path) -> None:
    to = group()
    program = in_c(tmp_path, "direct_send")
    file = tmp_path / "node.toml"
    file.write_text(node("c") + sending(to))
    with (
        Direct(node("b") + receiving(to)) as receiver,
        subprocess.Popen([program, file, "plant/boiler"], stdin=subprocess.PIPE, text=True) as sender,
    ):
        try:
            begin = time.monotonic()
            while receiver.streams == 0:
                assert time.monotonic() - begin < PATIENCE, "the receiver hears nothing"
                assert receiver.receive(timeout=0.01) is None
            assert sender.stdin is not None
            sender.stdin.writelines(f"{number}\n" for number in range(500))
            # Nothing more comes: it ends once its messages were sent.
            sender.stdin.close()
            for number in range(500):
                received = receiver.receive(timeout=PATIENCE)
                assert isinstance(received, Message), received
                assert (received.topic, received.payload) == ("plant/boiler", str(number).encode())
                assert received.number == number
            assert sender.wait(PATIENCE) == 0
        finally:
            sender.kill()


def test_a_program_in_c_receives_what_is_sent(tmp_path: Path) -> None:
    to = group()
    program = in_c(tmp_path, "direct_receive")
    file = tmp_path / "node.toml"
    file.write_text(node("c") + receiving(to))
    with (
        Direct(node("a") + sending(to)) as sender,
        (tmp_path / "received").open("w+") as output,
        subprocess.Popen([program, file, "300"], stdout=output) as receiver,
    ):
        try:
            begin = time.monotonic()
            number = 0
            # It begins with what is sent after it has heard of the sender.
            while receiver.poll() is None:
                assert time.monotonic() - begin < PATIENCE, "the receiver does not end"
                sender.send("t", str(number).encode(), timeout=PATIENCE)
                sender.turn()
                number += 1
                time.sleep(0.001)
            assert receiver.returncode == 0
            output.seek(0)
            lines = output.read().splitlines()
            first = int(lines[0].removeprefix("t\t"))
            assert lines == [f"t\t{number}" for number in range(first, first + 300)]
        finally:
            receiver.kill()
