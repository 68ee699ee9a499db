"""The bytes between us and a porter: one connection, and what a command's streams and a terminal are on it (spec hooks 3.7, 4)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any, Literal, Self

from serai.errors import BadFrame, Closed, LimitHit, OversizeFrame, PeerGone, PeerTimeout, Refused
from serai.limits import Limits

__all__ = ["Stream", "Terminal", "Wire", "decoded", "ending"]

CHUNK = 256 * 1024
PACKET = 1024 * 1024  # the longest that either side takes
_AGAIN = 0.005  # seconds
_KINDS: dict[int, Literal["stdout", "stderr"]] = {1: "stdout", 2: "stderr"}


class Wire:
    """One connection to a porter. Reading and writing go on side by side; whoever is cancelled in one closes it."""

    def __init__(self, who: str, limits: Limits) -> None:
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
                while not self._connects(f"/proc/self/fd/{folder}/{os.path.basename(address)}"):  # noqa: ASYNC110  (nobody tells when)
                    await asyncio.sleep(_AGAIN)
            finally:
                os.close(folder)
        except OSError as error:
            raise PeerGone(f"nobody listens at its control socket: {error.strerror}", who=self.who) from None

    def _connects(self, path: str) -> bool:
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
                self._loop.add_writer(self.socket, self._writable)
        self._outbox += data

    async def drained(self, most: int = CHUNK) -> None:
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

    def _writable(self) -> None:
        del self._outbox[: self._write(self._outbox)]
        if not self._outbox:
            self._loop.remove_writer(self.socket)
        self._wake()

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def some(self, most: int = CHUNK) -> bytes:
        """Bytes, none at the end."""
        if self.closed:
            return b""
        try:
            return await self._loop.sock_recv(self.socket, most)
        except ConnectionError:
            return b""

    async def read(self, size: int) -> bytes:
        """Exactly so many bytes, and not one more: what follows may be somebody else's."""
        data = await self.some(min(size, CHUNK)) if size else b""
        if len(data) == size:
            return data
        parts = [data]
        while size := size - len(data):
            if not data:
                raise self.gone()
            data = await self.some(min(size, CHUNK))
            parts.append(data)
        return b"".join(parts)

    async def answer(self) -> bytes:
        """The next frame."""
        size = int.from_bytes(await self.read(4), "big")
        if size > self.limits.box_frame:
            limit = LimitHit("box_frame", self.limits.box_frame)
            raise OversizeFrame(f"an answer of {size} bytes", who=self.who, limit=limit)
        return await self.read(size)

    def gone(self) -> PeerGone | Closed:
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


def decoded(who: str, body: bytes) -> dict[str, Any]:
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


def ending(who: str, told: Any) -> tuple[int, int | None]:
    """How a command ended: its exit code, -1 with a signal. A porter is in a box, so nothing it says is taken on trust."""
    if isinstance(told, dict):
        code, signal = told.get("exit_code"), told.get("signal")
        if type(code) is int and -1 <= code <= 255 and (signal is None or (type(signal) is int and 0 < signal <= 64)):
            return code, signal
    raise BadFrame("the end of a command that tells no exit code", who=who)


class _Conversation:
    """What goes on with a command over a wire that is all its own."""

    def __init__(self, wire: Wire) -> None:
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
            self._packet(0, data[start : start + CHUNK])
            await self._wire.drained()

    def resize(self, columns: int, rows: int) -> None:
        self._packet(1, columns.to_bytes(2, "big") + rows.to_bytes(2, "big"))

    def _packet(self, kind: int, payload: bytes) -> None:
        self._active = monotonic()
        self._wire.send(bytes((kind,)) + len(payload).to_bytes(4, "big") + payload)

    async def _read(self, size: int | None) -> bytes:
        """So many bytes, or what there is. It may be silent for an hour (`box_exec`), counted from the last word of either side."""
        patience = self._wire.limits.box_exec
        reading = asyncio.ensure_future(self._wire.some() if size is None else self._wire.read(size))
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


class Stream(_Conversation):
    """A command under way: iterate over what it prints, as `("stdout" | "stderr", bytes)`; after that its end is known."""

    def __init__(self, wire: Wire, pid: int) -> None:
        super().__init__(wire)
        self.pid = pid  # inside the box
        self.exit_code: int | None = None  # -1 when a signal ended it
        self.signal_number: int | None = None

    def end_input(self) -> None:
        self._packet(0, b"")

    def signal(self, number: int) -> None:
        """To its process group; with a terminal, to the group in the foreground. It waits behind the input that was written before:
        if the program does not read that, only `close` ends it."""
        self._packet(2, bytes((number,)))

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
        self.exit_code, self.signal_number = ending(self._wire.who, told)


class Terminal(_Conversation):
    """A terminal in a box (spec hooks 3.7): `write` keystrokes, iterate over its screen's bytes until its program has ended."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self._read(None):
            yield data
        self.close()
