"""An MCP server at a unix socket: guests' tools for agents that cannot take tools inside their own protocol.

It admits processes of this user, through a folder that is closed to everybody else, with the token of this session as their first
line. They get guests' tools and nothing more, and each call is decided where it runs, like any other. An agent is given
`ToolEndpoint.launch` as a server to start: `serai mcp-attach` connects its pipes with the socket. An `EndpointClient` is one
connection; everything that it can make Serai keep is bounded.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import logging
import os
import secrets
import shutil
import socket
import struct
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from time import monotonic
from typing import Any, Literal, NamedTuple, Self

from serai.agents.tool_results import fit_for_model
from serai.dialects.mcp.events import Called, Cancelled, PeerEvent, Reply
from serai.dialects.mcp.peer_side import PeerSide
from serai.errors import Closed, FrameTooBig, NotWritten, PeerGone, SeraiError, SpawnFailed
from serai.limits import MIB, AgentLimits
from serai.model.tools import ToolBox, ToolCall, ToolResult
from serai.version import __version__
from serai.wire import jsonrpc
from serai.wire.channel import Outbox, Tap
from serai.wire.stream import Framer, Oversize

log = logging.getLogger("serai.app")

_WORD = 256  # bytes: who has not ended its first line by then has no token
_WAITS = 1 * MIB  # of answers it does not take: then it is not read from any more


@dataclass(slots=True, kw_only=True)
class EndpointContext:
    """What all clients of an endpoint have in common."""

    tools: ToolBox
    agent: str
    name: str
    version: str
    limits: AgentLimits
    tap: Callable[[], Tap | None] | None
    opens: Callable[[EndpointClient, bytes], bool]
    left: Callable[[EndpointClient], None]
    working: set[asyncio.Task[ToolResult]] = field(default_factory=set)


class EndpointClient:
    """One connection. It says its token, then it is served; whatever is odd about it ends it alone."""

    def __init__(self, context: EndpointContext, connection: socket.socket) -> None:
        self._context = context
        self._limits = context.limits
        self._connection = connection
        self._descriptor = connection.fileno()
        connection.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._word = b""
        self._server: PeerSide | None = None  # once it has shown its token
        self._tap: Tap | None = None
        self._framer = Framer(self._limits.frame, self._limits.frame_head)
        self._held: deque[bytes | Oversize] = deque()  # read, and not looked at: it takes no answers at the moment
        self._tasks: dict[bytes, asyncio.Task[ToolResult]] = {}
        self._reading = False
        self._eof = False
        self._closed = False
        self._given = 0  # bytes for it, so far
        self._resuming: asyncio.Task[None] | None = None
        self._stalls: asyncio.TimerHandle | None = None
        self._timer = self._loop.call_later(self._limits.hello, self.close)
        self._outbox = Outbox(
            self._descriptor,
            self._limits,
            who=self.who,
            on_sent=partial(self._record, "sent"),
            on_broken=self._on_broken,
            why=self._make_closed_error,
        )

    @property
    def who(self) -> str:
        return f"the MCP client of {self._context.agent}"

    def start(self) -> None:
        """Read at once: most say who they are in the moment they come."""
        self._start_reading()
        self._on_readable()

    def notify_tools_changed(self) -> None:
        """Said once, however often, to one that is behind."""
        message = None if self._server is None or self._outbox.queued > _WAITS else self._server.notify_tools_changed()
        if message is not None and not self._eof:
            self._send(message)

    def close(self, cause: SeraiError | None = None) -> None:
        """Hang up; its calls are cancelled. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._stop_reading()
        self._timer.cancel()
        if self._stalls is not None:
            self._stalls.cancel()
        self._held.clear()
        self._outbox.close()
        self._connection.close()
        self._cancel_calls()
        self._tell_tap("ended", Closed("hung up on", who=self.who) if cause is None else cause)
        self._context.left(self)

    # -- in ---------------------------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            data = self._connection.recv(self._limits.read)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(PeerGone(f"reading: {error.strerror}", who=self.who))
            return
        if not data:
            self._on_eof()
            return
        if self._server is None:
            data = self._authenticate(data)
        if data:
            self._queue_frames(self._framer.feed(data))
            self._process_held()

    def _authenticate(self, data: bytes) -> bytes:
        """What follows the token. Whoever has another one is told nothing."""
        self._word += data
        word, end, rest = self._word.partition(b"\n")
        if not end and len(word) <= _WORD:
            return b""
        self._word = b""
        if not end or len(word) > _WORD or not self._context.opens(self, word.rstrip(b"\r")):
            self.close()
            return b""
        self._timer.cancel()
        self._server = PeerSide(self._context.name, self._context.version, self._context.tools.list)
        self._tap = None if self._context.tap is None else self._context.tap()
        return rest

    def _queue_frames(self, read: list[bytes | Oversize]) -> None:
        for item in read:
            self._held += [item] if isinstance(item, Oversize) else BytesIO(item).readlines()

    def _process_held(self) -> None:
        """Look at what was read, as long as the answers are taken."""
        while self._held and not self._closed and self._outbox.queued <= _WAITS:
            item = self._held.popleft()
            assert self._server is not None
            if isinstance(item, Oversize):
                self._tell_tap("skipped", item)
                self._handle_event(self._server.oversize(item))
            elif item.strip():
                self._record("received", item)
                self._handle_event(self._server.receive(item))
        if self._closed:
            return
        if self._held:
            self._stop_reading()
            if self._resuming is None:
                self._resuming = self._loop.create_task(self._resume())
        elif self._eof:
            self._end()

    async def _resume(self) -> None:
        """Go on when everything was taken."""
        try:
            await self._outbox.drain()
        except SeraiError:  # it is gone
            return
        finally:
            self._resuming = None
        if not self._eof:
            self._start_reading()
        self._process_held()

    def _on_eof(self) -> None:
        """It says no more. What it asked is still looked at, and what is ready is still sent; what runs has lost its asker."""
        self._eof = True
        self._stop_reading()
        if self._server is None:
            self.close()
            return
        self._queue_frames(self._framer.feed_eof())
        self._process_held()

    def _end(self) -> None:
        self._cancel_calls()
        self._outbox.end()  # `_on_broken(None)` once all is written

    def _start_reading(self) -> None:
        if not self._reading and not self._closed:
            self._reading = True
            self._loop.add_reader(self._descriptor, self._on_readable)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    # -- calls ------------------------------------------------------------------------------------------------------------------

    def _handle_event(self, heard: PeerEvent) -> None:
        match heard:
            case Reply(message=message):
                self._send(message)
            case Called():
                self._start_call(heard)
            case Cancelled(id=id):
                if (task := self._tasks.get(id)) is not None:
                    task.cancel()

    def _start_call(self, called: Called) -> None:
        assert self._server is not None
        if len(self._tasks) >= self._limits.requests:
            why = f"{len(self._tasks)} calls run already (limit requests)"
            self._answer(called.id, ToolResult.error(why, code="BUSY", hint="wait for some of them"))
            return
        task = self._loop.create_task(self._run(called), name=f"{self._context.agent} {called.name}")
        self._tasks[called.id] = task
        self._context.working.add(task)
        # A callback and not the task itself answers: a task that is cancelled before its first step never runs.
        task.add_done_callback(lambda task: self._on_call_done(called, task))

    async def _run(self, called: Called) -> ToolResult:
        call = ToolCall(called.name, called.arguments, called.tool_use, self._context.agent)
        limit = asyncio.timeout(self._limits.call)
        try:
            async with limit:
                return fit_for_model(await self._context.tools.call(call), self._limits.tool_result)
        except TimeoutError:
            if not limit.expired():
                raise
            return ToolResult.error(f"{called.name} did not end in {self._limits.call:g} s (limit call)", code="TIMEOUT")

    def _on_call_done(self, called: Called, task: asyncio.Task[ToolResult]) -> None:
        self._context.working.discard(task)
        if self._tasks.get(called.id) is task:
            del self._tasks[called.id]
        if task.cancelled():
            self._answer(called.id, ToolResult.error(f"{called.name} was cancelled", code="CANCELLED"))
        elif (error := task.exception()) is None:
            self._answer(called.id, task.result())
        else:
            log.error("%s: running %s failed", self.who, called.name, exc_info=error)
            self._answer(called.id, ToolResult.error(f"{called.name} failed: {error!r}", code="FAILED"))

    def _answer(self, id: bytes, result: ToolResult) -> None:
        """Nothing when nobody waits for it any more."""
        if self._server is None or self._closed or self._eof:
            return
        try:
            message = self._server.answer(id, result)
        except Exception as error:  # a guest's block that is no JSON
            log.exception("%s: a result cannot be sent", self.who)
            message = self._server.fail(id, jsonrpc.INTERNAL_ERROR, f"the result cannot be sent: {error}")
        if message is not None:
            self._send(message, id)

    def _cancel_calls(self) -> None:
        """Nobody waits for them any more."""
        if self._server is not None:
            self._server.lose()
        for task in self._tasks.values():
            task.cancel()

    # -- out --------------------------------------------------------------------------------------------------------------------

    def _send(self, message: bytes, id: bytes = b"") -> None:
        if self._closed:
            return
        try:
            self._put(message)
        except FrameTooBig as error:
            self._put_refusal(id, error)
        except SeraiError as error:  # it does not read, and too much waits for it
            self.close(error)

    def _put_refusal(self, id: bytes, error: FrameTooBig) -> None:
        assert self._server is not None
        try:
            self._put(PeerSide.build_refusal(id or b"null", jsonrpc.INTERNAL_ERROR, error.message))
        except SeraiError as other:
            self.close(other)

    def _put(self, message: bytes) -> None:
        self._outbox.send(frame := message + b"\n")
        self._given += len(frame)
        if self._outbox.queued and self._stalls is None:
            self._watch()

    def _watch(self) -> None:
        """Every wait has an end: who takes nothing for a while, although something waits, is hung up on (design rule 6)."""
        taken = self._given - self._outbox.queued

        def check() -> None:
            self._stalls = None
            if self._closed or not self._outbox.queued:
                return
            if self._given - self._outbox.queued <= taken:
                log.warning("%s takes nothing: %d bytes wait for it", self.who, self._outbox.queued)
                self.close(PeerGone("it does not read", who=self.who))
            else:
                self._watch()

        self._stalls = self._loop.call_later(self._limits.mcp_stall, check)

    def _on_broken(self, error: OSError | None) -> None:
        self.close(PeerGone("hung up" if error is None else f"writing: {error.strerror}", who=self.who))

    def _make_closed_error(self) -> SeraiError:
        return Closed("the connection is closed", who=self.who)

    # -- the tap ----------------------------------------------------------------------------------------------------------------

    def _record(self, direction: Literal["sent", "received"], run: bytes) -> None:
        if self._tap is not None:
            try:
                self._tap.frames(direction, monotonic(), run)
            except Exception as error:
                self._drop_tap(error)

    def _tell_tap(self, method: Literal["skipped", "ended"], what: Oversize | SeraiError) -> None:
        if self._tap is not None:
            try:
                getattr(self._tap, method)(monotonic(), what)
            except Exception as error:
                self._drop_tap(error)

    def _drop_tap(self, error: Exception) -> None:
        log.error("%s: its tap failed and is not called again", self.who, exc_info=error)
        self._tap = None


