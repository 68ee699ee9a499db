"""The wire to the porter of a box, from our side: run commands, move files, reach ports (spec hooks 4).

Each call has a connection for itself; those that are left clean are used again. A call that is given up closes its connection,
which ends what it started in the box.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from serai.boxes.streams import CHUNK, Stream, Terminal, Wire, decoded, ending
from serai.errors import BadFrame, Closed, FrameTooBig, LimitHit, NotWritten, PeerTimeout
from serai.limits import Limits
from serai.wire.child_environment import looks_secret

if TYPE_CHECKING:
    from serai.record.recorder import WireTap

__all__ = ["Control", "ExecResult", "FileAttributes", "InitResult", "Injected"]

_FRAME_AROUND = 256  # bytes of a frame around its files
_GRACE = 30.0  # seconds that we wait longer than the porter (spec hooks 4)
_IDLE = 8  # connections that are kept for the next call
# What may be a secret: recorded as so many stars.
_MASKED = ("Content", "init_script", "stdin")
_PRINTED = ("stdout", "stderr", "stdout_base64", "stderr_base64", "script_output")


class Injected(Protocol):
    """A file for a box: what a hook's answer was resolved to (`serai.dialects.hookproto.ours.Injection`)."""

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


class Control:
    """The porter at `address`. Any number of calls at once; `close` ends them all."""

    def __init__(self, address: str, *, who: str = "", limits: Limits | None = None, tap: WireTap | None = None) -> None:
        self.address = address
        self.who = who
        self.limits = limits or Limits()
        self._tap = tap
        self._idle: list[Wire] = []
        self._busy: set[Wire] = set()
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
        return _integer(self.who, await self._call("hello", {}, "box_start"), "porter")

    async def init(
        self,
        files: Sequence[Injected],
        *,
        env: Mapping[str, str] | None = None,
        script: bytes | None = None,
        script_timeout: float | None = None,
    ) -> InitResult:
        """Write the files, then run the script. More than a frame holds goes in several."""
        limit = self.limits.box_script if script_timeout is None else script_timeout
        last: dict[str, Any] = {"env": [f"{name}={value}" for name, value in (env or {}).items()]}
        if script:
            last |= {"init_script": _b64(script), "init_script_timeout": int(limit * 1e9)}
        batches = _batches(files, self.limits.box_frame - _FRAME_AROUND)
        if len(_json({"files": batches[-1], **last})) + _FRAME_AROUND > self.limits.box_frame:
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
        data = _wishes(cmd, env, cwd)
        if limit is not None:
            data["timeout"] = max(int(limit * 1e9), 1)
        if stdin:
            data["stdin"] = _b64(stdin)
        answer = await self._call("exec", data, "box_exec", None if limit is None else limit + _GRACE)
        code, signal = ending(self.who, answer)
        return ExecResult(_output(answer, "stdout"), _output(answer, "stderr"), code, signal, answer.get("timed_out") is True)

    async def stream(
        self,
        cmd: Sequence[str],
        *,
        tty: tuple[int, int] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Stream:
        """Start a program and talk to it while it runs: `async with await control.stream(["sh"]) as it`. `tty`: columns, rows."""
        data = _wishes(cmd, env, cwd) | {"stream": True}
        if tty is not None:
            data["tty"] = {"cols": tty[0], "rows": tty[1]}
        wire, answer = await self._open("exec", data, "box_start")
        try:
            return Stream(wire, _integer(self.who, answer, "pid"))
        except BaseException:
            wire.close()
            raise

    async def terminal(self, cmd: Sequence[str] = (), *, columns: int = 80, rows: int = 24) -> Terminal:
        """A terminal with the login shell of the box, or with another program."""
        wire, _ = await self._open("pty", {"cmd": list(cmd), "cols": columns, "rows": rows}, "box_start")
        return Terminal(wire)

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
                async with self._patience("box_start"):
                    await wire.drained()
            await self._answer(wire, "box_start")

    async def get(self, path: str) -> bytes:
        """All of a regular file."""
        parts: list[bytes] = []
        await self.get_into(path, parts.append)
        return b"".join(parts)

    async def get_into(self, path: str, write: Callable[[bytes], object]) -> FileAttributes:
        """A regular file, piece by piece. If it shrinks meanwhile this ends with `PeerGone`."""
        async with self._wire() as wire:
            self._send(wire, "getfile", {"path": path})
            answer = await self._answer(wire, "box_start")
            found = FileAttributes(*(_integer(self.who, answer, name) for name in ("size", "mode", "uid", "gid")))
            left = found.size
            while left:
                async with self._patience("box_start"):
                    some = await wire.some(min(left, CHUNK))
                if not some:
                    raise wire.gone()
                write(some)
                left -= len(some)
        self._note("received", {"verb": "getfile", "bytes": found.size})
        return found

    async def signal(self, number: int) -> None:
        """To all processes of the box but its porter."""
        await self._call("signal", {"signal": number}, "box_start")

    async def _call(self, verb: str, data: Mapping[str, Any], limit: str, seconds: float | None = -1) -> dict[str, Any]:
        """One request and its answer."""
        async with self._wire() as wire:
            self._send(wire, verb, data)
            return await self._answer(wire, limit, seconds)

    async def _open(
        self, verb: str, data: Mapping[str, Any], limit: str, seconds: float | None = -1
    ) -> tuple[Wire, dict[str, Any]]:
        """A request that takes the connection over, for whoever gets it now."""
        async with self._wire(keep=False) as wire:
            self._send(wire, verb, data)
            return wire, await self._answer(wire, limit, seconds)

    @asynccontextmanager
    async def _wire(self, *, keep: bool = True) -> AsyncIterator[Wire]:
        """A connection for one call. Used again only after a call that went as it should: to close it ends the call there too."""
        if self._closed:
            raise Closed("the box's control wire is closed", who=self.who)
        wire = await self._connected()
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

    async def _connected(self) -> Wire:
        while self._idle:
            wire = self._idle.pop()
            if wire.usable:
                return wire
            wire.close()  # the porter has ended meanwhile: there may be another by now
        wire = Wire(self.who, self.limits)
        try:
            async with self._patience("box_start"):
                await wire.connect(self.address)
        except BaseException:
            wire.close()
            raise
        return wire

    def _send(self, wire: Wire, verb: str, data: Mapping[str, Any]) -> None:
        body = _json({"verb": verb, "data": data})
        if len(body) > self.limits.box_frame:
            limit = LimitHit("box_frame", self.limits.box_frame)
            raise FrameTooBig(f"a request of {len(body)} bytes", who=self.who, limit=limit)
        self._note("sent", {"verb": verb, "data": _masked(data)})
        wire.send(len(body).to_bytes(4, "big") + body)

    async def _answer(self, wire: Wire, limit: str, seconds: float | None = -1) -> dict[str, Any]:
        async with self._patience(limit, seconds):
            body = await wire.answer()
        if self._tap is not None:
            self._tap.body("received", _without_output(body))
        return decoded(self.who, body)

    @asynccontextmanager
    async def _patience(self, limit: str, seconds: float | None = -1) -> AsyncIterator[None]:
        """A deadline by the name of its limit; -1 is the limit itself."""
        value: float | None = getattr(self.limits, limit) if seconds == -1 else seconds
        try:
            async with asyncio.timeout(value):
                yield
        except TimeoutError:
            raise PeerTimeout("the box's porter did not answer in time", who=self.who, limit=LimitHit(limit, value or 0)) from None

    def _note(self, way: Any, what: Mapping[str, Any]) -> None:
        if self._tap is not None:
            self._tap.body(way, _json(what))


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _wishes(cmd: Sequence[str], env: Mapping[str, str] | None, cwd: str | None) -> dict[str, Any]:
    wishes: dict[str, Any] = {"cmd": list(cmd)}
    if env:
        wishes["env"] = dict(env)
    if cwd:
        wishes["cwd"] = cwd
    return wishes


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        masked = {name: "*" * len(item) if name in _MASKED else _masked(item) for name, item in value.items()}
        return masked | ({"env": _variables(value["env"])} if "env" in value else {})
    if isinstance(value, list):
        return [_masked(item) for item in value]
    return value


def _without_output(body: bytes) -> bytes:
    """What a command printed may be a secret that a hook put into the box, and who runs it need not know that: stars."""
    try:
        answer = json.loads(body)
        data = answer.get("data", {})
        return _json({**answer, "data": {name: "*" * len(text) if name in _PRINTED else text for name, text in data.items()}})
    except (ValueError, AttributeError, TypeError, RecursionError):
        return _json({"bytes that are no answer": len(body)})


def _variables(env: Any) -> Any:
    """Of variables that look like credentials only the names are recorded."""
    if isinstance(env, Mapping):
        return {name: "*" * len(text) if looks_secret(name, text) else text for name, text in env.items()}
    pairs = (pair.partition("=") for pair in env)
    return [f"{name}={'*' * len(text) if looks_secret(name, text) else text}" for name, _, text in pairs]


def _batches(files: Sequence[Injected], room: int) -> list[list[dict[str, Any]]]:
    """The files, in as many lists as it takes frames. A long file goes in pieces; its mode and owner come with the last of them."""
    batches: list[list[dict[str, Any]]] = [[]]
    left, step = room, room // 4  # so a piece fits in any case, in base64 and with what is around it
    for file in files:
        starts = range(0, len(file.content), step) or range(1)
        for start in starts:
            piece: dict[str, Any] = {"Path": file.path, "Content": _b64(file.content[start : start + step])}
            if start:
                piece["Append"] = True
            if start == starts[-1]:
                piece |= {"Mode": file.mode, "UID": file.uid, "GID": file.gid}
            size = len(_json(piece)) + 1
            if size > left and batches[-1]:
                batches.append([])
                left = room
            batches[-1].append(piece)
            left -= size
    return batches


def _integer(who: str, answer: Mapping[str, Any], name: str) -> int:
    value = answer.get(name)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise BadFrame(f"the porter's answer has no {name}", who=who)
    return value


def _output(answer: Mapping[str, Any], name: str) -> bytes:
    raw = answer.get(f"{name}_base64")
    try:
        return str(answer.get(name, "")).encode() if raw is None else base64.b64decode(raw, validate=True)
    except (ValueError, TypeError):
        raise BadFrame(f"the porter's answer has an unreadable {name}") from None
