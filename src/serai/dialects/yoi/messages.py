"""The JSON documents between host and plugin (spec yoi 3.1 to 3.5): read with the origin's words for what is wrong, and written.

Nothing here raises anything but `BadDocument` for what a plugin said. A JSON text is read without NaN, without numbers that no
float holds, without half of a surrogate pair, and at most 128 deep, as the origin's reader has it.

The wire between a plugin's worker and its parent: lines of JSON (decision: the recording sees every frame).

    parent                                   worker
    load (where the code is, bounds)    ->
                                        <-   loaded (checked and confined) | unfit | stale
    go                                  ->   instantiates, where the world keeps an instance
                                        <-   ready | trap
    call                                ->
                                        <-   host (the guest asks), any number of times, each answered by a reply
    reply                               ->
                                        <-   ok | big | trap

One call at a time, and in it one host call at a time. `program/` has the worker's side, without these types: it must start quickly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from serai.plain_text import utf8_size
from serai.plugins.bounds import DOCUMENT
from serai.plugins.untrusted_text import operator_text

SUMMARY = 1024  # bytes (spec yoi 3.3)
DEPTH = 128  # of lists and objects in each other
CLOSED_BY_PEER = "host-owned WebSocket closed by peer"

Phase = Literal["start", "status", "stop"]

_TOO_DEEP = f"recursion limit exceeded: more than {DEPTH} lists and objects in each other"


class BadDocument(ValueError):
    """What a plugin, or a source of events, said is not what the protocol has there. The text is bounded and redacted."""

    def __init__(self, text: str) -> None:
        super().__init__(operator_text(text))


class PluginStatus(msgspec.Struct, frozen=True):
    """The answer of `start`, `status` and `stop`; `raw` is all of it, other keys included."""

    state: str
    data: Any
    raw: Any


class ToolOutput(msgspec.Struct, frozen=True):
    """The answer of a tool; `others` are the keys that the protocol does not know (design rule 4)."""

    summary: str
    content: str | None = None
    others: dict[str, Any] = {}


class ServiceOutput(msgspec.Struct, frozen=True):
    """The answer of `handle-ingress`; `value` is all of it, for the report. In `commands` repeated keys are marked (`Repeated`)."""

    value: Any
    commands: Any | UnsetType = UNSET
    error: Any | UnsetType = UNSET


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The envelope of an event (spec yoi 3.4, seed 003)."""

    kind: str
    source: str
    ingress_name: str
    payload: Any = None
    created_at: str
    attempt: int = 1
    correlation_id: str


# -- JSON -----------------------------------------------------------------------------------------------------------------------


class Repeated(dict[str, Any]):
    """An object in which a key came twice: the last counts where anything may stand, else it is an error (spec yoi 21.16)."""

    __slots__ = ("key",)

    def __init__(self, pairs: list[tuple[str, Any]], key: str) -> None:
        super().__init__(pairs)
        self.key = key


def parse_json(text: str) -> Any:
    """Any JSON value; of a repeated key the last counts. Raises BadDocument with what is wrong, and nothing before it."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:  # ValueError: also text that has no UTF-8, and numbers of 5000 digits
        raise BadDocument(_TOO_DEEP if isinstance(error, RecursionError) else str(error)) from None
    if _is_too_deep(text, value):
        raise BadDocument(_TOO_DEEP)
    return value


def parse_strict_json(text: str) -> Any:
    """The same without repeated keys, for documents all of whose fields are known (spec yoi 4.1, 5.1, 6.1)."""
    value = parse_marked_json(text)
    if (key := find_repeated_key(value)) is not None:
        raise BadDocument(f"duplicate field `{key}`")
    return value


def parse_marked_json(text: str) -> Any:
    """The same with each object that repeats a key as a `Repeated`."""
    parse_json(text)  # the one judge of what is JSON: the standard library's reader takes more
    try:
        return _MARKING.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadDocument(str(error)) from None


def find_repeated_key(value: Any) -> str | None:
    """The first key that came twice anywhere in it."""
    if isinstance(value, Repeated):
        return value.key
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((key for item in inner if (key := find_repeated_key(item)) is not None), None)


def strip_marks(value: Any) -> Any:
    """The same value without marks: the last of each repeated key."""
    if isinstance(value, dict):
        return {key: strip_marks(item) for key, item in value.items()}
    return [strip_marks(item) for item in value] if isinstance(value, list) else value


def encode_json(value: Any) -> str:
    """Compact JSON. Raises BadDocument for what has none."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise BadDocument(f"it has no JSON: {error}") from None


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    again = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return Repeated(pairs, again)


_MARKING = json.JSONDecoder(object_pairs_hook=_build_object)  # made once: `json.loads` makes one for each text


