"""Lines into frames (spec agents 1.6, 7.2 - 7.4).

Usually that is one strict decode. A line that it refuses although its type is known gets a second, lenient look: what fits is
taken, what does not reads as absent, and a block, a stream event or a request of an unknown type keeps its JSON. So a new word of
the program costs no frame: a turn still ends and a request is still answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw

from serai.dialects.claude import blocks, messages
from serai.dialects.claude.messages import ControlCancel, ControlRequest, ControlResponse, FromCli, OtherRequest, Response
from serai.wire.codec import BAD_INPUT, Noise, Unknown, repair, scan_head

_members: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])
_items: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])
_id: msgspec.json.Decoder[str | int] = msgspec.json.Decoder(str | int)
_text: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)
_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_NULL = Raw(b"null")
_KINDS: dict[str, Any] = {str(kind.__struct_config__.tag): kind for kind in get_args(FromCli)}
_UNKNOWN = (blocks.UnknownBlock, blocks.UnknownDelta, blocks.UnknownPart)
# A message that is only a string (the seed's shape), by where its text belongs.
_SPOKEN = (blocks.Message, blocks.UserMessage)


class UnreadableFrame(ValueError):
    """Nothing can be made of it."""


class FrameReader:
    """Reads the runs of one connection, and counts the lines that were no frames (`noise`) or of no known type (`unknown`)."""

    __slots__ = ("_lines", "noise", "unknown")

    def __init__(self) -> None:
        self._lines = messages.FROM_CLI.create_reader()
        self.noise = self.unknown = 0

    @property
    def repaired(self) -> int:
        return self._lines.repaired

    def read(self, run: bytes) -> Iterator[tuple[FromCli | Unknown | Noise, bytes]]:
        """The frames of a run in order, each with its line."""
        lines = self._lines
        before = lines.noise + lines.unknown
        pairs = lines.read_pairs(run)
        if lines.noise + lines.unknown == before:
            return pairs
        return iter([self._read_again(one, line) if isinstance(one, Unknown | Noise) else (one, line) for one, line in pairs])

    def repair_pair(self, frame: FromCli | Unknown | Noise, line: bytes) -> tuple[FromCli | Unknown | Noise, bytes]:
        """The same, with a line that anybody can read."""
        return self._lines.repair_pair(frame, line)

    def _read_again(self, odd: Unknown | Noise, line: bytes) -> tuple[FromCli | Unknown | Noise, bytes]:
        if isinstance(odd, Noise):
            self.noise += 1
            return odd, line
        kind = _KINDS.get(odd.kind or "")
        if kind is not None:
            line = repair(line) or line
            try:
                return read_leniently(kind, line), line
            except UnreadableFrame as error:
                odd = Unknown(odd.raw, odd.kind, str(error))
        self.unknown += odd.kind not in messages.RARE
        return odd, odd.raw


def read_leniently(kind: Any, line: bytes) -> FromCli:
    """A frame of that type out of any JSON object; `UnreadableFrame` only for a control frame whose id cannot be read."""
    members = _members.decode(line)
    frame: FromCli
    if kind is ControlRequest:
        id = _read_id(members)
        frame = ControlRequest(str(id), _read_request(members.get("request", _NULL)), id if isinstance(id, int) else None)
    elif kind is ControlCancel:
        frame = ControlCancel(str(_read_id(members)))
    elif kind is ControlResponse:
        frame = ControlResponse(_read_response(members))
    else:
        frame = _build_struct(kind, members)
    return frame


# -- the control protocol ---------------------------------------------------------------------------------------------------------


def _read_id(members: dict[str, Raw]) -> str | int:
    """A string, or a number, such as 0: it is as good an id, and goes back as it came (spec agents 7.18)."""
    try:
        return _id.decode(members["request_id"])
    except (KeyError, *BAD_INPUT):
        raise UnreadableFrame("it has no request_id that could be answered") from None


def _read_request(raw: Raw) -> messages.CliRequest:
    """A request without what it cannot do without is told apart, so that nobody decides about what cannot be seen."""
    try:
        members = _members.decode(raw)
    except BAD_INPUT:
        return OtherRequest("", raw, "its request is no object")
    subtype = _decode_string(members.get("subtype"))
    kind = _index_by_tag(messages.CliRequest).get(subtype)
    if kind is None or kind is OtherRequest:
        return OtherRequest(subtype, raw)
    try:
        made: messages.CliRequest = _build_struct(kind, members)
    except UnreadableFrame as error:
        return OtherRequest(subtype, raw, str(error))
    return made


def _read_response(members: dict[str, Raw]) -> Response:
    """Some programs put the id beside `response` as well (spec agents 2.7)."""
    try:
        inner = _members.decode(members.get("response", _NULL))
    except BAD_INPUT:
        inner = {}
    made: Response = _build_struct(Response, {**inner, "request_id": inner.get("request_id", members.get("request_id", _NULL))})
    return made


def scan_kind_and_id(head: bytes) -> tuple[str, str]:
    """The type and the request's id that the head of a line shows, each empty when it does not: of a line too long to be kept.

    A result says its type late, but begins with what nothing else has.
    """
    members = scan_head(head)
    kind = _decode_string(members.get(b'"type"'))
    if not kind and members.keys() & {b'"duration_api_ms"', b'"total_cost_usd"', b'"num_turns"'}:
        kind = "result"
    if kind == "control_response":
        members = _scan_inner_object(head, b'"response"')
    return kind, _decode_string(members.get(b'"request_id"'))


def scan_subtype(head: bytes) -> str:
    """What the head of a request shows that it asks, empty when it does not."""
    return _decode_string(_scan_inner_object(head, b'"request"').get(b'"subtype"'))


def _scan_inner_object(head: bytes, name: bytes) -> dict[bytes, bytes]:
    """The members of an object inside of the outermost one."""
    at = head.find(name)
    start = head.find(b"{", at) if at >= 0 else -1
    return scan_head(head[start:]) if start >= 0 else {}


# -- any type ---------------------------------------------------------------------------------------------------------------------


def decode_object(raw: bytes | Raw) -> dict[str, Any]:
    """An object with all its members, for what no type has; empty when it is none."""
    try:
        value = _any.decode(raw)
    except BAD_INPUT:
        return {}
    return value if isinstance(value, dict) else {}


def read_first_byte(raw: Raw) -> bytes:
    """Its first byte, which tells what it is: white space around a value is no part of it."""
    return bytes(memoryview(raw)[:1])


def read_stream_ids(line: bytes | Raw) -> messages.StreamIds:
    """Those of a stream event; one that is of another type reads as absent."""
    made: messages.StreamIds = _coerce(messages.StreamIds, Raw(line))
    return made


# What programs have called the parts of a retry, ours first (spec agents 2.10).
_ATTEMPT = ("attempt", "retry", "retries", "retryCount")
_MOST = ("max_retries", "maxRetries")
_DELAY = ("retry_delay_ms", "delay_ms", "delayMs", "retry_after_ms", "retryDelayMs")
_ERROR = ("error", "message", "reason")


def read_retry(line: bytes) -> messages.Retry:
    """A `system/api_retry` under all the spellings it has had; what is not there, or of another type, is zero."""
    raw = decode_object(line)
    status = raw.get("error_status")
    return messages.Retry(
        int(_find_number(raw, _ATTEMPT)),
        int(_find_number(raw, _MOST)),
        _find_number(raw, _DELAY),
        next((said for name in _ERROR if isinstance(said := raw.get(name), str) and said), ""),
        status if isinstance(status, int) and not isinstance(status, bool) else None,
        raw,
    )


def _find_number(raw: dict[str, Any], names: tuple[str, ...]) -> float:
    found = (raw.get(name) for name in names)
    return next((number for number in found if isinstance(number, int | float) and not isinstance(number, bool)), 0)


@cache
def _get_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@cache
def _get_field_types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _index_by_tag(kind: Any) -> dict[str, Any]:
    """The types of a union by their tags."""
    structs = [one for one in get_args(kind) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    return {str(tag): one for one in structs if (tag := one.__struct_config__.tag) is not None}


def _build_struct(kind: Any, members: dict[str, Raw]) -> Any:
    """A struct out of what fits; the rest reads as absent."""
    given = {}
    for field in msgspec.structs.fields(kind):
        try:
            given[field.name] = _coerce(_get_field_types(kind)[field.name], members[field.encode_name])
        except (KeyError, UnreadableFrame) as error:
            if field.required:
                raise UnreadableFrame(
                    f"it has no {field.name}" if isinstance(error, KeyError) else f"{field.name}: {error}"
                ) from None
    return kind(**given)


def _coerce(kind: Any, raw: Raw) -> Any:
    """A value of that type, made of its parts where it does not fit as a whole."""
    try:
        return _get_decoder(kind).decode(raw)
    except BAD_INPUT as error:
        first = read_first_byte(raw)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if first == b'"' and kind in _SPOKEN:
                return _build_struct(kind, {"content": raw})
            if first == b"{":
                return _build_struct(kind, _members.decode(raw))
        elif get_origin(kind) in (Union, UnionType):
            return _coerce_union(kind, raw, first)
        elif get_origin(kind) is list:
            return _coerce_list(kind, raw, first)
        raise UnreadableFrame(f"it does not fit: {error}") from None


def _coerce_union(kind: Any, raw: Raw, first: bytes) -> Any:
    tagged = _index_by_tag(kind)
    if first == b"{" and tagged:
        members = _members.decode(raw)
        name = _decode_string(members.get("type"))
        one = tagged.get(name)
        if one is not None and one not in _UNKNOWN:
            return _build_struct(one, members)
        for unknown in _UNKNOWN:
            if unknown in tagged.values():
                return unknown(name, raw.copy())
    for option in get_args(kind):
        if get_origin(option) is list and first == b"[":
            return _coerce_list(option, raw, first)
        if not tagged and isinstance(option, type) and issubclass(option, msgspec.Struct) and first == b"{":
            return _build_struct(option, _members.decode(raw))
    raise UnreadableFrame("it is none of what it may be")


def _coerce_list(kind: Any, raw: Raw, first: bytes) -> list[Any]:
    """What fits of its items."""
    (item,) = get_args(kind)
    if first == b'"' and item == blocks.Block:
        return [blocks.Text(_decode_string(raw))]
    if first != b"[":
        raise UnreadableFrame("it is no list")
    made = []
    for one in _items.decode(raw):
        try:
            made.append(_coerce(item, one))
        except UnreadableFrame:
            continue
    return made


def _decode_string(raw: Raw | bytes | None) -> str:
    try:
        return _text.decode(b"" if raw is None else raw)
    except BAD_INPUT:
        return ""
