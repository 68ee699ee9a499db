"""The wire to a box server from our side, with a real box server at the other end, and with one that misbehaves."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from serai.boxes.box_client import BoxClient, ExecResult, FileAttributes, InitResult
from serai.errors import BadFrame, Closed, FrameTooBig, NotWritten, OversizeFrame, PeerGone, PeerTimeout, Refused
from serai.limits import Limits
from serai.record.recorder import Recorder
from serai.record.recording_folder import RecordingFolder
from tests.support.boxes.box_servers import PATIENCE, ServerProcess, start_server
from tests.support.boxes.launched_boxes import find_by_argument, wait_until
from tests.support.processes import Ends, lives

pytestmark = pytest.mark.loops


@dataclass(frozen=True)
class Injection:
    path: str
    content: bytes = b""
    mode: int = 0o600
    uid: int = 0
    gid: int = 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with start_server(tmp_path) as server:
        yield server


@pytest.fixture
async def control(server: ServerProcess) -> AsyncIterator[BoxClient]:
    control = BoxClient(str(server.address), who="box:test")
    yield control
    control.close()


async def wait_for_end(*pids: int) -> bool:
    with Ends(pid for pid in pids if lives(pid)) as ends:
        return not await asyncio.to_thread(ends.left_after, PATIENCE)


async def test_it_says_hello(control: BoxClient) -> None:
    assert await control.hello() == 1


@pytest.mark.req("hooks.rule.3.6-exec")
async def test_exec_gives_bytes_and_how_it_ended(control: BoxClient, server: ServerProcess) -> None:
    result = await control.exec(
        ["/bin/sh", "-c", "cat; printf '\\377' >&2; echo $A; pwd; exit 3"], env={"A": "ä"}, cwd="/root", stdin=b"in\n"
    )
    assert result == ExecResult(f"in\nä\n{server.root}/root\n".encode(), b"\xff", 3)
    assert result.text.startswith("in\nä")
    killed = await control.exec(["/bin/sh", "-c", "kill -9 $$"])
    assert (killed.exit_code, killed.signal) == (-1, 9)


@pytest.mark.req("hooks.rule.3.6-timeout")
async def test_exec_takes_a_time_limit_of_its_own(control: BoxClient) -> None:
    word = f"1000.{time.monotonic_ns()}"  # it need not say who it is: it may not come to it in time
    result = await control.exec(["sleep", word], timeout=0.3)
    assert (result.exit_code, result.timed_out) == (124, True)
    await asyncio.to_thread(wait_until, lambda: not find_by_argument(word))


async def test_the_client_s_own_limit_holds_where_the_caller_sets_none(server: ServerProcess) -> None:
    control = BoxClient(str(server.address), limits=Limits().but(box_exec=0.3))
    assert (await control.exec(["sleep", "1000"])).timed_out
    control.close()


@pytest.mark.req("hooks.scenario.porter-10")
async def test_what_the_box_server_refuses_is_refused_with_its_words(control: BoxClient) -> None:
    with pytest.raises(Refused, match="box:test: command is required"):
        await control.exec([])
    with pytest.raises(Refused, match="port 70000 out of range"):
        await control.dial(70000)
    with pytest.raises(Refused, match="is no path"):
        await control.put("relative", b"x" * 10_000_000)
    assert await control.hello() == 1


async def test_connections_are_used_again_and_never_a_dead_one(control: BoxClient, server: ServerProcess, tmp_path: Path) -> None:
    for _ in range(3):
        await control.hello()
        assert len(control._idle) == 1
    await asyncio.gather(*(control.exec(["true"]) for _ in range(20)))
    assert 1 < len(control._idle) <= 8
    server.kill()
    with pytest.raises(PeerGone, match="nobody listens"):
        await control.hello()
    server.address.unlink()
    (tmp_path / "again").mkdir()
    with start_server(tmp_path / "again") as another:
        os.rename(another.address, server.address)
        assert await control.hello() == 1


async def test_the_path_of_the_socket_may_be_long(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 150)
    folder.mkdir()
    with start_server(folder) as server:
        control = BoxClient(str(server.address))
        assert await control.hello() == 1
        control.close()


async def test_a_box_server_that_dies_fails_every_call_at_once(control: BoxClient, server: ServerProcess) -> None:
    stream = await control.stream(["cat"])
    calls = [asyncio.create_task(control.exec(["sleep", "1000"])) for _ in range(5)]
    await asyncio.sleep(0)  # they have begun
    server.kill()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [PeerGone] * 5
    with pytest.raises(PeerGone):
        await stream.wait()
    stream.close()


async def test_a_call_that_is_given_up_ends_its_command(control: BoxClient, server: ServerProcess) -> None:
    tell = server.root / "workspace/tell"
    os.mkfifo(tell)
    call = asyncio.create_task(control.exec(["/bin/sh", "-c", "echo $$ > tell; exec sleep 1000"]))
    pid = int(await asyncio.to_thread(tell.read_text))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await wait_for_end(pid)
    assert await control.hello() == 1


async def test_close_ends_what_is_under_way(control: BoxClient, server: ServerProcess) -> None:
    tell = server.root / "workspace/tell"
    os.mkfifo(tell)
    call = asyncio.create_task(control.exec(["/bin/sh", "-c", "echo $$ > tell; exec sleep 1000"]))
    pid = int(await asyncio.to_thread(tell.read_text))
    control.close()
    with pytest.raises(Closed):
        await call
    with pytest.raises(Closed):
        await control.hello()
    assert await wait_for_end(pid)
    control.close()


# Files


@pytest.mark.req("hooks.scenario.porter-01")
async def test_init_writes_files_and_runs_the_script(control: BoxClient, server: ServerProcess) -> None:
    result = await control.init(
        [Injection("/etc/token", b"t", 0o440)], env={"A": "x=y"}, script=b"#!/bin/sh\necho $A; cat ../etc/token\nexit 7\n"
    )
    assert result == InitResult(True, "init script failed: exit status 7", "x=y\nt")
    assert (server.root / "etc/token").stat().st_mode & 0o777 == 0o440
    assert await control.init([]) == InitResult()
    with pytest.raises(Refused, match="already initialised"):
        await control.init([])


async def test_init_takes_more_than_a_frame_holds(control: BoxClient, server: ServerProcess) -> None:
    big, huge = os.urandom(1 << 20) * 11, os.urandom(1 << 20) * 26
    files = [Injection("/big", big, 0), Injection("/huge", huge, 0o444), *(Injection(f"/small/{n}", b"%d" % n) for n in range(100))]
    script = b"#!/bin/sh\necho ok\n#" + b"x" * (11 << 20)
    assert (await control.init(files, script=script)).script_output == "ok"
    (server.root / "big").chmod(0o600) if (server.root / "big").stat().st_mode & 0o777 == 0 else pytest.fail(
        "its mode was not 0000"
    )
    assert (server.root / "big").read_bytes() == big
    assert (server.root / "huge").read_bytes() == huge
    assert (server.root / "huge").stat().st_mode & 0o777 == 0o444
    assert sorted(int((server.root / f"small/{n}").read_bytes()) for n in range(100)) == list(range(100))


async def test_a_script_that_fits_in_no_frame_is_refused_here(control: BoxClient) -> None:
    with pytest.raises(FrameTooBig, match="box_frame"):
        await control.init([], script=b"x" * (13 << 20))


@pytest.mark.req("hooks.scenario.porter-15")
async def test_files_go_in_and_come_out(control: BoxClient, server: ServerProcess) -> None:
    content = os.urandom(1 << 20) * 20
    await control.put("/data/file", content, mode=0o640)
    assert await control.get("/data/file") == content
    await control.put("/data/other", io.BytesIO(content), size=5)
    parts: list[bytes] = []
    found = await control.get_into("/data/other", parts.append)
    assert found == FileAttributes(5, 0o644, os.geteuid(), os.getegid())
    source = io.BytesIO(content)
    source.seek(1 << 20)
    await control.put("/data/rest", source)
    assert (server.root / "data/rest").read_bytes() == content[1 << 20 :]
    with pytest.raises(Refused, match="No such file"):
        await control.get("/none")


async def test_a_file_object_that_is_too_short_leaves_nothing(control: BoxClient, server: ServerProcess) -> None:
    with pytest.raises(NotWritten, match="only 3 of 10 bytes"):
        await control.put("/short", io.BytesIO(b"abc"), size=10)
    assert await control.hello() == 1
    assert not (server.root / "short").exists()


# Streams, terminals, ports, signals


async def test_a_stream_is_talked_to_while_it_runs(control: BoxClient) -> None:
    async with await control.stream(["/bin/sh", "-c", "read line; echo $line >&2; cat | wc -c; exit 4"], env={"A": "1"}) as stream:
        printed: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        await stream.write(b"hello\n")
        await stream.write(b"x" * 3_000_000)
        stream.end_input()
        async for kind, data in stream:
            printed[kind] += data
        assert (stream.exit_code, stream.signal_number, stream.pid > 1) == (4, None, True)
    assert (printed["stderr"], printed["stdout"].strip()) == (b"hello\n", b"3000000")
    with pytest.raises(Closed):
        await stream.write(b"too late")


async def test_a_stream_waits_for_a_program_that_does_not_read(control: BoxClient) -> None:
    async with await control.stream(["sleep", "1000"]) as stream:
        writing = asyncio.create_task(stream.write(b"x" * 50_000_000))
        for _ in range(20):
            assert await control.hello() == 1
            await asyncio.sleep(0)  # everybody has had turns, and it is not done
        assert not writing.done()
        assert len(stream._wire._outbox) < 1_000_000
    with pytest.raises(Closed):
        await writing
    assert await wait_for_end(stream.pid)


async def test_a_stream_takes_signals(control: BoxClient) -> None:
    async with await control.stream(["/bin/sh", "-c", "sleep 1000 & wait"]) as stream:
        stream.signal(signal.SIGTERM)
        assert await stream.wait() == -1
        assert stream.signal_number == signal.SIGTERM


async def test_a_stream_has_a_terminal_when_asked(control: BoxClient) -> None:
    async with await control.stream(["/bin/sh", "-c", "stty size; read x; stty size"], tty=(100, 30)) as stream:
        text = b""
        async for _, data in stream:
            text += data
            if text == b"30 100\r\n":
                stream.resize(120, 40)
                await stream.write(b"\n")
        assert text.endswith(b"40 120\r\n")
        assert stream.exit_code == 0


async def test_leaving_a_stream_ends_its_command(control: BoxClient) -> None:
    async with await control.stream(["sleep", "1000"]) as stream:
        assert lives(stream.pid)
    assert await wait_for_end(stream.pid)


async def test_a_reader_who_is_cancelled_leaves_nothing(control: BoxClient) -> None:
    stream = await control.stream(["sleep", "1000"])
    waiting = asyncio.create_task(stream.wait())
    await asyncio.sleep(0)  # it has begun
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await wait_for_end(stream.pid)


async def test_a_silent_stream_ends_at_the_limit(server: ServerProcess) -> None:
    control = BoxClient(str(server.address), limits=Limits().but(box_exec=0.2))
    async with await control.stream(["sleep", "1000"]) as stream:
        with pytest.raises(PeerTimeout, match="box_exec"):
            await stream.wait()
    assert await wait_for_end(stream.pid)
    control.close()


@pytest.mark.req("hooks.scenario.porter-17")
async def test_a_terminal_is_typed_on(control: BoxClient) -> None:
    async with await control.terminal(["/bin/sh"], columns=90) as terminal:
        await terminal.write(b"stty size\n")
        text = b""
        async for data in terminal:
            text += data
            if b"24 90\r\n" in text and b"50 20\r\n" not in text:
                terminal.resize(20, 50)
                await terminal.write(b"stty size; exit\n")
                text = b""
        assert b"50 20\r\n" in text


@pytest.mark.req("hooks.scenario.porter-12")
async def test_dial_hands_out_a_socket(control: BoxClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, await control.dial(listener.getsockname()[1]) as near:
        other, _ = listener.accept()
        with other:
            other.sendall(b"early")
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(near, b"ping")
            assert await asyncio.to_thread(other.recv, 9) == b"ping"
            assert await loop.sock_recv(near, 5) == b"early"


async def test_signals_go_to_the_whole_box(control: BoxClient) -> None:
    async with await control.stream(["sleep", "1000"]) as stream:
        await control.signal(signal.SIGTERM)
        await stream.wait()
        assert stream.signal_number == signal.SIGTERM


# A box server that misbehaves


@asynccontextmanager
async def serve_answer(folder: Path, answer: bytes | None) -> AsyncIterator[BoxClient]:
    """Answers every connection with these bytes and closes; with None it says nothing at all."""
    rest = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        if answer is None:
            await rest.wait()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_unix_server(serve, folder / "control.sock")
    limits = Limits().but(box_start=0.2 if answer is None else 20.0, box_frame=1000)
    control = BoxClient(str(folder / "control.sock"), who="box:odd", limits=limits)
    try:
        yield control
    finally:
        control.close()
        rest.set()
        server.close()
        await asyncio.sleep(0)


def encode_frame(value: object, head: bytes = b"") -> bytes:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return head + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", PeerGone),
        (b"\0\0", PeerGone),
        (encode_frame({"data": {}})[:-1], PeerGone),
        (encode_frame([]), BadFrame),
        (encode_frame({}), BadFrame),
        (encode_frame({"data": 1}), BadFrame),
        (encode_frame({"data": {"porter": "1"}}), BadFrame),
        (b"\0\0\0\x02\xff\xff", BadFrame),
        ((1001).to_bytes(4, "big"), OversizeFrame),
        (encode_frame({"err": "no"}), Refused),
        (None, PeerTimeout),
    ],
)
async def test_every_way_to_misbehave_is_an_error_of_its_own(tmp_path: Path, answer: bytes | None, error: type[Exception]) -> None:
    async with serve_answer(tmp_path, answer) as control:
        with pytest.raises(error) as raised:
            await control.hello()
        assert type(raised.value) is error


async def test_a_request_above_the_limit_is_not_sent(tmp_path: Path) -> None:
    async with serve_answer(tmp_path, b"") as control:
        with pytest.raises(FrameTooBig, match="box_frame"):
            await control.exec(["echo", "x" * 2000])


# The recording


async def test_requests_and_answers_are_on_record_and_contents_are_not(server: ServerProcess, tmp_path: Path) -> None:
    folder = RecordingFolder(tmp_path / "records")
    with Recorder(folder, secrets=None) as recorder:
        tap = recorder.open_tap("box:test", kind="box", dialect="porter", framing="bodies")
        control = BoxClient(str(server.address), who="box:test", tap=tap)
        await control.init([Injection("/token", b"the token itself")], script=b"#!/bin/sh\nexit 0 # the script itself\n")
        await control.exec(["cat"], stdin=b"the input itself")
        await control.put("/file", b"the file itself")
        assert await control.get("/file") == b"the file itself"
        control.close()
    text = "".join(path.read_text() for path in (tmp_path / "records").rglob("*") if path.is_file())
    assert '"Path":"/token","Content":"************************"' in text  # as long as it was
    assert '"verb":"exec"' in text
    assert '"exit_code":0' in text
    assert '"verb":"putfile"' in text
    assert '{"verb":"getfile","bytes":15}' in text
    private = ("dGhlIHRva2Vu", "dGhlIGlucHV0", "dGhlIGZpbGU", "the file itself", "the script", "IyEvYmlu", "the input itself")
    assert not any(encoded in text for encoded in private)  # neither what goes in nor what a command prints


# A box server is in a box, with whoever runs there


BAD_ENDS: list[object] = [
    {}, [], None, {"exit_code": "0"}, {"exit_code": True}, {"exit_code": 10**29}, {"exit_code": -2}, {"exit_code": 1.5},
    {"exit_code": 0, "signal": "x"}, {"exit_code": -1, "signal": [1]}, {"exit_code": -1, "signal": 65},
    {"exit_code": -1, "signal": 0},
]  # fmt: skip


class Liar:
    """Answers every request with the same bytes."""

    def __init__(self, folder: Path, answer: bytes) -> None:
        self.address = folder / "control.sock"
        self._answer = answer

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self.address)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size)
        writer.write(self._answer)
        writer.close()


@pytest.mark.parametrize("told", BAD_ENDS, ids=str)
async def test_an_end_that_cannot_be_is_a_bad_frame(tmp_path: Path, told: object) -> None:
    async with Liar(tmp_path, encode_frame({"data": told})) as liar:
        control = BoxClient(str(liar.address))
        with pytest.raises(BadFrame):
            await control.exec(["true"])
        control.close()
    async with Liar(tmp_path, encode_frame({"data": {"pid": 2}}) + encode_frame(told, b"\3")) as liar:
        control = BoxClient(str(liar.address))
        async with await control.stream(["true"]) as stream:
            with pytest.raises(BadFrame):
                await stream.wait()
        control.close()


@pytest.mark.parametrize(
    "payload", [b'{"exit_code":1e999}', b"[" * 100_000, b"", b"\xff"], ids=["infinite", "deep", "empty", "no text"]
)
async def test_an_end_that_is_no_json_is_a_bad_frame(tmp_path: Path, payload: bytes) -> None:
    async with Liar(tmp_path, encode_frame({"data": {"pid": 2}}) + encode_frame(payload, b"\3")) as liar:
        control = BoxClient(str(liar.address))
        async with await control.stream(["true"]) as stream:
            with pytest.raises(BadFrame):
                await stream.wait()
        control.close()


@pytest.mark.parametrize("size", [-5, 1 << 63, "5", None, True])
async def test_a_file_of_an_impossible_size_is_a_bad_frame(tmp_path: Path, size: object) -> None:
    async with Liar(tmp_path, encode_frame({"data": {"size": size, "mode": 0, "uid": 0, "gid": 0}})) as liar:
        control = BoxClient(str(liar.address))
        with pytest.raises(BadFrame):
            await control.get("/file")
        control.close()
