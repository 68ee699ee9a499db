"""The rows of a transcript, the texts in them, and the rows as typed events with their JSON names on disk (spec agents 4.2, 4.3).

A row is written by a program that changes every week, and may have been cut, so nothing here trusts a type: every use of a field
checks it first. Most of a real transcript is attachments and requests, which are skipped unread. A row of an unknown type, or of a
shape that its type does not have, is an event without `data`; `row` is always all of it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from serai.store import entries
from serai.wire.codec import BAD_INPUT, decode, scan_head

# What has another name on disk.
_NAMES = {
    "git_branch": "gitBranch",
    "prompt_id": "promptId",
    "is_sidechain": "isSidechain",
    "is_meta": "isMeta",
    "is_compact_summary": "isCompactSummary",
    "is_api_error": "isApiErrorMessage",
    "custom_title": "customTitle",
    "ai_title": "aiTitle",
    "last_prompt": "lastPrompt",
    "total_usd": "totalCostUSD",
    "total_ms": "totalDuration",
    "model_usage": "modelUsage",
}


class TranscriptRow(msgspec.Struct, gc=False, rename=_NAMES):
    """What a listing needs of any row."""

    type: Any = ""
    subtype: Any = ""
    timestamp: Any = ""
    cwd: Any = ""
    version: Any = ""
    git_branch: Any = ""
    prompt_id: Any = ""
    is_sidechain: Any = False
    is_meta: Any = False
    is_compact_summary: Any = False
    is_api_error: Any = False
    message: Raw = Raw()
    custom_title: Any = ""
    ai_title: Any = ""
    last_prompt: Any = ""
    summary: Any = ""
    total_usd: Any = 0
    total_ms: Any = 0
    model_usage: Any = None
    # Of a `result`, which only fixtures and other programs write (spec agents 4.2).
    is_error: Any = False
    result: Any = ""
    error: Any = ""
    errors: Any = None
    total_cost_usd: Any = 0
    duration_ms: Any = 0
    num_turns: Any = 0
    usage: Any = None


class RowMessage(msgspec.Struct, gc=False):
    """What a person or the model said."""

    id: Any = ""
    model: Any = ""
    content: Any = ""
    usage: Any = None


_row: msgspec.json.Decoder[TranscriptRow] = msgspec.json.Decoder(TranscriptRow)
_message: msgspec.json.Decoder[RowMessage] = msgspec.json.Decoder(RowMessage)
_string: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)


def parse_row(line: bytes) -> TranscriptRow | None:
    """The row in a line; None when it is no JSON object, such as one that is still being written (spec agents 7.36)."""
    try:
        return decode(_row, line)
    except BAD_INPUT:
        return None


def parse_message(row: TranscriptRow) -> RowMessage:
    try:
        return decode(_message, row.message)
    except BAD_INPUT:  # there is none, or it is something else
        return RowMessage()


def to_string(value: object) -> str:
    return value if isinstance(value, str) else ""


def to_count(value: object) -> int:
    """A count, however it was written; 0 for what is none."""
    return int(to_amount(value))


def to_amount(value: object) -> float:
    """A number that is not below zero, and one that a float holds; else 0."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53
    return float(value) if fits else 0.0  # type: ignore[arg-type]


# -- texts ------------------------------------------------------------------------------------------------------------------------

# What programs put into a person's mouth (spec agents 4.2, and what 2.1.325 was seen to write).
_WRAPPERS = (
    "<local-command-", "<command-name>", "<command-message>", "<ide_opened_file>", "<ide_selection>", "<session-start-hook>",
    "<task-notification>", "<system-reminder>", "[Request interrupted ",
)  # fmt: skip


def extract_text(content: object) -> str:
    """All text of a message's content; a tool's result only when there is nothing else. Thinking is none."""
    results = (extract_said_text(block.get("content")) for block in _list_blocks(content) if block.get("type") == "tool_result")
    return extract_said_text(content) or "".join(results)


def extract_said_text(content: object) -> str:
    """What was said: the text blocks one after the other, with nothing between them."""
    return content if isinstance(content, str) else "".join(_list_texts(content))


def extract_prompt(content: object) -> str:
    """What a person said, without the blocks that an editor or the program itself added; empty when that is all there is."""
    if isinstance(content, str):
        return "" if _is_wrapper(content) else content
    return "".join(text for text in _list_texts(content) if not _is_wrapper(text))


def _is_wrapper(text: str) -> bool:
    return text.lstrip().startswith(_WRAPPERS)


def _list_texts(content: object) -> list[str]:
    return [to_string(block.get("text")) for block in _list_blocks(content) if block.get("type") == "text"]


def _list_blocks(content: object) -> list[dict[str, Any]]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


# -- a line of which only the beginning was read ----------------------------------------------------------------------------------

_TEXT = re.compile(rb'"(?:content|text)"\s*:\s*"((?:[^"\\]|\\.)*)', re.DOTALL)
_ESCAPE = 6  # the longest of JSON


def recover_row(head: bytes) -> tuple[TranscriptRow, str]:
    """What the head of a long line shows: its plain fields, and the text when it is a person's.

    Somebody who pastes a log begins a session with such a line. It is listed all the same, by the text's beginning.
    """
    fields = {
        key.decode(errors="replace").strip('"'): _decode(value) for key, value in scan_head(head).items() if value.startswith(b'"')
    }
    kind, at, cwd, version = (fields.get(key, "") for key in ("type", "timestamp", "cwd", "version"))
    row = TranscriptRow(type=kind, timestamp=at, cwd=cwd, version=version)
    asked = row.type == "queue-operation" or (row.type == "user" and b'"isMeta":true' not in head)
    found = _TEXT.search(head) if asked and b'"tool_result"' not in head else None
    return row, extract_prompt(_decode_cut(found[1])) if found else ""


def _decode_cut(text: bytes) -> str:
    """A JSON string that was cut, perhaps in the middle of an escape."""
    for drop in range(_ESCAPE + 1):
        if decoded := _decode(b'"' + text[: len(text) - drop] + b'"'):
            return decoded
    return ""


def _decode(text: bytes) -> str:
    try:
        return decode(_string, text)
    except BAD_INPUT:
        return ""


_SECOND = 1_000_000_000


def to_datetime(ns: int) -> datetime | None:
    """A time as Python has it; None when there is none, or none that it can hold."""
    try:
        return datetime.fromtimestamp(ns / _SECOND, UTC) if ns else None
    except (OverflowError, ValueError, OSError):
        return None


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


def parse_event(line: bytes) -> SessionEvent | None:
    """The event in a line; None when it is no JSON object."""
    row = parse_row(line)
    if row is None:
        return None
    kind, subtype = to_string(row.type), to_string(row.subtype)
    decoder = _DATA.get(f"{kind}/{subtype}") or _DATA.get(kind)
    data = None
    if decoder is not None:
        try:
            data = decode(decoder, line)
        except BAD_INPUT:  # another shape than this type had so far
            pass
    return SessionEvent(kind, subtype, to_datetime(entries.parse_time(to_string(row.timestamp))), data, Raw(line))