def _is_too_deep(text: str, value: Any) -> bool:
    """Looked at only where there are brackets enough. By steps, not by calls: how deep those may go depends on who asks."""
    if text.count("[") + text.count("{") <= DEPTH:
        return False
    layer, depth = [value], 0
    while layer := [item for item in layer if isinstance(item, dict | list)]:
        depth += 1
        if depth > DEPTH:
            return True
        layer = [item for outer in layer for item in (outer.values() if isinstance(outer, dict) else outer)]
    return False


# -- into a plugin --------------------------------------------------------------------------------------------------------------


def encode_config(config: Any) -> str:
    """What `start` gets: `null` where the enablement has no `config`, and TOML's dates as RFC 3339 has them (spec yoi 3.1)."""
    return encode_json(config)


def read_input(name: str, text: str) -> Any:
    """What a tool was called with, before it reaches the plugin (spec yoi 14)."""
    if utf8_size(text) > DOCUMENT:
        raise BadDocument(f"plugin tool `{name}` input exceeds {DOCUMENT} bytes")
    return _parse_document(text, f"plugin tool `{name}` input is not valid JSON")


class _Envelope(Event, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


def read_event(value: Any) -> Event:
    """An event from a source that is not ours, as JSON text or as what was read from one: types as in spec yoi 3.4 and 21.17."""
    value = parse_marked_json(value) if isinstance(value, str) else value
    if isinstance(value, Repeated):
        raise BadDocument(f"duplicate field `{value.key}`")
    try:
        json.dumps(value, allow_nan=False)
        envelope = msgspec.convert(strip_marks(value), _Envelope)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadDocument(str(error)) from None
    return Event(**msgspec.structs.asdict(envelope))


def encode_event(event: Event) -> str:
    """The very text that the plugin gets, which is what the bound is for (spec yoi 21.18)."""
    text = encode_json(event)
    if utf8_size(text) > DOCUMENT:
        raise BadDocument(f"event envelope exceeds {DOCUMENT} bytes")
    return text


def make_correlation_id(seconds: float, random: bytes) -> str:
    """A UUID of version 7: a moment since the epoch, and ten random bytes (spec yoi 3.4)."""
    number = (int(seconds * 1000) & (2**48 - 1)) << 80 | int.from_bytes(random[:10])
    version, variant = 0xF << 76, 0b11 << 62
    return str(UUID(int=number & ~version & ~variant | 7 << 76 | 0b10 << 62))


def build_websocket_text(*, source: str, ingress_name: str, url: str, text: str, now: str, id: str) -> Event:
    """A frame came in on a connection that the host owns."""
    return _build_websocket_event("websocket_text", source, ingress_name, {"url": url, "text": text}, now, id)


def build_websocket_close(*, source: str, ingress_name: str, url: str, now: str, id: str) -> Event:
    return _build_websocket_event("websocket_close", source, ingress_name, {"url": url, "reason": CLOSED_BY_PEER}, now, id)


def build_websocket_error(*, source: str, ingress_name: str, url: str, error: str, now: str, id: str) -> Event:
    return _build_websocket_event("websocket_error", source, ingress_name, {"url": url, "error": operator_text(error)}, now, id)


def _build_websocket_event(kind: str, source: str, ingress_name: str, payload: Mapping[str, str], now: str, id: str) -> Event:
    return Event(kind=kind, source=source, ingress_name=ingress_name, payload=payload, created_at=now, correlation_id=id)


# -- out of a plugin ------------------------------------------------------------------------------------------------------------


def read_status(text: str, phase: Phase) -> PluginStatus:
    """Checked in this order (spec yoi 3.2). A key `error` is an error whatever its value (spec yoi 21.9)."""
    what = f"plugin component {phase}"
    if utf8_size(text) > DOCUMENT:
        raise BadDocument(f"{what} output exceeds {DOCUMENT} bytes")
    raw = _parse_document(text, f"{what} output is not JSON")
    if isinstance(raw, dict):
        if "error" in raw:
            raise BadDocument(f"{what} returned error: {encode_json(raw['error'])}")
        state = raw.get("state")
        if state == "failed":
            raise BadDocument(f"{what} returned failed status: {encode_json(raw)}")
        if isinstance(state, str):
            return PluginStatus(state, raw.get("data"), raw)
    raise BadDocument(f"{what} output must be an object with a string state")


def read_output(text: str, *, strict: bool = False) -> ToolOutput:
    """What a tool answered. `strict` is a test's mode: there an unknown key is an error, as it is for the origin (rule 4)."""
    if not text:
        raise BadDocument("guest did not call output_write")
    if utf8_size(text) > DOCUMENT:
        raise BadDocument(f"guest output exceeds {DOCUMENT} bytes")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadDocument(f"guest output is not UTF-8: {error}") from None
    return as_output(_parse_document(text, "guest output is not valid JSON"), strict=strict)


def as_output(value: Any, *, strict: bool = False) -> ToolOutput:
    """A value that should be a ToolOutput, its errors in the order of 3.3."""
    if not isinstance(value, dict):
        raise BadDocument("guest output JSON must be an object")
    others = {key: item for key, item in value.items() if key not in ("summary", "content")}
    if strict and others:
        raise BadDocument(f"guest output contains unsupported key `{next(iter(others))}`")
    summary, content = _read_summary(value), value.get("content")
    if isinstance(content, str) and utf8_size(content) > DOCUMENT:
        raise BadDocument(f"guest output content exceeds {DOCUMENT} bytes")
    if not isinstance(content, str | None):
        raise BadDocument("guest output content must be a string or null")
    return ToolOutput(summary, content, others)


def _read_summary(value: Mapping[str, Any]) -> str:
    if "summary" not in value:
        raise BadDocument("guest output must include a summary string")
    summary = value["summary"]
    if not isinstance(summary, str):
        raise BadDocument("guest output summary must be a string")
    if not summary:
        raise BadDocument("guest output summary must not be empty")
    if utf8_size(summary) > SUMMARY:
        raise BadDocument(f"guest output summary exceeds {SUMMARY} bytes")
    return summary


def read_service(text: str) -> ServiceOutput:
    """What an ingress handler answered: any JSON, of which `output_commands` and `error` mean something (spec yoi 3.5)."""
    if utf8_size(text) > DOCUMENT:
        raise BadDocument(f"plugin component handle-ingress output exceeds {DOCUMENT} bytes")
    value = _parse_document(text, "plugin component handle-ingress output is not JSON")
    if not isinstance(value, dict):
        return ServiceOutput(value)
    # Commands are strict inside, so a key that came twice must still be seen; the rest of the document is free.
    commands = parse_marked_json(text)["output_commands"] if "output_commands" in value else UNSET
    return ServiceOutput(value, commands, value.get("error", UNSET))


def _parse_document(text: str, what: str) -> Any:
    try:
        return parse_json(text)
    except BadDocument as error:
        raise BadDocument(f"{what}: {error}") from None


# interface -> function -> what it takes; every one gives a string (spec yoi 2.1)
HOST: dict[str, dict[str, tuple[type, ...]]] = {
    "request": {"request": (str,)},
    "websocket": {"open": (str,), "send-text": (int, str), "recv": (int, int), "close": (int,)},
    "fs": {"read": (str,), "list": (str,), "write": (str,)},
}
_U32 = 1 << 32


class _Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", gc=False):
    pass


class Load(_Frame, frozen=True, kw_only=True, tag="load"):
    path: str  # of the compiled code, in our own cache
    world: str
    digest: str  # of the package, for who reads the recording
    fresh: bool  # a new store for each call
    most: int  # bytes of a text that comes out
    bounds: dict[str, Any]


class Go(_Frame, frozen=True, kw_only=True, tag="go"):
    id: int
    time: float


class Call(_Frame, frozen=True, kw_only=True, tag="call"):
    id: int
    export: str
    args: tuple[str, ...]
    time: float  # seconds that are left


class Reply(_Frame, frozen=True, kw_only=True, tag="reply", omit_defaults=True):
    id: int
    n: int
    text: str | None = None
    denied: str | None = None


class Loaded(_Frame, frozen=True, kw_only=True, tag="loaded"):
    imports: tuple[str, ...]
    confined: tuple[str, ...]  # what of its confinement the kernel granted
    direct: bool = False  # whether it calls by the quick way


class Unfit(_Frame, frozen=True, kw_only=True, tag="unfit"):
    text: str


class Stale(_Frame, frozen=True, kw_only=True, tag="stale"):
    """The compiled code does not fit the engine, or cannot be read."""

    text: str


class Ready(_Frame, frozen=True, kw_only=True, tag="ready"):
    pass


class HostAsked(_Frame, frozen=True, kw_only=True, tag="host"):
    id: int
    n: int
    api: str
    function: str
    args: tuple[str | int, ...]

    def fits(self) -> bool:
        """Whether there is such a function and it takes such arguments: the worker's word for it is not enough."""
        kinds = HOST.get(self.api, {}).get(self.function)
        return kinds == tuple(map(type, self.args)) and all(type(arg) is str or 0 <= arg < _U32 for arg in self.args)  # type: ignore[operator]


class Ok(_Frame, frozen=True, kw_only=True, tag="ok"):
    id: int
    text: str


class Big(_Frame, frozen=True, kw_only=True, tag="big"):
    id: int
    size: int


class Trap(_Frame, frozen=True, kw_only=True, tag="trap"):
    id: int
    kind: str  # timeout, fuel, stack, limit, output, denied, trap
    text: str


FromWorker = Loaded | Unfit | Stale | Ready | HostAsked | Ok | Big | Trap

decoder: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)
_encode = msgspec.json.encode


def encode(frame: Load | Go | Call | Reply) -> bytes:
    """With its newline. A lone surrogate raises `UnicodeEncodeError`: it has no bytes."""
    return _encode(frame) + b"\n"
