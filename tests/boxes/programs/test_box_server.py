"""The box server as the first process of a box: ports, many callers, orphans, signals, and what must not end it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.support.boxes.box_servers import BOOT, PATIENCE, Refusal, ServerProcess, Wire, b64, file, start_server
from tests.support.processes import Ends, lives


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with start_server(tmp_path) as server:
        yield server


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        yield listener


def dial(server: ServerProcess, listener: socket.socket) -> tuple[Wire, socket.socket]:
    wire = server.connect()
    assert wire.ask("dial", port=listener.getsockname()[1]) == {}
    other, _ = listener.accept()
    other.settimeout(PATIENCE)
    return wire, other


def read_all(other: socket.socket) -> bytes:
    data = b""
    while some := other.recv(1 << 20):
        data += some
    return data


@pytest.mark.req("hooks.scenario.porter-12")
def test_dial_is_a_two_way_pipe_whose_ways_end_by_themselves(server: ServerProcess, listener: socket.socket) -> None:
    wire, other = dial(server, listener)
    with wire, other:
        wire.socket.sendall(b"ping")
        assert other.recv(9) == b"ping"
        other.sendall(b"pong")
        assert wire.read(4) == b"pong"
        wire.end()
        assert other.recv(9) == b""  # our end has reached it
        other.sendall(b"last words")
        other.shutdown(socket.SHUT_WR)
        assert wire.read_all() == b"last words"


def test_dial_passes_on_as_fast_as_the_slower_side_reads(server: ServerProcess, listener: socket.socket) -> None:
    wire, other = dial(server, listener)
    with wire, other:
        sent = 0
        wire.socket.setblocking(False)
        while sent < 64 << 20:
            try:
                sent += wire.socket.send(b"x" * 65536)
            except BlockingIOError:
                if server.ask("hello")["porter"] == 1:  # it had its turn, and takes no more
                    break
        assert sent < 32 << 20
        wire.socket.setblocking(True)
        wire.end()
        assert len(read_all(other)) == sent


def test_who_leaves_a_dialled_port_is_missed_at_the_other_end(server: ServerProcess, listener: socket.socket) -> None:
    wire, other = dial(server, listener)
    with other:
        wire.socket.sendall(b"bye")
        wire.socket.close()
        assert read_all(other) == b"bye"


@pytest.mark.req("hooks.scenario.porter-13")
def test_dial_to_a_port_where_nobody_listens_is_an_error(server: ServerProcess) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(Refusal, match="Connection refused"):
            server.ask("dial", port=bound.getsockname()[1])


@pytest.mark.req("hooks.scenario.porter-14")
@pytest.mark.parametrize("port", [0, -1, 65536])
def test_dial_to_a_port_that_cannot_be_is_refused(server: ServerProcess, port: int) -> None:
    with pytest.raises(Refusal, match=f"^port {port} out of range$"):
        server.ask("dial", port=port)


def test_signals_reach_every_process_of_the_box_but_the_box_server(server: ServerProcess) -> None:
    with server.connect() as wire:
        wire.ask("exec", cmd=["/bin/sh", "-c", "sleep 1000 & echo $$ $!; wait"], stream=True)
        pids = [int(pid) for pid in wire.read_packet()[1].split()]
        server.ask("signal", signal=signal.SIGKILL)
        with Ends(pid for pid in pids if lives(pid)) as ends:
            assert not ends.left_after(PATIENCE)
    assert server.ask("hello")["porter"] == 1


def test_no_signal_from_the_box_ends_the_box_server(server: ServerProcess) -> None:
    server.ask("hello")  # it is ready for them
    answer = server.sh(f"for s in HUP INT QUIT USR1 USR2 ALRM TERM CHLD; do kill -$s {server.process.pid}; done; kill -TERM $$")
    assert answer["signal"] == signal.SIGTERM  # which a command has as usual
    assert server.ask("hello")["porter"] == 1


SUBREAPER = f"import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); {BOOT}"


def test_orphans_that_come_to_the_box_server_are_reaped(tmp_path: Path) -> None:
    with start_server(tmp_path, boot=SUBREAPER) as server:
        answer = server.sh("for i in $(seq 200); do (sh -c 'echo $$' &); done")
        orphans = {int(pid) for pid in answer["stdout"].split()}
        assert len(orphans) == 200
        end = monotonic() + PATIENCE
        while any(os.path.exists(f"/proc/{pid}") for pid in orphans):  # zombies are still there
            assert server.ask("hello")["porter"] == 1
            assert monotonic() < end


def test_many_callers_are_served_at_once(server: ServerProcess) -> None:
    os.mkfifo(server.root / "workspace" / "gate")
    gate = os.open(server.root / "workspace" / "gate", os.O_RDWR)
    wires = [server.connect() for _ in range(40)]
    try:
        for wire in wires[:-1]:
            wire.send("exec", {"cmd": ["/bin/sh", "-c", "read x < gate; echo $$"]})
        assert wires[-1].ask("exec", cmd=["echo", "open"])["stdout"] == "open\n"  # while none of the others can end
        os.write(gate, b"\n" * 39)
        assert len({wire.answer()["stdout"] for wire in wires[:-1]}) == 39
    finally:
        os.close(gate)
        for wire in wires:
            wire.socket.close()


def test_a_caller_who_sends_half_a_frame_keeps_nobody_waiting(server: ServerProcess) -> None:
    with server.connect() as wire:
        wire.socket.sendall(b"\0\0")
        assert server.ask("hello")["porter"] == 1
        wire.socket.sendall(b"\0\x10" + b'{"verb":"hello"')
        assert server.ask("hello")["porter"] == 1
        wire.socket.sendall(b"}")
        assert wire.answer()["porter"] == 1


def test_a_caller_who_never_reads_keeps_nobody_waiting(server: ServerProcess) -> None:
    with server.connect() as wire:
        for _ in range(20):
            wire.send("exec", {"cmd": ["head", "-c", "60000", "/dev/zero"]})
        assert server.ask("hello")["porter"] == 1
        assert all(len(wire.answer()["stdout"]) == 60000 for _ in range(20))


def can_exec(server: ServerProcess) -> bool:
    try:
        return bool(server.ask("exec", cmd=["true"])["exit_code"] == 0)
    except Refusal:
        return False


def test_too_few_descriptors_are_survived(tmp_path: Path) -> None:
    boot = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24)); {BOOT}"
    with start_server(tmp_path, boot=boot) as server:
        with server.connect() as first:
            assert first.ask("hello")["porter"] == 1
            wires = [server.connect() for _ in range(30)]
            for wire in wires:
                wire.send("hello")
            answered = wires[0].answer()
            with pytest.raises(Refusal, match="cannot start true: Too many open files"):
                first.ask("exec", cmd=["true"])
            for wire in wires:
                wire.socket.close()
            assert answered["porter"] == 1
        end = monotonic() + PATIENCE
        while not can_exec(server):  # those who have left are let in and go, some at a time
            assert monotonic() < end
        assert server.log == ""


# Inside a box no module can be found any more: here whoever looks for one is written down.
WATCHED = f"""
import os, sys; sys.path.insert(0, {BOOT.split("insert(0, ")[1].split(")")[0]})
from serai.boxes.programs import box_server
def looked(name, *_):
    os.write(2, ("import " + name + chr(10)).encode())
    raise ImportError(name)
