"""The client of the server inside a box: run commands, move files, reach ports (spec hooks 3.7, 4).

Each call has a connection for itself; those that are left clean are used again. A call that is given up closes its connection,
which ends what it started in the box. `CommandStream` and `BoxTerminal` are a command's streams and a terminal on a connection.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol, Self

from serai.errors import BadFrame, Closed, FrameTooBig, LimitHit, NotWritten, OversizeFrame, PeerGone, PeerTimeout, Refused
from serai.limits import BoxLimits
from serai.wire.process import looks_secret

if TYPE_CHECKING:
    from serai.record.recorder import WireTap

CHUNK = 256 * 1024
PACKET = 1024 * 1024  # the longest that either side takes
_AGAIN = 0.005  # seconds
_KINDS: dict[int, Literal["stdout", "stderr"]] = {1: "stdout", 2: "stderr"}


class ServerLink:
    """One connection to a box server. Reading and writing go on side by side; whoever is cancelled in one closes it."""

    def __init__(self, who: str, limits: BoxLimits) -> None:
        self.who = who
        self.limits = limits
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._outbox = bytearray()
        self._room: asyncio.Future[None] | None = None  # done when the outbox is short again
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.setblocking(False)

    async def connect(self, address: str) -> None:
        """By way of its folder: an address holds 108 bytes, a path may be longer."""
        try:
            folder = os.open(os.path.dirname(address) or ".", os.O_PATH | os.O_CLOEXEC)
            try:
                while not self._try_connect(f"/proc/self/fd/{folder}/{os.path.basename(address)}"):  # noqa: ASYNC110  (nobody tells when)
                    await asyncio.sleep(_AGAIN)
            finally:
                os.close(folder)
        except OSError as error:
            raise PeerGone(f"nobody listens at its control socket: {error.strerror}", who=self.who) from None

    def _try_connect(self, path: str) -> bool:
        """Not when too many others wait to be admitted; the loop's own way to connect takes that for done."""
        try:
            self.socket.connect(path)
        except BlockingIOError:
            return False
        return True

    @property
    def usable(self) -> bool:
        """Whether the other end is still there, and has said nothing unasked."""
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return not self.closed
        except OSError:
            pass
        return False

    def send(self, data: bytes) -> None:
        """Send at once what goes at once, and the rest when it can. That nobody is there is seen when reading."""
        if self.closed:
            raise Closed("the connection is closed", who=self.who)
        if not self._outbox:
            data = data[self._write(data) :]
            if data:
                self._loop.add_writer(self.socket, self._on_writable)
        self._outbox += data

    async def drain(self, most: int = CHUNK) -> None:
        """Wait until at most so much waits to be sent."""
        while len(self._outbox) > most and not self.closed:
            self._room = self._loop.create_future()
            await self._room

    def _write(self, data: bytes | bytearray) -> int:
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)

    def _on_writable(self) -> None:
        del self._outbox[: self._write(self._outbox)]
        if not self._outbox:
            self._loop.remove_writer(self.socket)
        self._wake()

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def read_some(self, most: int = CHUNK) -> bytes:
        """Bytes, none at the end."""
        if self.closed:
            return b""
        try:
            return await self._loop.sock_recv(self.socket, most)
        except ConnectionError:
            return b""

    async def read(self, size: int) -> bytes:
        """Exactly so many bytes, and not one more: what follows may be somebody else's."""
        data = await self.read_some(min(size, CHUNK)) if size else b""
        if len(data) == size:
            return data
        parts = [data]
        while size := size - len(data):
            if not data:
                raise self.build_gone_error()
            data = await self.read_some(min(size, CHUNK))
            parts.append(data)
        return b"".join(parts)

    async def read_frame(self) -> bytes:
        """The next frame."""
        size = int.from_bytes(await self.read(4), "big")
        if size > self.limits.box_frame:
            limit = LimitHit("box_frame", self.limits.box_frame)
            raise OversizeFrame(f"an answer of {size} bytes", who=self.who, limit=limit)
        return await self.read(size)

    def build_gone_error(self) -> PeerGone | Closed:
        if self.closed:
            return Closed("the connection was closed during the call", who=self.who)
        return PeerGone(
            "the box's porter is gone, or hung up", who=self.who, hint="look at the box: `serai box show`, `serai box logs`"
        )

    def hang_up(self) -> None:
        """End whatever is under way on it: who reads sees the end."""
        self.closed = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._wake()

    def release(self) -> socket.socket:
        """The socket, for somebody who knows how to use it; nothing of it is ours any more."""
        self._loop.remove_writer(self.socket)
        self.closed = True
        return self.socket

    def close(self) -> None:
        if self.socket.fileno() >= 0:
            self.hang_up()
            self._loop.remove_writer(self.socket)
            self._loop.remove_reader(self.socket)  # a read that was given up lets go of it only in the next turn
            self.socket.close()


