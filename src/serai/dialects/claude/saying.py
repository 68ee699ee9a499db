"""What a host may say to Claude Code (spec agents 2.4, 2.6, 2.7), and the one way to make a line of it.

A line that is no JSON, a wrong role and a `control_request` without a `request` end the program at once (spec agents 2.6). So
every line is read back strictly before anybody gets it. Members that are not here go along unread.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from serai.wire.codec import BAD_INPUT, Codec, encode, repair

__all__ = ["FROM_HOST", "Asks", "Cancels", "FromHost", "Lives", "Prompt", "Replies", "Reply", "Said", "line_of"]


class Said(msgspec.Struct, frozen=True):
    role: Literal["user"]
    content: str | list[dict[str, Any]]


class Prompt(msgspec.Struct, frozen=True, tag_field="type", tag="user"):
    """A user's message."""

    message: Said
    session_id: str = ""
    uuid: str = ""
    parent_tool_use_id: str | None = None
    client_composed: bool = False


class Asks(msgspec.Struct, frozen=True, tag_field="type", tag="control_request"):
    request_id: str
    request: dict[str, Any]


class Reply(msgspec.Struct, frozen=True):
    subtype: Literal["success", "error"]
    request_id: str | int
    response: dict[str, Any] = {}
    error: str = ""


class Replies(msgspec.Struct, frozen=True, tag_field="type", tag="control_response"):
    response: Reply


class Cancels(msgspec.Struct, frozen=True, tag_field="type", tag="control_cancel_request"):
    request_id: str


class Lives(msgspec.Struct, frozen=True, tag_field="type", tag="keep_alive"):
    pass


FromHost = Prompt | Asks | Replies | Cancels | Lives
FROM_HOST: Codec[FromHost] = Codec(FromHost)

# Line ends to some readers of JavaScript, though not to JSON.
_ENDS = (("\u2028".encode(), rb"\u2028"), ("\u2029".encode(), rb"\u2029"))


def line_of(frame: dict[str, Any]) -> bytes:
    """One line, or ValueError (TypeError for what no JSON has): nothing is sent that would end the program."""
    text = encode(frame)
    text = repair(text) or text
    try:
        if b"\n" in text[:-1] or b"\r" in text:  # white space between the parts of an opaque member
            text = encode(msgspec.json.decode(text))
        said = FROM_HOST.decoder.decode(text)
    except BAD_INPUT as error:
        raise ValueError(f"claude would not take this {frame.get('type')} line: {error}") from None
    if isinstance(said, Prompt) and not _is_content(said.message.content):
        raise ValueError("claude would not take this prompt: it is empty, or has a block without a type")
    if isinstance(said, Asks) and not (isinstance(subtype := said.request.get("subtype"), str) and subtype):
        raise ValueError("claude would not take this control_request: its request has no subtype")
    for end, escaped in _ENDS:
        if end in text:
            text = text.replace(end, escaped)
    return text


def _is_content(content: str | list[dict[str, Any]]) -> bool:
    return bool(content) and (isinstance(content, str) or all(isinstance(one.get("type"), str) for one in content))
