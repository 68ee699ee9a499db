"""The rows of a transcript as typed events, with the JSON names they have on disk (spec agents 4.2, 4.3).

A row of a type that is not here, or of a shape that its type does not have, is an event without `data`; `row` is always all of it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw

from serai.agents.history.metadata import moment
from serai.agents.history.rows import row_of, string
from serai.store import entries
from serai.wire.codec import BAD_INPUT, decode

__all__ = [
    "AssistantMessage",
    "AssistantMessageEvent",
    "ContentBlock",
    "EventData",
    "FileHistorySnapshotEvent",
    "ResultEvent",
    "SessionEvent",
    "SystemEvent",
    "SystemInitEvent",
    "ToolResultEvent",
    "ToolUseEvent",
    "UsageInfo",
    "UserMessage",
    "UserMessageEvent",
    "event_of",
]


class ContentBlock(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a message: text, thinking, a tool's use or its result, or what is not known here."""

    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    thinking: str = ""
    tool_use_id: str = ""
    content: Any = None
    is_error: bool | None = None


class UsageInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


class UserMessage(msgspec.Struct, frozen=True):
    role: str = ""
    content: str | list[ContentBlock] = ""


class AssistantMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    model: str = ""
    id: str = ""
    type: str = ""
    role: str = ""
    content: str | list[ContentBlock] = ""
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: UsageInfo | None = None


class UserMessageEvent(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a person said, or what a tool answered."""

    message: UserMessage = UserMessage()
    parent_uuid: str | None = None
    is_sidechain: bool = False
    is_meta: bool = False
    is_compact_summary: bool = False
    user_type: str = ""
    cwd: str = ""
    session_id: str = ""
    prompt_id: str = ""
    version: str = ""
    git_branch: str = ""
    permission_mode: str = ""
    type: str = ""
    uuid: str = ""
    timestamp: str = ""
    tool_use_result: Any = None


class AssistantMessageEvent(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A part of what the model said: one row for each block, which have the message's id in common."""

    message: AssistantMessage = AssistantMessage()
    parent_uuid: str | None = None
    is_sidechain: bool = False
    uuid: str = ""
    timestamp: str = ""
    request_id: str | None = None
    is_api_error_message: bool = False
    api_error_status: int | None = None


class SystemInitEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    session_id: str = ""
    timestamp: str = ""


class SystemEvent(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    subtype: str = ""
    duration_ms: float = 0
    uuid: str = ""
    is_meta: bool = False
    content: Any = None


class ToolUseEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str = ""
    input: Any = None
    tool_use_id: str = ""


class ToolResultEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    tool_use_id: str = ""
    content: Any = None
    is_error: bool = False
    output: Any = None


class ResultEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    subtype: str = ""
    result: str = ""
    total_cost_usd: float = 0
    duration_ms: float = 0
    duration_api_ms: float = 0
    num_turns: int = 0
    usage: UsageInfo = UsageInfo()
    error: str = ""


class FileHistorySnapshotEvent(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    message_id: str = ""
    snapshot: Any = None
    is_snapshot_update: bool = False


EventData = (
    SystemInitEvent
    | SystemEvent
    | UserMessageEvent
    | AssistantMessageEvent
    | ToolUseEvent
    | ToolResultEvent
    | ResultEvent
    | FileHistorySnapshotEvent
)

_DATA: dict[str, msgspec.json.Decoder[EventData]] = {
    name: msgspec.json.Decoder(kind)
    for name, kind in {
        "system/init": SystemInitEvent,
        "system": SystemEvent,
        "user": UserMessageEvent,
        "assistant": AssistantMessageEvent,
        "tool_use": ToolUseEvent,
        "tool_result": ToolResultEvent,
        "result": ResultEvent,
        "file-history-snapshot": FileHistorySnapshotEvent,
    }.items()
}


class SessionEvent(msgspec.Struct, frozen=True):
    """One row of a transcript."""

    type: str
    subtype: str = ""
    timestamp: datetime | None = None
    data: EventData | None = None
    row: Raw = Raw()


def event_of(line: bytes) -> SessionEvent | None:
    """The event in a line; None when it is no JSON object."""
    row = row_of(line)
    if row is None:
        return None
    kind, subtype = string(row.type), string(row.subtype)
    decoder = _DATA.get(f"{kind}/{subtype}") or _DATA.get(kind)
    data = None
    if decoder is not None:
        try:
            data = decode(decoder, line)
        except BAD_INPUT:  # another shape than this type had so far
            pass
    return SessionEvent(kind, subtype, moment(entries.parse_time(string(row.timestamp))), data, Raw(line))