def decode_answer(who: str, body: bytes) -> dict[str, Any]:
    """The data of an answer, or the `Refused` that it is."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict):
        if isinstance(answer.get("err"), str):
            error = Refused(answer["err"], who=who)
            error.hint = ""  # its words say it all
            raise error
        if isinstance(answer.get("data"), dict):
            data: dict[str, Any] = answer["data"]
            return data
    raise BadFrame("the porter's answer has neither data nor err", who=who)


def parse_exit(who: str, told: Any) -> tuple[int, int | None]:
    """How a command ended: its exit code, -1 with a signal. A box server is in a box, so nothing it says is taken on trust."""
    if isinstance(told, dict):
        code, signal = told.get("exit_code"), told.get("signal")
        if type(code) is int and -1 <= code <= 255 and (signal is None or (type(signal) is int and 0 < signal <= 64)):
            return code, signal
    raise BadFrame("the end of a command that tells no exit code", who=who)


class _Conversation:
    """What goes on with a command over a wire that is all its own."""

    def __init__(self, wire: ServerLink) -> None:
        self._wire = wire
        self._active = monotonic()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up, which ends the command if it still runs. Idempotent."""
        self._wire.close()

    async def write(self, data: bytes) -> None:
        """Its input; waits while it does not read."""
        for start in range(0, len(data), CHUNK):
            self._send_packet(0, data[start : start + CHUNK])
            await self._wire.drain()

    def resize(self, columns: int, rows: int) -> None:
        self._send_packet(1, columns.to_bytes(2, "big") + rows.to_bytes(2, "big"))

    def _send_packet(self, kind: int, payload: bytes) -> None:
        self._active = monotonic()
        self._wire.send(bytes((kind,)) + len(payload).to_bytes(4, "big") + payload)

    async def _read(self, size: int | None) -> bytes:
        """So many bytes, or what there is. It may be silent for an hour (`box_exec`), counted from the last word of either side."""
        patience = self._wire.limits.box_exec
        reading = asyncio.ensure_future(self._wire.read_some() if size is None else self._wire.read(size))
        try:
            while True:
                wait = None if patience is None else self._active + patience - monotonic()
                await asyncio.wait([reading], timeout=wait)
                if reading.done():
                    self._active = monotonic()
                    return reading.result()
                if patience is not None and monotonic() >= self._active + patience:
                    limit = LimitHit("box_exec", patience)
                    raise PeerTimeout("neither input nor output for too long", who=self._wire.who, limit=limit)
        finally:
            if not reading.done():
                reading.cancel()
                self._wire.close()


class CommandStream(_Conversation):
    """A command under way: iterate over what it prints, as `("stdout" | "stderr", bytes)`; after that its end is known."""

    def __init__(self, wire: ServerLink, pid: int) -> None:
        super().__init__(wire)
        self.pid = pid  # inside the box
        self.exit_code: int | None = None  # -1 when a signal ended it
        self.signal_number: int | None = None

    def end_input(self) -> None:
        self._send_packet(0, b"")

    def signal(self, number: int) -> None:
        """To its process group; with a terminal, to the group in the foreground. It waits behind the input that was written before:
        if the program does not read that, only `close` ends it."""
        self._send_packet(2, bytes((number,)))

    async def __aiter__(self) -> AsyncIterator[tuple[Literal["stdout", "stderr"], bytes]]:
        while self.exit_code is None:
            head = await self._read(5)
            size = int.from_bytes(head[1:], "big")
            if size > PACKET:
                self.close()
                raise BadFrame(f"a packet of {size} bytes", who=self._wire.who)
            payload = await self._read(size) if size else b""
            if head[0] == 3:
                self._end(payload)
            elif head[0] in _KINDS:
                yield _KINDS[head[0]], payload

    async def wait(self) -> int:
        """Its exit code; what it still prints goes unseen."""
        async for _ in self:
            pass
        assert self.exit_code is not None
        return self.exit_code

    def _end(self, payload: bytes) -> None:
        self.close()
        try:
            told = json.loads(payload)
        except (ValueError, RecursionError):
            told = None
        self.exit_code, self.signal_number = parse_exit(self._wire.who, told)