box_server.NoModules.find_spec = staticmethod(looked)
box_server.main(sys.argv[1:])
"""


def test_nothing_is_imported_once_the_box_server_serves(tmp_path: Path, listener: socket.socket) -> None:
    with start_server(tmp_path, boot=WATCHED) as server:
        server.ask("init", files=[file("/a/ä", b"x", Mode=0o644)], env=["Ä=ö"], init_script=b64(b"#!/bin/sh\necho \xff; kill $$\n"))
        server.sh("printf '\\377'; echo ü", stdin=b64(b"x"), env={"É": "è"}, cwd="/root", timeout=10**10)
        server.sh("sleep 1000", timeout=1)
        for verb, data in (("exec", {"cmd": ["nope"]}), ("getfile", {"path": "/none"}), ("what", {}), ("dial", {"port": 0})):
            with server.connect() as wire:
                wire.send(verb, data)
                wire.end()
                wire.read_all()
        with server.connect() as wire, server.connect() as another:
            wire.ask("pty")
            another.ask("exec", cmd=["cat"], stream=True, tty={"cols": 80, "rows": 24})
        with server.connect() as wire:
            wire.send("putfile", {"path": "/b", "size": 1}, b"x")
            wire.answer()
            wire.ask("getfile", path="/b")
            assert wire.read(1) == b"x"
        wire, other = dial(server, listener)
        wire.socket.close()
        other.close()
        server.ask("signal", signal=signal.SIGTERM)
        assert server.log == ""
        with server.connect() as wire:
            for body in (b'"unterminated', b"[1", b"nothing", b'{"verb":"\\q"}'):
                wire.send_body(body)
                with pytest.raises(Refusal, match="no JSON"):
                    wire.answer()
        assert not set(server.log.splitlines()) - {
            "import json.decoder"
        }  # the class of the scanner's error: not found, no harm done


def test_a_box_server_without_a_place_in_its_box_starts_commands_in_its_root(tmp_path: Path) -> None:
    with start_server(tmp_path) as server:
        for place in ("workspace", "root"):
            (server.root / place).rmdir()
        assert server.sh("pwd")["stdout"] == f"{server.root}\n"
