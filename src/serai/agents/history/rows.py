"""The rows of a transcript and the texts in them (spec agents 4.2).

A row is written by a program that changes every week, and may have been cut, so nothing here trusts a type: fields are whatever
they are, and whoever uses one looks first. Most of a real transcript is attachments and requests, which are skipped unread.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw

from serai.wire.codec import BAD_INPUT, decode, scan_head

__all__ = ["Message", "Row", "amount", "message_of", "prompt_text", "row_of", "said_text", "salvage", "string", "text_of", "whole"]


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


class Row(msgspec.Struct, gc=False, rename=_NAMES):
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


class Message(msgspec.Struct, gc=False):
    """What a person or the model said."""

    id: Any = ""
    model: Any = ""
    content: Any = ""
    usage: Any = None


_row: msgspec.json.Decoder[Row] = msgspec.json.Decoder(Row)
_message: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_string: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)


def row_of(line: bytes) -> Row | None:
    """The row in a line; None when it is no JSON object, such as one that is still being written (spec agents 7.36)."""
    try:
        return decode(_row, line)
    except BAD_INPUT:
        return None


def message_of(row: Row) -> Message:
    try:
        return decode(_message, row.message)
    except BAD_INPUT:  # there is none, or it is something else
        return Message()


def string(value: object) -> str:
    return value if isinstance(value, str) else ""


def whole(value: object) -> int:
    """A count, however it was written; 0 for what is none."""
    return int(amount(value))


def amount(value: object) -> float:
    """A number that is not below zero, and one that a float holds; else 0."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53
    return float(value) if fits else 0.0  # type: ignore[arg-type]


# -- texts ------------------------------------------------------------------------------------------------------------------------

# What programs put into a person's mouth (spec agents 4.2, and what 2.1.325 was seen to write).
_WRAPPERS = (
    "<local-command-", "<command-name>", "<command-message>", "<ide_opened_file>", "<ide_selection>", "<session-start-hook>",
    "<task-notification>", "<system-reminder>", "[Request interrupted ",
)  # fmt: skip


def text_of(content: object) -> str:
    """All text of a message's content; a tool's result only when there is nothing else. Thinking is none."""
    results = (said_text(block.get("content")) for block in _blocks(content) if block.get("type") == "tool_result")
    return said_text(content) or "".join(results)


def said_text(content: object) -> str:
    """What was said: the text blocks one after the other, with nothing between them."""
    return content if isinstance(content, str) else "".join(_texts(content))


def prompt_text(content: object) -> str:
    """What a person said, without the blocks that an editor or the program itself added; empty when that is all there is."""
    if isinstance(content, str):
        return "" if _is_wrapper(content) else content
    return "".join(text for text in _texts(content) if not _is_wrapper(text))


def _is_wrapper(text: str) -> bool:
    return text.lstrip().startswith(_WRAPPERS)


def _texts(content: object) -> list[str]:
    return [string(block.get("text")) for block in _blocks(content) if block.get("type") == "text"]


def _blocks(content: object) -> list[dict[str, Any]]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


# -- a line of which only the beginning was read ----------------------------------------------------------------------------------

_TEXT = re.compile(rb'"(?:content|text)"\s*:\s*"((?:[^"\\]|\\.)*)', re.DOTALL)
_ESCAPE = 6  # the longest of JSON


def salvage(head: bytes) -> tuple[Row, str]:
    """What the head of a long line shows: its plain fields, and the text when it is a person's.

    Somebody who pastes a log begins a session with such a line. It is listed all the same, by the text's beginning.
    """
    fields = {
        key.decode(errors="replace").strip('"'): _decoded(value) for key, value in scan_head(head).items() if value.startswith(b'"')
    }
    kind, at, cwd, version = (fields.get(key, "") for key in ("type", "timestamp", "cwd", "version"))
    row = Row(type=kind, timestamp=at, cwd=cwd, version=version)
    asked = row.type == "queue-operation" or (row.type == "user" and b'"isMeta":true' not in head)
    found = _TEXT.search(head) if asked and b'"tool_result"' not in head else None
    return row, prompt_text(_unfinished(found[1])) if found else ""


def _unfinished(text: bytes) -> str:
    """A JSON string that was cut, perhaps in the middle of an escape."""
    for drop in range(_ESCAPE + 1):
        if decoded := _decoded(b'"' + text[: len(text) - drop] + b'"'):
            return decoded
    return ""


def _decoded(text: bytes) -> str:
    try:
        return decode(_string, text)
    except BAD_INPUT:
        return ""
