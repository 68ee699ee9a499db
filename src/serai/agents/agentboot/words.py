"""The seed's small words: agent types, formats, event types and kinds, and the one shape of an event (spec agents 1.3, 1.19)."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any

import msgspec

__all__ = [
    "AgentType", "AgentTypeClaude", "AgentTypeMock", "Event", "EventKind", "EventKindControl", "EventKindIgnore",
    "EventKindMessage", "EventKindTerminalError", "EventKindTerminalSuccess", "EventKindTurnEnd", "EventTypeAssistant",
    "EventTypeError", "EventTypeInit", "EventTypePermissionRequest", "EventTypePermissionResult", "EventTypeResult",
    "EventTypeStreamDelta", "EventTypeSystem", "EventTypeToolResult", "EventTypeToolUse", "EventTypeUser", "OutputFormat",
    "OutputFormatStreamJSON", "OutputFormatText", "PermissionMode", "PermissionModeAuto", "PermissionModeManual",
    "PermissionModeSkip", "now",
]  # fmt: skip

AgentType = str  # whoever registers an agent names it
AgentTypeClaude = "claude"
AgentTypeMock = "mock"


class OutputFormat(StrEnum):
    TEXT = "text"
    STREAM_JSON = "stream-json"


OutputFormatText = OutputFormat.TEXT
OutputFormatStreamJSON = OutputFormat.STREAM_JSON


class PermissionMode(StrEnum):
    """How this side treats requests, whatever the agent's own permission mode is. `serai.policy` decides by it."""

    AUTO = "auto"
    MANUAL = "manual"
    SKIP = "skip"


PermissionModeAuto = PermissionMode.AUTO
PermissionModeManual = PermissionMode.MANUAL
PermissionModeSkip = PermissionMode.SKIP

EventTypeInit = "init"
EventTypeSystem = "system"
EventTypeAssistant = "assistant"
EventTypeUser = "user"
EventTypeToolUse = "tool_use"
EventTypeToolResult = "tool_result"
EventTypePermissionRequest = "permission_request"
EventTypePermissionResult = "permission_result"
EventTypeResult = "result"
EventTypeError = "error"
EventTypeStreamDelta = "stream_delta"


class EventKind(IntEnum):
    """What a transport makes of an event."""

    IGNORE = 0
    MESSAGE = 1
    CONTROL = 2
    TERMINAL_SUCCESS = 3
    TERMINAL_ERROR = 4
    TURN_END = 5  # ours: a result after which the run goes on (spec agents 2.11)


EventKindIgnore = EventKind.IGNORE
EventKindMessage = EventKind.MESSAGE
EventKindControl = EventKind.CONTROL
EventKindTerminalSuccess = EventKind.TERMINAL_SUCCESS
EventKindTerminalError = EventKind.TERMINAL_ERROR
EventKindTurnEnd = EventKind.TURN_END


def now() -> datetime:
    return datetime.now(UTC)


class Event(msgspec.Struct):
    """One frame of an agent as data. `type` is `unknown` where the frame has none, `noise` where the line was no frame."""

    type: str
    data: dict[str, Any] = {}
    timestamp: datetime = msgspec.field(default_factory=now)
    raw: str = ""