TOKEN_VARIABLE = "SERAI_MCP_TOKEN"  # noqa: S105  (the name of the variable)
_LONGEST = 100  # bytes of a socket's path: the kernel takes 107
_AT_ONCE = 16  # connections taken in before those that are there are looked at again
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_AGAIN = 0.1  # seconds, after the machine had no room for a connection


class EndpointCommand(NamedTuple):
    """How an agent starts its end. The token is in the environment alone: everybody can read a command line."""

    argv: list[str]
    env: dict[str, str]

    def to_entry(self) -> dict[str, Any]:
        """The server in the words of most agents' configurations. It has the token in it: for a file, never for a command line."""
        return {"type": "stdio", "command": self.argv[0], "args": self.argv[1:], "env": self.env}


class ToolEndpoint:
    """One agent's way to the tools in `tools`; `agent` is who asks for the calls. Closing it leaves nothing behind."""

    def __init__(
        self,
        tools: ToolBox,
        *,
        agent: str,
        name: str = "serai",
        limits: AgentLimits | None = None,
        environ: Mapping[str, str] = os.environ,
        tap: Callable[[], Tap | None] | None = None,
    ) -> None:
        self.limits = AgentLimits() if limits is None else limits
        self._context = EndpointContext(
            tools=tools,
            agent=agent,
            name=name,
            version=__version__,
            limits=self.limits,
            tap=tap,
            opens=self._admit,
            left=self._remove_client,
        )
        self._environ = environ
        self._token = secrets.token_urlsafe(32)
        self._user = os.geteuid()
        self._listener: socket.socket | None = None
        self._unverified: dict[EndpointClient, None] = {}  # who has shown no token yet, the oldest first
        self._clients: dict[EndpointClient, None] = {}
        self._closed = False
        self.folder = ""
        self.refused = 0  # connections that were turned away

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> Self:
        if self._closed or self._listener is not None:
            raise Closed("an MCP endpoint is opened once", who=self._context.agent)
        if not sys.executable:
            raise SpawnFailed("no interpreter for `serai mcp-attach`: Python does not know its own", who="serai mcp-attach")
        self.folder = _make_folder(self._environ)
        try:
            self._listener = _open_listener(self.path)
            _write(self.config, json.dumps({"mcpServers": {self._context.name: self.launch.to_entry()}}))
        except OSError as error:
            await self.close()
            raise NotWritten(f"no socket can be made: {error.strerror}", who=self.folder) from None
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)
        return self

    @property
    def path(self) -> str:
        """The socket."""
        return os.path.join(self.folder, "socket")

    @property
    def config(self) -> str:
        """A file with this server in the words of most agents (`mcpServers`), for this user alone."""
        return os.path.join(self.folder, "mcp.json")

    @property
    def launch(self) -> EndpointCommand:
        # -P: nothing of the folder it is started in, which is the project's, is imported.
        return EndpointCommand([sys.executable, "-P", "-m", "serai", "mcp-attach", self.path], {TOKEN_VARIABLE: self._token})

    @property
    def clients(self) -> int:
        """How many are let in."""
        return len(self._clients)

    def notify_tools_changed(self) -> None:
        """Tell everybody who is there that the tools are others now."""
        for client in list(self._clients):
            client.notify_tools_changed()

    async def close(self) -> None:
        """Hang up on everybody, let their calls end, and remove socket and folder. Idempotent."""
        self._closed = True
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
        for client in [*self._unverified, *self._clients]:
            client.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        if working := self._context.working - {asyncio.current_task()}:  # one of them may be what closes us
            await asyncio.wait(working, timeout=self.limits.drain)

    # -- who comes, and who goes ------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if self._listener is None:
                return
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:  # whoever hung up already is the next one's luck; no room is nobody's
                if error.errno in _FULL:
                    self._pause(error)
                    return
                continue
            self._add_unverified(connection)

    def _add_unverified(self, connection: socket.socket) -> None:
        if self._get_peer_user(connection) != self._user:
            self.refused += 1
            connection.close()
            return
        if len(self._unverified) >= self.limits.mcp_clients:  # who says at once who it is is never one of these
            next(iter(self._unverified)).close()
        client = EndpointClient(self._context, connection)
        self._unverified[client] = None
        client.start()

    @staticmethod
    def _get_peer_user(connection: socket.socket) -> int:
        size = struct.calcsize("3i")
        _pid, user, _group = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return int(user)

    def _admit(self, client: EndpointClient, word: bytes) -> bool:
        """Whether this word lets it in."""
        if not hmac.compare_digest(word, self._token.encode()):
            return False
        if len(self._clients) >= self.limits.mcp_clients:
            who = self._context.agent
            log.warning("%d MCP clients of %s are there already; another one is not let in", len(self._clients), who)
            return False
        del self._unverified[client]
        self._clients[client] = None
        return True

    def _remove_client(self, client: EndpointClient) -> None:
        if client in self._unverified:
            self.refused += 1
        self._unverified.pop(client, None)
        self._clients.pop(client, None)

    def _pause(self, error: OSError) -> None:
        """The machine has no room for a connection: without a pause we would be told of it without end."""
        log.warning("the MCP endpoint of %s can take nobody in: %s", self._context.agent, error.strerror)
        loop, listener = asyncio.get_running_loop(), self._listener
        assert listener is not None
        loop.remove_reader(listener.fileno())

        def resume() -> None:
            if self._listener is not None:
                loop.add_reader(self._listener.fileno(), self._accept)

        loop.call_later(_AGAIN, resume)


def _make_folder(environ: Mapping[str, str]) -> str:
    """A new folder for this user alone, with a path short enough for a socket in it."""
    why = "no path is short enough for a socket"
    shortest = "/tmp"  # noqa: S108  (the new folder in it is closed to others)
    for base in (environ.get("XDG_RUNTIME_DIR", ""), environ.get("TMPDIR", ""), tempfile.gettempdir(), shortest):
        if not os.path.isabs(base) or len(os.fsencode(os.path.join(base, "serai-mcp-12345678", "socket"))) > _LONGEST:
            continue
        try:
            return tempfile.mkdtemp(prefix="serai-mcp-", dir=base)  # 0700
        except OSError as error:
            why = error.strerror or str(error)
    raise NotWritten(
        f"no folder can be made for a socket: {why}", who="TMPDIR", hint="set TMPDIR to a folder that you can write to"
    )


def _open_listener(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(128)
    except BaseException:
        with suppress(OSError):
            listener.close()
        raise
    return listener


def _write(path: str, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
