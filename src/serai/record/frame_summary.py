"""What a frame is, at a glance: its type, the id it carries, and whether it asks or answers.

One reading for all dialects, from what their frames have in common: a `method` or a `type`, an `id` or a `request_id`. It is for
people who look at a timeline; the dialects themselves are exact.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
from msgspec import Raw

_NOTHING = Raw()
Role = Literal["request", "answer", "either", ""]

# Where a frame's type alone tells whether it asks or answers: its role, and the kind of exchange that it is part of. In such a
# dialect ids are unique per kind only, so a pair has the same kind as well as the same id.
_PARTS: dict[str, dict[str, tuple[Role, str]]] = {
    "zot": {
        "tool_call": ("request", "tool"),
        "tool_result": ("answer", "tool"),
        "command_invoked": ("request", "command"),
        "command_response": ("answer", "command"),
        "event_intercept": ("request", "intercept"),
        "event_intercept_response": ("answer", "intercept"),
    },
    "yoi": {
        "call": ("request", "call"),
        "ok": ("answer", "call"),
        "big": ("answer", "call"),
        "trap": ("answer", "call"),
        "host": ("request", "host"),
        "reply": ("answer", "host"),
    },
}


class FrameSummary(NamedTuple):
    """`role` says what the frame's own shape tells; "either" when only the other side's frames can."""

    type: str
    id: bytes = b""
    role: Role = ""


class _Nested(msgspec.Struct, gc=False):
    subtype: Raw = _NOTHING
    request_id: Raw = _NOTHING
    type: Raw = _NOTHING


class _Frame(msgspec.Struct, gc=False):
    type: Raw = _NOTHING
    method: Raw = _NOTHING
    id: Raw = _NOTHING
    request_id: Raw = _NOTHING
    subtype: Raw = _NOTHING
    event: Raw = _NOTHING  # zot: the event's name; Claude Code: the streamed event
    request: Raw = _NOTHING  # Claude Code: a control request's body
    response: Raw = _NOTHING  # and that of its answer
    result: Raw = _NOTHING
    error: Raw = _NOTHING
    jsonrpc: Raw = _NOTHING


_frame: msgspec.json.Decoder[_Frame] = msgspec.json.Decoder(_Frame)
_nested: msgspec.json.Decoder[_Nested] = msgspec.json.Decoder(_Nested)
_string: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def summarize_frame(frame: bytes) -> FrameSummary:
    try:
        seen = _frame.decode(frame)
    except msgspec.ValidationError:
        return FrameSummary("json")  # but no object
    except _BAD:
        return FrameSummary("noise")
    id = _id(seen.id) or _id(seen.request_id)
    if method := _text(seen.method):
        return FrameSummary(method, id, "request" if id else "")
    kind = _text(seen.type)
    if not kind:
        if bytes(seen.error) not in (b"", b"null"):
            return FrameSummary("error", id, "answer" if id else "")
        if bytes(seen.result) or seen.jsonrpc is not _NOTHING:  # JSON-RPC without either is an answer of null
            return FrameSummary("result", id, "answer" if id else "")
        return FrameSummary("object", id)
    inner = _inner(seen)
    detail = _text(seen.subtype) or _text(seen.event)
    if inner is not None:
        detail = detail or _text(inner.subtype) or _text(inner.type)
        id = id or _id(inner.request_id)
    return FrameSummary(f"{kind}:{detail}" if detail else kind, id, "either" if id else "")


def frame_role(seen: FrameSummary, dialect: str) -> tuple[Role, str]:
    """The role of a frame in its dialect, and the kind of exchange if its dialect tells several apart."""
    parts = _PARTS.get(dialect)
    if parts is None:
        return seen.role, ""
    return parts.get(seen.type.partition(":")[0], ("", "")) if seen.id else ("", "")


def _inner(seen: _Frame) -> _Nested | None:
    for raw in (seen.request, seen.response, seen.event):
        if raw is not _NOTHING and bytes(raw)[:1] == b"{":
            try:
                return _nested.decode(raw)
            except _BAD:
                return None
    return None


def _text(raw: Raw) -> str:
    if raw is _NOTHING or bytes(raw)[:1] != b'"':
        return ""
    try:
        return _string.decode(raw)
    except _BAD:
        return ""


def _id(raw: Raw) -> bytes:
    id = bytes(raw)
    return b"" if id == b"null" else id