class BoxTerminal(_Conversation):
    """A terminal in a box (spec hooks 3.7): `write` keystrokes, iterate over its screen's bytes until its program has ended."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self._read(None):
            yield data
        self.close()


_FRAME_AROUND = 256  # bytes of a frame around its files
_GRACE = 30.0  # seconds that we wait longer than the box server (spec hooks 4)
_IDLE = 8  # connections that are kept for the next call
# What may be a secret: recorded as so many stars.
_MASKED = ("Content", "init_script", "stdin")
_PRINTED = ("stdout", "stderr", "stdout_base64", "stderr_base64", "script_output")


class InjectedFile(Protocol):
    """A file for a box: what a hook's answer was resolved to (`serai.dialects.hookproto.host_side.BoxFile`)."""

    @property
    def path(self) -> str: ...
    @property
    def content(self) -> bytes: ...
    @property
    def mode(self) -> int: ...
    @property
    def uid(self) -> int: ...
    @property
    def gid(self) -> int: ...


@dataclass(frozen=True, slots=True)
class InitResult:
    """How the init script went. That it failed is no error: the box stays, for somebody to look at it (spec hooks 2.4)."""

    script_failed: bool = False
    script_error: str = ""
    script_output: str = ""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command went. `exit_code` is -1 when a signal ended it, and 124 when its time was up (spec hooks 3.6)."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    signal: int | None = None
    timed_out: bool = False

    @property
    def text(self) -> str:
        """Its stdout."""
        return self.stdout.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class FileAttributes:
    """Of a file in a box."""

    size: int
    mode: int
    uid: int
    gid: int


