"""Guests' tools for agents that cannot take tools inside their own protocol: an MCP server at a unix socket.

Who may come in: processes of this user, through a folder that is closed to everybody else, with the token of this session as their
first line. What they get is guests' tools and nothing more, and each call is decided where it runs, like any other. An agent is
given `Endpoint.launch` as a server to start: `serai mcp-attach` brings its pipes to the socket.
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
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self

from serai.app.mcp_client import Client, Door
from serai.errors import Closed, NotWritten, SpawnFailed
from serai.host.contribution_table import BuiltInOwner, RegisteredTool
from serai.host.host import Host
from serai.limits import Limits
from serai.model.tools import ProgressCallback, ToolBox, ToolCall, ToolResult, ToolSpec
from serai.version import __version__
from serai.wire.channel import Tap

__all__ = ["TOKEN", "Endpoint", "GuestTools", "Launch"]

log = logging.getLogger("serai.app")

TOKEN = "SERAI_MCP_TOKEN"  # noqa: S105  (the name of the variable)
_LONGEST = 100  # bytes of a socket's path: the kernel takes 107
_AT_ONCE = 16  # connections taken in before those that are there are looked at again
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_AGAIN = 0.1  # seconds, after the machine had no room for a connection


class GuestTools:
    """Of the house's tools those that guests brought: what an agent with tools of its own is offered."""

    def __init__(self, tools: ToolBox, host: Callable[[], Host], *, only: Collection[str] | None = None) -> None:
        """`only`: these, if they are there."""
        self._tools = tools
        self._host = host
        self._only = only

    def list(self) -> Sequence[ToolSpec]:
        return [tool.spec for tool in self._host().table.tools.values() if self._offers(tool)]

    def _offers(self, tool: RegisteredTool) -> bool:
        return not isinstance(tool.owner, BuiltInOwner) and (self._only is None or tool.spec.name in self._only)

    async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
        tool = self._host().table.tools.get(call.name)
        if tool is None or not self._offers(tool):
            return ToolResult.error(f"no guest has a tool {call.name}", code="TOOL_UNAVAILABLE", hint="use a tool of your own")
        return await self._tools.call(call, tell=tell)


class Launch(NamedTuple):
    """How an agent starts its end. The token is in the environment alone: everybody can read a command line."""

    argv: list[str]
    env: dict[str, str]

    def entry(self) -> dict[str, Any]:
        """The server in the words of most agents' configurations. It has the token in it: for a file, never for a command line."""
        return {"type": "stdio", "command": self.argv[0], "args": self.argv[1:], "env": self.env}


class Endpoint:
    """One agent's way to the tools in `tools`; `agent` is who asks for the calls. Closing it leaves nothing behind."""

    def __init__(
        self,
        tools: ToolBox,
        *,
        agent: str,
        name: str = "serai",
        limits: Limits | None = None,
        environ: Mapping[str, str] = os.environ,
        tap: Callable[[], Tap | None] | None = None,
    ) -> None:
        self.limits = Limits() if limits is None else limits
        self._door = Door(
            tools=tools,
            agent=agent,
            name=name,
            version=__version__,
            limits=self.limits,
            tap=tap,
            opens=self._opens,
            left=self._left,
        )
        self._environ = environ
        self._token = secrets.token_urlsafe(32)
        self._user = os.geteuid()
        self._listener: socket.socket | None = None
        self._strangers: dict[Client, None] = {}  # who has shown no token yet, the oldest first
        self._clients: dict[Client, None] = {}
        self._closed = False
        self.folder = ""
        self.refused = 0  # connections that were turned away

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> Self:
        if self._closed or self._listener is not None:
            raise Closed("an MCP endpoint is opened once", who=self._door.agent)
        if not sys.executable:
            raise SpawnFailed("no interpreter for `serai mcp-attach`: Python does not know its own", who="serai mcp-attach")
        self.folder = _folder(self._environ)
        try:
            self._listener = _listener(self.path)
            _write(self.config, json.dumps({"mcpServers": {self._door.name: self.launch.entry()}}))
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
    def launch(self) -> Launch:
        # -P: nothing of the folder it is started in, which is the project's, is imported.
        return Launch([sys.executable, "-P", "-m", "serai", "mcp-attach", self.path], {TOKEN: self._token})

    @property
    def clients(self) -> int:
        """How many are let in."""
        return len(self._clients)

    def tools_changed(self) -> None:
        """Tell everybody who is there that the tools are others now."""
        for client in list(self._clients):
            client.tools_changed()

    async def close(self) -> None:
        """Hang up on everybody, let their calls end, and remove socket and folder. Idempotent."""
        self._closed = True
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
        for client in [*self._strangers, *self._clients]:
            client.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        if working := self._door.working - {asyncio.current_task()}:  # one of them may be what closes us
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
            self._came(connection)

    def _came(self, connection: socket.socket) -> None:
        if self._user_of(connection) != self._user:
            self.refused += 1
            connection.close()
            return
        if len(self._strangers) >= self.limits.mcp_clients:  # who says at once who it is is never one of these
            next(iter(self._strangers)).close()
        client = Client(self._door, connection)
        self._strangers[client] = None
        client.start()

    @staticmethod
    def _user_of(connection: socket.socket) -> int:
        size = struct.calcsize("3i")
        _pid, user, _group = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return int(user)

    def _opens(self, client: Client, word: bytes) -> bool:
        """Whether this word lets it in."""
        if not hmac.compare_digest(word, self._token.encode()):
            return False
        if len(self._clients) >= self.limits.mcp_clients:
            log.warning("%d MCP clients of %s are there already; another one is not let in", len(self._clients), self._door.agent)
            return False
        del self._strangers[client]
        self._clients[client] = None
        return True

    def _left(self, client: Client) -> None:
        if client in self._strangers:
            self.refused += 1
        self._strangers.pop(client, None)
        self._clients.pop(client, None)

    def _pause(self, error: OSError) -> None:
        """The machine has no room for a connection: without a pause we would be told of it without end."""
        log.warning("the MCP endpoint of %s can take nobody in: %s", self._door.agent, error.strerror)
        loop, listener = asyncio.get_running_loop(), self._listener
        assert listener is not None
        loop.remove_reader(listener.fileno())

        def again() -> None:
            if self._listener is not None:
                loop.add_reader(self._listener.fileno(), self._accept)

        loop.call_later(_AGAIN, again)


def _folder(environ: Mapping[str, str]) -> str:
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


def _listener(path: str) -> socket.socket:
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
