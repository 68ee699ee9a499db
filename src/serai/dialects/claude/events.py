"""What Serai's side of the wire to Claude Code says happened: the events of `host_side.HostSide`.

Each has the line it came in: JSON without its line end, to be kept as `msgspec.Raw(line)`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from serai.dialects.claude import messages
from serai.dialects.claude.messages import Assistant, FromCli, Result, StreamEvent, System, ToolProgress, User
from serai.wire.codec import Noise, Unknown
from serai.wire.stream import PendingCall


class Told(msgspec.Struct, frozen=True, gc=False):
    """Something happened in the session."""

    frame: System | Assistant | User | StreamEvent | Result | ToolProgress
    line: bytes


class Odd(msgspec.Struct, frozen=True, gc=False):
    """A frame that has no type here, also a control frame whose id cannot be read, or a line that is no frame (design rule 4)."""

    value: Unknown | Noise
    line: bytes


class CanUseTool(msgspec.Struct, frozen=True, gc=False):
    """May this tool run? Answer it with `allow` or `deny`."""

    id: str
    request: messages.CanUseTool
    line: bytes


class HookCallback(msgspec.Struct, frozen=True, gc=False):
    """A hook that we asked for in `initialize` fires. Answer it with `reply` and the hook's output."""

    id: str
    callback_id: str
    input: dict[str, Any]
    tool_use_id: str
    line: bytes


class McpMessage(msgspec.Struct, frozen=True, gc=False):
    """JSON-RPC for a server that we host. Answer it with `mcp`."""

    id: str
    server: str
    message: Raw
    line: bytes


class Elicitation(msgspec.Struct, frozen=True, gc=False):
    """An MCP server asks a person something. Answer it with `reply`: `{"action": "accept" | "decline" | "cancel", "content"?}`."""

    id: str
    request: dict[str, Any]
    line: bytes


class Dialog(msgspec.Struct, frozen=True, gc=False):
    """A dialog of a kind that was declared in `initialize`. Answer it with `reply`."""

    id: str
    kind: str
    payload: Raw
    tool_use_id: str
    line: bytes


class Unsupported(msgspec.Struct, frozen=True, gc=False):
    """A request that nobody here can decide. `reply` is to be sent at once; None: it must stay unanswered (spec agents 2.7)."""

    id: str
    subtype: str
    reply: bytes | None
    line: bytes


class Withdrawn(msgspec.Struct, frozen=True, gc=False):
    """A request needs no answer any more."""

    id: str
    line: bytes


class Answered(msgspec.Struct, frozen=True, gc=False):
    """A request of ours succeeded. `response` is an object, `{}` when there was nothing to say."""

    call: PendingCall[str]
    response: Raw
    line: bytes = b""


class Failed(msgspec.Struct, frozen=True, gc=False):
    """A request of ours was refused, or (`code` is `bad_answer`) its answer cannot be read."""

    call: PendingCall[str]
    error: str
    code: str
    line: bytes = b""


class Stray(msgspec.Struct, frozen=True, gc=False):
    """A sound frame that changes nothing: a keep-alive, an answer that nobody waits for, a request told again."""

    frame: FromCli
    line: bytes
    why: str


Event = (
    Told | Odd | CanUseTool | HookCallback | McpMessage | Elicitation | Dialog | Unsupported | Withdrawn | Answered | Failed | Stray
)
