"""What the two sides of an MCP connection return for a message (sans-IO)."""

from __future__ import annotations

from typing import Any

import msgspec

from serai.dialects.mcp.messages import (
    TOOL_USE,
    InitializeResult,
)
from serai.model.tools import ToolResult, ToolSpec
from serai.wire import jsonrpc
from serai.wire.stream import PendingCall


class Reply(msgspec.Struct, frozen=True, gc=False):
    """To be sent at once."""

    message: bytes


class Called(msgspec.Struct, frozen=True):
    """The model wants a tool run. `name` is the tool's own; `id` is the JSON text of the request's id, for `answer` and `fail`."""

    id: bytes
    name: str
    arguments: dict[str, Any]
    meta: Any = None

    @property
    def tool_use(self) -> str:
        """The model's id of the call, if the client tells it."""
        id = self.meta.get(TOOL_USE) if isinstance(self.meta, dict) else None
        return id if isinstance(id, str) else ""


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """Nobody waits for this call any more. It is not answered."""

    id: bytes


class Nothing(msgspec.Struct, frozen=True, gc=False):
    """There is nothing to do; `why` says so of what should not have come."""

    why: str = ""


PeerEvent = Reply | Called | Cancelled | Nothing


class Agreed(msgspec.Struct, frozen=True):
    """The answer to `initialize`. `why` says what is wrong with the version that the server wants; then the client goes."""

    call: PendingCall[jsonrpc.Id]
    server: InitializeResult
    why: str = ""


class Listed(msgspec.Struct, frozen=True):
    """A page of tools; `cursor` asks for the next, and is empty when this was the last."""

    call: PendingCall[jsonrpc.Id]
    tools: tuple[ToolSpec, ...]
    cursor: str


class Done(msgspec.Struct, frozen=True):
    """What came of a call."""

    call: PendingCall[jsonrpc.Id]
    result: ToolResult


class Pong(msgspec.Struct, frozen=True):
    call: PendingCall[jsonrpc.Id]


class Failed(msgspec.Struct, frozen=True):
    """An error of the protocol, or (code 0) an answer that cannot be read."""

    call: PendingCall[jsonrpc.Id]
    code: int
    text: str


class Changed(msgspec.Struct, frozen=True, gc=False):
    """The server's tools are others now."""


HostEvent = Agreed | Listed | Done | Pong | Failed | Changed | Reply | Nothing

Ended = list[PendingCall[jsonrpc.Id]]
