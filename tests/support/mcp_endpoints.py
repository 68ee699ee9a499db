"""Tools without an app, and a client that speaks to the endpoint's socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from serai.agents.driven.tool_endpoint import TOKEN_VARIABLE, ToolEndpoint
from serai.dialects.mcp import events, host_side
from serai.limits import Limits
from serai.model.tools import ImageBlock, ProgressCallback, TextBlock, ToolCall, ToolResult, ToolSpec
from serai.wire.stream import PendingCall

PROMPTLY = 20.0  # for what happens at once, on a busy machine
NUMBER = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}


class Box:
    """A tool box that remembers its calls. `hold` waits until it is let go, or cancelled."""

    def __init__(self, *more: ToolSpec) -> None:
        self.tools = [ToolSpec("add", "Adds two numbers.", NUMBER), ToolSpec("draw"), ToolSpec("hold"), ToolSpec("fail"), *more]
        self.calls: list[ToolCall] = []
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.cancelled: asyncio.Queue[str] = asyncio.Queue()
        self.go = asyncio.Event()

    def list(self) -> Sequence[ToolSpec]:
        return self.tools

    async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
        self.calls.append(call)
        match call.name:
            case "add":
                return ToolResult((TextBlock(str(call.arguments["a"] + call.arguments["b"])),), details={"secret": "for people"})
            case "draw":
                return ToolResult((TextBlock("a dot"), ImageBlock(b"\x89PNG", "image/png")))
            case "fail":
                raise RuntimeError("a defect")
            case "long":
                return ToolResult.of("x" * call.arguments["size"])
            case "hold":
                return await self._hold(call)
        return ToolResult.of(f"{call.name} ran")

    async def _hold(self, call: ToolCall) -> ToolResult:
        self.begun.put_nowait(call.id)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.put_nowait(call.id)
            raise
        return ToolResult.of("let go")


@asynccontextmanager
async def open_endpoint(box: Box, *, limits: Limits | None = None, **more: Any) -> AsyncIterator[ToolEndpoint]:
    async with ToolEndpoint(box, agent="claude", limits=limits, **more) as endpoint:
        yield endpoint
    assert not os.path.exists(endpoint.folder)


class Talker:
    """A client at the socket: what it asks is awaited, what it is told is kept."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.client = host_side.HostSide("test")
        self.told: list[events.HostEvent] = []

    @classmethod
    async def come(cls, endpoint: ToolEndpoint, token: str | None = None) -> Self:
        reader, writer = await asyncio.open_unix_connection(endpoint.path, limit=1 << 26)
        talker = cls(reader, writer)
        talker.put((endpoint.launch.env[TOKEN_VARIABLE] if token is None else token).encode())
        return talker

    @classmethod
    async def greeted(cls, endpoint: ToolEndpoint) -> Self:
        """One that has said hello."""
        talker = await cls.come(endpoint)
        heard = await talker.ask(*talker.client.initialize())
        assert isinstance(heard, events.Agreed)
        talker.put(talker.client.notify_initialized())
        return talker

    def put(self, message: bytes) -> None:
        self.writer.write(message + b"\n")

    async def ask(self, call: PendingCall[Any], message: bytes) -> events.HostEvent:
        self.put(message)
        return await self.answer(call)

    async def answer(self, call: PendingCall[Any]) -> events.HostEvent:
        """What ends this call; whatever comes before it is kept."""
        while True:
            heard = await self.hear()
            if getattr(heard, "call", None) is call:
                return heard
            self.told.append(heard)

    async def hear(self) -> events.HostEvent:
        line = await asyncio.wait_for(self.reader.readline(), PROMPTLY)
        assert line.endswith(b"\n"), f"the endpoint hung up: {line!r}"
        return self.client.receive(line)

    async def text(self, name: str, arguments: dict[str, Any] | None = None, **meta: Any) -> str:
        heard = await self.ask(*self.client.call_tool(name, arguments, meta=meta or None))
        assert isinstance(heard, events.Done), heard
        return heard.result.text

    async def ended(self) -> bytes:
        """What still came before the endpoint hung up."""
        with suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(), PROMPTLY)
        return b""

    def close(self) -> None:
        self.writer.close()