class BoxClient:
    """The box server at `address`. Any number of calls at once; `close` ends them all."""

    def __init__(self, address: str, *, who: str = "", limits: BoxLimits | None = None, tap: WireTap | None = None) -> None:
        self.address = address
        self.who = who
        self.limits = limits or BoxLimits()
        self._tap = tap
        self._idle: list[ServerLink] = []
        self._busy: set[ServerLink] = set()
        self._closed = False

    def close(self) -> None:
        """Hang up: calls under way end with `Closed`, and their commands end too. Streams that were handed out stay. Idempotent."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        for wire in self._busy:
            wire.hang_up()
        if self._tap is not None:
            self._tap.end()

    async def hello(self) -> int:
        """Its protocol's version: it answers."""
        return _parse_integer(self.who, await self._call("hello", {}, "box_start"), "porter")

    async def init(
        self,
        files: Sequence[InjectedFile],
        *,
        env: Mapping[str, str] | None = None,
        script: bytes | None = None,
        script_timeout: float | None = None,
    ) -> InitResult:
        """Write the files, then run the script. More than a frame holds goes in several."""
        limit = self.limits.box_script if script_timeout is None else script_timeout
        last: dict[str, Any] = {"env": [f"{name}={value}" for name, value in (env or {}).items()]}
        if script:
            last |= {"init_script": _encode_base64(script), "init_script_timeout": int(limit * 1e9)}
        batches = _split_files(files, self.limits.box_frame - _FRAME_AROUND)
        if len(_to_json({"files": batches[-1], **last})) + _FRAME_AROUND > self.limits.box_frame:
            batches.append([])
        for batch in batches[:-1]:
            await self._call("init", {"files": batch, "more": True}, "box_start")
        answer = await self._call("init", {"files": batches[-1], **last}, "box_script", limit + _GRACE)
        try:
            return InitResult(answer["script_failed"], str(answer["script_error"]), str(answer["script_output"]))
        except KeyError as error:
            raise BadFrame(f"the porter's answer to init has no {error.args[0]}", who=self.who) from None

    async def exec(
        self,
        cmd: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        stdin: bytes = b"",
    ) -> ExecResult:
        """Run a program to its end. What it printed is cut to 64 KiB each and marked so; a non-zero exit is a result."""
        limit = self.limits.box_exec if timeout is None else timeout
        data = _build_request(cmd, env, cwd)
        if limit is not None:
            data["timeout"] = max(int(limit * 1e9), 1)
        if stdin:
            data["stdin"] = _encode_base64(stdin)
        answer = await self._call("exec", data, "box_exec", None if limit is None else limit + _GRACE)
        code, signal = parse_exit(self.who, answer)
        return ExecResult(_decode(answer, "stdout"), _decode(answer, "stderr"), code, signal, answer.get("timed_out") is True)

    async def stream(
        self,
        cmd: Sequence[str],
        *,
        tty: tuple[int, int] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> CommandStream:
        """Start a program and talk to it while it runs: `async with await control.stream(["sh"]) as it`. `tty`: columns, rows."""
        data = _build_request(cmd, env, cwd) | {"stream": True}
        if tty is not None:
            data["tty"] = {"cols": tty[0], "rows": tty[1]}
        wire, answer = await self._open("exec", data, "box_start")
        try:
            return CommandStream(wire, _parse_integer(self.who, answer, "pid"))
        except BaseException:
            wire.close()
            raise

    async def terminal(self, cmd: Sequence[str] = (), *, columns: int = 80, rows: int = 24) -> BoxTerminal:
        """A terminal with the login shell of the box, or with another program."""
        wire, _ = await self._open("pty", {"cmd": list(cmd), "cols": columns, "rows": rows}, "box_start")
        return BoxTerminal(wire)

    async def dial(self, port: int) -> socket.socket:
        """A connection to a port inside the box: a non-blocking socket, which the caller closes."""
        wire, _ = await self._open("dial", {"port": port}, "box_dial", self.limits.box_dial + _GRACE)
        return wire.release()

    async def put(
        self, path: str, data: bytes | BinaryIO, *, size: int | None = None, mode: int = 0o644, uid: int = 0, gid: int = 0
    ) -> None:
        """Write a file; it takes its name when it is whole. Of a file object the next `size` bytes go, or all that is left."""
        if isinstance(data, bytes):
            size, rest = len(data), memoryview(data)
            chunks: Callable[[int], bytes] = lambda start: bytes(rest[start : start + CHUNK])  # noqa: E731  (beside its other form)
        else:
            if size is None:
                here = data.tell()
                size = data.seek(0, 2) - here
                data.seek(here)
            chunks = lambda start: data.read(min(CHUNK, size - start))  # noqa: E731
        request = {"path": path, "size": size, "mode": mode, "uid": uid, "gid": gid}
        async with self._wire() as wire:
            self._send(wire, "putfile", request)
            sent = 0
            while sent < size and wire.usable:  # it answers before the end only to refuse
                chunk = chunks(sent)
                if not chunk:
                    raise NotWritten(f"only {sent} of {size} bytes were there to be put into {path}", who=self.who)
                wire.send(chunk)
                sent += len(chunk)
                async with self._deadline("box_start"):
                    await wire.drain()
            await self._read_answer(wire, "box_start")

    async def get(self, path: str) -> bytes:
        """All of a regular file."""
        parts: list[bytes] = []
        await self.get_into(path, parts.append)
        return b"".join(parts)

    async def get_into(self, path: str, write: Callable[[bytes], object]) -> FileAttributes:
        """A regular file, piece by piece. If it shrinks meanwhile this ends with `PeerGone`."""
        async with self._wire() as wire:
            self._send(wire, "getfile", {"path": path})
            answer = await self._read_answer(wire, "box_start")
            found = FileAttributes(*(_parse_integer(self.who, answer, name) for name in ("size", "mode", "uid", "gid")))
            left = found.size
            while left:
                async with self._deadline("box_start"):
                    some = await wire.read_some(min(left, CHUNK))
                if not some:
                    raise wire.build_gone_error()
                write(some)
                left -= len(some)
        self._record_body("received", {"verb": "getfile", "bytes": found.size})
        return found

    async def signal(self, number: int) -> None:
        """To all processes of the box but its box server."""
        await self._call("signal", {"signal": number}, "box_start")

    async def _call(self, verb: str, data: Mapping[str, Any], limit: str, seconds: float | None = -1) -> dict[str, Any]:
        """One request and its answer."""
        async with self._wire() as wire:
            self._send(wire, verb, data)
            return await self._read_answer(wire, limit, seconds)

    async def _open(
        self, verb: str, data: Mapping[str, Any], limit: str, seconds: float | None = -1
    ) -> tuple[ServerLink, dict[str, Any]]:
        """A request that takes the connection over, for whoever gets it now."""
        async with self._wire(keep=False) as wire:
            self._send(wire, verb, data)
            return wire, await self._read_answer(wire, limit, seconds)

    @asynccontextmanager
    async def _wire(self, *, keep: bool = True) -> AsyncIterator[ServerLink]:
        """A connection for one call. Used again only after a call that went as it should: to close it ends the call there too."""
        if self._closed:
            raise Closed("the box's control wire is closed", who=self.who)
        wire = await self._get_link()
        self._busy.add(wire)
        try:
            yield wire
        except BaseException:
            wire.close()
            raise
        finally:
            self._busy.discard(wire)
        if keep and not wire.closed and len(self._idle) < _IDLE:
            self._idle.append(wire)
        elif keep:
            wire.close()

    async def _get_link(self) -> ServerLink:
        while self._idle:
            wire = self._idle.pop()
            if wire.usable:
                return wire
            wire.close()  # the box server has ended meanwhile: there may be another by now
        wire = ServerLink(self.who, self.limits)
        try:
            async with self._deadline("box_start"):
                await wire.connect(self.address)
        except BaseException:
            wire.close()
            raise
        return wire

    def _send(self, wire: ServerLink, verb: str, data: Mapping[str, Any]) -> None:
        body = _to_json({"verb": verb, "data": data})
        if len(body) > self.limits.box_frame:
            limit = LimitHit("box_frame", self.limits.box_frame)
            raise FrameTooBig(f"a request of {len(body)} bytes", who=self.who, limit=limit)
        self._record_body("sent", {"verb": verb, "data": _mask_values(data)})
        wire.send(len(body).to_bytes(4, "big") + body)

    async def _read_answer(self, wire: ServerLink, limit: str, seconds: float | None = -1) -> dict[str, Any]:
        async with self._deadline(limit, seconds):
            body = await wire.read_frame()
        if self._tap is not None:
            self._tap.record_body("received", _mask_output(body))
        return decode_answer(self.who, body)

    @asynccontextmanager
    async def _deadline(self, limit: str, seconds: float | None = -1) -> AsyncIterator[None]:
        """A deadline by the name of its limit; -1 is the limit itself."""
        value: float | None = getattr(self.limits, limit) if seconds == -1 else seconds
        try:
            async with asyncio.timeout(value):
                yield
        except TimeoutError:
            raise PeerTimeout("the box's porter did not answer in time", who=self.who, limit=LimitHit(limit, value or 0)) from None

    def _record_body(self, way: Any, what: Mapping[str, Any]) -> None:
        if self._tap is not None:
            self._tap.record_body(way, _to_json(what))


def _to_json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _build_request(cmd: Sequence[str], env: Mapping[str, str] | None, cwd: str | None) -> dict[str, Any]:
    wishes: dict[str, Any] = {"cmd": list(cmd)}
    if env:
        wishes["env"] = dict(env)
    if cwd:
        wishes["cwd"] = cwd
    return wishes


def _mask_values(value: Any) -> Any:
    if isinstance(value, Mapping):
        masked = {name: "*" * len(item) if name in _MASKED else _mask_values(item) for name, item in value.items()}
        return masked | ({"env": _mask_variables(value["env"])} if "env" in value else {})
    if isinstance(value, list):
        return [_mask_values(item) for item in value]
    return value


def _mask_output(body: bytes) -> bytes:
    """What a command printed may be a secret that a hook put into the box, and who runs it need not know that: stars."""
    try:
        answer = json.loads(body)
        data = answer.get("data", {})
        return _to_json({**answer, "data": {name: "*" * len(text) if name in _PRINTED else text for name, text in data.items()}})
    except (ValueError, AttributeError, TypeError, RecursionError):
        return _to_json({"bytes that are no answer": len(body)})


def _mask_variables(env: Any) -> Any:
    """Of variables that look like credentials only the names are recorded."""
    if isinstance(env, Mapping):
        return {name: "*" * len(text) if looks_secret(name, text) else text for name, text in env.items()}
    pairs = (pair.partition("=") for pair in env)
    return [f"{name}={'*' * len(text) if looks_secret(name, text) else text}" for name, _, text in pairs]


def _split_files(files: Sequence[InjectedFile], room: int) -> list[list[dict[str, Any]]]:
    """The files, in as many lists as it takes frames. A long file goes in pieces; its mode and owner come with the last of them."""
    batches: list[list[dict[str, Any]]] = [[]]
    left, step = room, room // 4  # so a piece fits in any case, in base64 and with what is around it
    for file in files:
        starts = range(0, len(file.content), step) or range(1)
        for start in starts:
            piece: dict[str, Any] = {"Path": file.path, "Content": _encode_base64(file.content[start : start + step])}
            if start:
                piece["Append"] = True
            if start == starts[-1]:
                piece |= {"Mode": file.mode, "UID": file.uid, "GID": file.gid}
            size = len(_to_json(piece)) + 1
            if size > left and batches[-1]:
                batches.append([])
                left = room
            batches[-1].append(piece)
            left -= size
    return batches


def _parse_integer(who: str, answer: Mapping[str, Any], name: str) -> int:
    value = answer.get(name)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise BadFrame(f"the porter's answer has no {name}", who=who)
    return value


def _decode(answer: Mapping[str, Any], name: str) -> bytes:
    raw = answer.get(f"{name}_base64")
    try:
        return str(answer.get(name, "")).encode() if raw is None else base64.b64decode(raw, validate=True)
    except (ValueError, TypeError):
        raise BadFrame(f"the porter's answer has an unreadable {name}") from None
