"""Websocket servers on loopback, and plugins and host calls that connect to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.server import ServerProtocol

from serai.dialects.yoi.status import DiagnosticKind, InstanceStatus
from serai.host.adapters.yoi.effects.host_calls import HostCalls
from tests.support.yoi.host_calls import Handler, do
from tests.support.yoi.hosted_plugins import INGRESS, Plugin


class WebsocketServer:
    """A websocket server whose connections the test has in hand."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"ws://127.0.0.1:{port}/"
        self.came: asyncio.Queue[ServerConnection] = asyncio.Queue()
        self.target = {"scheme": "ws", "host": "127.0.0.1", "port": port}

    async def next(self) -> ServerConnection:
        async with asyncio.timeout(20):
            return await self.came.get()


@asynccontextmanager
async def open_server() -> AsyncIterator[WebsocketServer]:
    found: list[WebsocketServer] = []

    async def handle(connection: ServerConnection) -> None:
        found[0].came.put_nowait(connection)
        await connection.wait_closed()

    async with serve(handle, "127.0.0.1", 0) as server:
        found.append(WebsocketServer(next(iter(server.sockets)).getsockname()[1]))
        yield found[0]


def build_listening(place: Path, peer: WebsocketServer, component: bytes, *sources: str, **said: Any) -> Plugin:
    wanted = {**INGRESS, "ingresses": {"in": {"sources": list(sources) or [f"websocket:{peer.url}"]}}, **said}
    return Plugin(place, component, **wanted, apis=("websocket",), websocket=[peer.target])


def list_texts(status: InstanceStatus, kind: DiagnosticKind) -> list[str]:
    return [one.message for one in status.diagnostics if one.kind is kind]


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


@asynccontextmanager
async def serve_websocket(handler: Callable[[ServerConnection], Awaitable[None]] = echo, **more: Any) -> AsyncIterator[int]:
    async with serve(handler, "127.0.0.1", 0, compression=more.pop("compression", None), **more) as server:
        yield next(iter(server.sockets)).getsockname()[1]


def accept_raw(handler: Handler) -> Handler:
    """A server that shakes hands and then does what it wants."""

    async def serving_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = ServerProtocol()
        wire.receive_data(await reader.readuntil(b"\r\n\r\n"))
        [request] = wire.events_received()
        assert isinstance(request, Request)
        wire.send_response(wire.accept(request))
        writer.write(b"".join(wire.data_to_send()))
        await handler(reader, writer)

    return serving_one


def send_frames(*frames: Frame) -> Handler:
    """Sends these and waits for the client to go."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(frame.serialize(mask=False) for frame in frames))
        await reader.read()

    return accept_raw(handler)


async def open_websocket(effects: HostCalls, port: int, path: str = "/", **more: Any) -> int:
    answer = await do(effects, "websocket", "open", json.dumps({"url": f"ws://127.0.0.1:{port}{path}", **more}))
    handle = answer["handle"]
    assert isinstance(handle, int)
    return handle
