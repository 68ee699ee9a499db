"""One connection of a client: HTTP/1.1 by h11, one request after the other, bounded in bytes and time."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

try:
    import h11
except ImportError:
    raise ImportError("serai.testing.models needs h11: pip install 'serai[models]'") from None

from serai.limits import KIB, Limits

log = logging.getLogger("serai.testing")

_HEAD = 64 * KIB  # the head of a request; and what may come of the next one during an answer
_BUFFER = 256 * KIB  # written and not yet taken by the kernel; then the answer waits

Headers = list[tuple[str, str]]


class Received:
    """A request as it came."""

    __slots__ = ("body", "headers", "method", "target")

    def __init__(self, head: h11.Request) -> None:
        self.method = head.method.decode("latin-1")
        self.target = head.target.decode("latin-1")
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        self.body = bytearray()


class Owner(NamedTuple):
    """Whom a connection tells of itself, and who answers its requests."""

    came: Callable[[Connection], None]
    left: Callable[[Connection], None]
    answer: Callable[[Connection, Received], Awaitable[None]]


class Connection(asyncio.Protocol):
    """Reads requests and writes what its owner answers to each. A client that leaves ends the answer it was given."""

    def __init__(self, owner: Owner, limits: Limits) -> None:
        self._owner = owner
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD)
        self._room = asyncio.Event()
        self._room.set()
        self._received: Received | None = None
        self._early = 0
        self._timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_BUFFER)
        self._set_timeout(self._limits.call)
        self._owner.came(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._set_timeout(None)
        self._room.set()
        if self.task is not None:
            self.task.cancel()
        self._owner.left(self)

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def data_received(self, data: bytes) -> None:
        if self.task is not None:
            self._early += len(data)
            # Who has the whole answer may send the next request before we come back from sending it.
            if self._early > (self._limits.frame if self._http.our_state is h11.DONE else _HEAD):
                self.transport.abort()
                return
        elif self._received is None:
            self._set_timeout(self._limits.hello)
        self._http.receive_data(data)
        if self.task is None:
            self._advance()

    def _set_timeout(self, seconds: float | None) -> None:
        """So long for what is awaited from the client, or no such wait any more."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self.transport.abort) if seconds is not None else None

    def _advance(self) -> None:
        """Take what has come, up to a whole request."""
        try:
            self._read_events()
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, str(error))

    def _read_events(self) -> None:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self.transport.write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
                return
            if isinstance(event, h11.Request):
                self._received = Received(event)
            elif isinstance(event, h11.Data):
                assert self._received is not None
                self._received.body += event.data
                if len(self._received.body) > self._limits.frame:
                    self._refuse(413, f"a request has at most {self._limits.frame} bytes")
                    return
            elif isinstance(event, h11.EndOfMessage):
                assert self._received is not None
                self._set_timeout(None)
                self.task = asyncio.get_running_loop().create_task(self._serve(self._received))
                return
            else:
                return

    def _refuse(self, status: int, text: str) -> None:
        """What is no request gets a status and the end of its connection."""
        if self._http.our_state is h11.IDLE or self._http.our_state is h11.SEND_RESPONSE:
            body = text.encode()
            headers = [("content-type", "text/plain"), ("content-length", str(len(body))), ("connection", "close")]
            self.transport.write(self._http.send(h11.Response(status_code=status, headers=headers)) or b"")
            self.transport.write(self._http.send(h11.Data(data=body)) or b"")
        self.cut()

    async def _serve(self, received: Received) -> None:
        try:
            await self._owner.answer(self, received)
        except TimeoutError:  # the client does not read
            self.transport.abort()
        except Exception:
            log.exception("a fake model could not answer %s %s", received.method, received.target.partition("?")[0])
            self._refuse(500, "see the log of the fake")
        self.task, self._received, self._early = None, None, 0
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._set_timeout(self._limits.call)
            self._advance()
        else:
            self.cut()

    async def respond(self, status: int, headers: Headers, body: bytes, *, cut: bool = False) -> None:
        """A whole response; `cut`: half of it, and the end of the connection."""
        self._send(h11.Response(status_code=status, headers=[*headers, ("content-length", str(len(body)))]))
        if self._received is not None and self._received.method == "HEAD":  # who asks so gets the head alone
            body = b""
        if cut:
            await self.write(body[: len(body) // 2])
            self.cut()
        else:
            self._send(h11.Data(data=body))
            self.end()
            await self._drain()

    def begin(self, headers: Headers, status: int = 200) -> None:
        """The head of a stream."""
        self._send(h11.Response(status_code=status, headers=[*headers, ("transfer-encoding", "chunked")]))

    async def write(self, data: bytes) -> None:
        """A part of the body; returns when there is room for the next."""
        self._send(h11.Data(data=data))
        await self._drain()

    async def _drain(self) -> None:
        await asyncio.sleep(0)  # a client that reads as fast as we write would else never be seen to leave
        if not self._room.is_set():
            async with asyncio.timeout(self._limits.call):
                await self._room.wait()

    def end(self) -> None:
        self._send(h11.EndOfMessage())

    def _send(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        self.transport.write(self._http.send(event) or b"")

    def cut(self) -> None:
        """Close where we are: what was written still goes out, if the client reads it in time."""
        self.transport.close()
        self._set_timeout(self._limits.hello)

    def reset(self) -> None:
        """Close so that the client is told of it as an error."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
