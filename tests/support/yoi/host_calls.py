"""Records with grants, a fake resolver, and servers on loopback for the tests of the host interfaces."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from serai.host.adapters.yoi.effects.host_calls import HostCalls
from serai.host.adapters.yoi.effects.network import PluginNetwork
from serai.plugins.grants import FsGrant, Grants, Operation, ResolvedPlugin
from serai.plugins.manifest import HostApi, Permission, PluginManifest, Target

DIGEST = "sha256:" + "0" * 64
APIS: tuple[HostApi, ...] = ("request", "websocket", "fs")
PATIENT = 30.0  # seconds: for what is expected to happen

TlsContexts = tuple[ssl.SSLContext, ssl.SSLContext]  # of a server, and of the client that trusts it
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def target(host: str = "api.example.com", *, scheme: str = "https", private: bool = False, **more: Any) -> Target:
    return Target(scheme=scheme, host=host, methods=more.pop("methods", ("GET", "POST")), private=private, **more)


def record(
    *,
    declared: Sequence[Target] = (),
    granted: Sequence[Target] | None = None,
    fs: Sequence[FsGrant] = (),
    apis: Sequence[HostApi] = APIS,
) -> ResolvedPlugin:
    """A plugin with these targets for `request` and `websocket`; granted what it declares unless said otherwise."""
    permissions = tuple(Permission(kind="host_api", api=api) for api in apis)
    given = tuple(declared if granted is None else granted)
    manifest = PluginManifest(
        schema_version=1, id="demo", name="Demo", version="1.0.0", permissions=permissions, request=tuple(declared),
        websocket=tuple(declared),
    )  # fmt: skip
    grants = Grants(
        id="user:demo", version="1.0.0", digest=DIGEST, permissions=permissions, request=given, websocket=given, fs=tuple(fs)
    )
    return ResolvedPlugin(
        identity="user:demo", source="user", package_path="/nowhere/demo.yoi-plugin", package_label="demo.yoi-plugin",
        digest=DIGEST, version="1.0.0", manifest=manifest, enabled_surfaces=(), grants=grants,
    )  # fmt: skip


def grant(root: object, *operations: Operation) -> FsGrant:
    return FsGrant(root=str(root), operations=operations or ("read", "list", "write"))


class Resolver:
    """Names and their addresses; remembers who was asked for."""

    def __init__(self, *answers: Sequence[str], **names: Sequence[str]) -> None:
        self.names = names
        self.answers = list(answers)  # one for each lookup, whatever the name
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if self.answers:
            return self.answers.pop(0)
        return self.names.get(host.partition(".")[0], ())


@asynccontextmanager
async def open_calls(plugin: ResolvedPlugin, world: Resolver | None = None, **more: Any) -> AsyncIterator[HostCalls]:
    network = PluginNetwork(resolve=(world or Resolver()).resolve, tls=more.pop("tls", None))
    effects = HostCalls(plugin, network=network, own=more.pop("own", ()), **more)
    try:
        yield effects
    finally:
        await effects.close()
        network.close()


@asynccontextmanager
async def serve(handler: Handler, **more: Any) -> AsyncIterator[int]:
    """A server on loopback, by its port. Its connections are closed with it."""
    tasks: set[asyncio.Task[Any]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(served, "127.0.0.1", 0, **more)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


class RequestLog:
    """What a server was sent: the heads of requests, and their bodies."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.gone = asyncio.Event()

    def answering(self, *parts: bytes, stay: bool = False) -> Handler:
        """Reads a request, writes these parts, and closes, or stays until the client has gone."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            length = [line.partition(":")[2] for line in head.lower().splitlines() if line.startswith("content-length:")]
            self.bodies.append(await reader.readexactly(int(length[0])) if length else b"")
            for part in parts:
                writer.write(part)
                await writer.drain()
            if not stay:
                writer.write_eof()
            await reader.read()

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await answer(reader, writer)
            finally:
                self.gone.set()

        return handler


def response(body: bytes = b"", *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def encode(url: str, method: str = "GET", **more: Any) -> str:
    return json.dumps({"method": method, "url": url, **more})


class Turns:
    """How often another task of the loop has its turn meanwhile."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        while not self.count:  # it has begun
            await asyncio.sleep(0)
        self.count = 0
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


async def do(effects: HostCalls, interface: str, function: str, *args: str | int, remaining: float = PATIENT) -> Any:
    return json.loads(await effects.call(interface, function, args, remaining))
