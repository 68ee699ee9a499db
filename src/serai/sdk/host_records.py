"""What a host answers, as plain records, made of JSON with keys in any case and gaps filled (spec piglet 2.2).

Also what a model that an extension provides is called with, and the deltas and the message that it answers with (spec piglet 5.9).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from serai.errors import BadFrame
from serai.sdk.answers import Image, Returned, Text, ToolResult, describe_type

R = TypeVar("R", bound=tuple[Any, ...])


class ToolInfo(NamedTuple):
    name: str = ""
    description: str = ""
    parameters: Any = None
    deferred: bool = False


class Usage(NamedTuple):
    input: int = 0
    output: int = 0


class ChatAnswer(NamedTuple):
    text: str = ""
    usage: Usage = Usage()


class AgentAnswer(NamedTuple):
    text: str = ""
    turns: int = 0
    usage: Usage = Usage()


class Snapshot(NamedTuple):
    """What the next call of the model would carry."""

    system: str = ""
    messages: tuple[Any, ...] = ()
    tools: tuple[ToolInfo, ...] = ()


class Stats(NamedTuple):
    turn_count: int = 0
    total_input_tokens: int = 0
    total_output_tokens: int = 0
    total_cache_read_tokens: int = 0
    total_cache_write_tokens: int = 0
    total_cost: float = 0.0
    model: str = ""


class SessionInfo(NamedTuple):
    id: str = ""
    title: str = ""
    cwd: str = ""
    created_at: str = ""
    parent_id: str = ""
    path: str = ""


class Forked(NamedTuple):
    parent_id: str = ""
    message_count: int = 0


class EntryInfo(NamedTuple):
    id: str = ""
    parent_id: str = ""
    type: str = ""
    timestamp: str = ""
    children: int = 0


class TreeNode(NamedTuple):
    id: str = ""
    parent_id: str = ""
    type: str = ""
    timestamp: str = ""
    children: int = 0
    on_active_path: bool = False
    depth: int = 0
    preview: str = ""
    label: str = ""
    tokens_before: int = 0


class ModelInfo(NamedTuple):
    id: str = ""
    api: str = ""
    display_name: str = ""
    provider: str = ""
    context_window: int = 0
    max_tokens: int = 0
    reasoning: bool = False
    cost_input: float = 0.0
    cost_output: float = 0.0
    current: bool = False


class Compacted(NamedTuple):
    """How many messages there were, and are."""

    before: int = 0
    after: int = 0


class CommandInfo(NamedTuple):
    name: str = ""
    description: str = ""


class SectionInfo(NamedTuple):
    title: str = ""
    token_hint: int = 0


class ExtensionInfo(NamedTuple):
    name: str = ""
    version: str = ""
    kind: str = ""
    runtime: str = ""
    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    interceptors: tuple[str, ...] = ()
    event_handlers: tuple[str, ...] = ()
    shortcuts: tuple[str, ...] = ()
    message_hooks: tuple[str, ...] = ()
    compactor: str = ""


class Model(NamedTuple):
    """The model that a provider is to call; costs are per million tokens."""

    id: str = ""
    name: str = ""
    api: str = ""
    provider: str = ""
    base_url: str = ""
    reasoning: bool = False
    context_window: int = 0
    max_tokens: int = 0
    cost: Any = None
    headers: Any = None


class StreamRequest(NamedTuple):
    """What a provider is asked for. Messages, tools and options are as they came (spec piglet 5.9)."""

    model: Model = Model()
    system: str = ""
    messages: tuple[Any, ...] = ()
    tools: tuple[Any, ...] = ()
    options: Any = None


def fold_keys(data: object, names: Iterable[str]) -> dict[str, Any]:
    """The members of these names, whatever case their keys are in; one of the very case wins (spec piglet FIX-4)."""
    if not isinstance(data, dict):
        return {}
    wanted = {name.lower(): name for name in names}
    found = {wanted[key.lower()]: value for key, value in data.items() if key.lower() in wanted}
    return found | {name: data[name] for name in wanted.values() if name in data}


def build_record(record: Callable[..., R], data: object) -> R:
    """A record of what came. What is not there, or is of another type, has its empty value."""
    defaults: dict[str, Any] = record._field_defaults  # type: ignore[attr-defined]
    names = {to_camel(name): name for name in defaults}
    values = {names[key]: _coerce(value, defaults[names[key]]) for key, value in fold_keys(data, names).items()}
    return record(**values)


def build_records(record: Callable[..., R], data: object) -> list[R]:
    """Of a list that came; null is an empty one."""
    return [build_record(record, one) for one in data if isinstance(one, dict)] if isinstance(data, list) else []


def build_tool_result(name: str, data: object) -> ToolResult:
    """What came of a tool; `BadFrame` when there is an image in it that is none."""
    answer = fold_keys(data, ("content", "isError", "errorCode", "errorHint"))
    content: list[Text | Image] = []
    for one in answer.get("content") or ():
        block = fold_keys(one, ("type", "text", "data", "mime"))
        if block.get("type") == "image":
            content.append(Image(_decode_base64(name, block.get("data") or ""), block.get("mime") or "application/octet-stream"))
        else:
            content.append(Text(str(block.get("text") or "")))
    code, hint = str(answer.get("errorCode") or ""), str(answer.get("errorHint") or "")
    return ToolResult(*content, is_error=bool(answer.get("isError")), code=code, hint=hint)


def _decode_base64(name: str, data: Any) -> bytes:
    from base64 import b64decode

    try:
        return b64decode(data)
    except (TypeError, ValueError) as error:
        why = f"the tool {name} ran, but its result has an image whose data is no base64: {error}"
        raise BadFrame(why, hint="whoever wrote that tool, or its host, has to mend it") from None


def to_camel(name: str) -> str:
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)


def _coerce(value: object, default: Any) -> Any:
    if default is None:
        return value
    if hasattr(default, "_field_defaults"):
        return build_record(type(default), value)
    if isinstance(default, tuple):
        return tuple(value) if isinstance(value, list) else default
    if isinstance(default, bool) or isinstance(value, bool):
        return value if isinstance(value, bool) and isinstance(default, bool) else default
    if isinstance(default, int):  # an integer may come as 4242.0 (spec piglet 10.14)
        return int(value) if isinstance(value, int) or (isinstance(value, float) and value.is_integer()) else default
    if isinstance(default, float):
        return float(value) if isinstance(value, int | float) else default
    return value if isinstance(value, type(default)) else default


_USAGE = {"inputTokens": 0, "outputTokens": 0, "cacheReadTokens": 0, "cacheWriteTokens": 0, "cost": 0}


class Deltas:
    """Where a provider writes what the model says while it says it."""

    def __init__(self, tell: Callable[[str, dict[str, Any]], None], request: int) -> None:
        self._tell, self._request = tell, request
        self._text: list[str] = []

    def text(self, delta: str, *, index: int = 0) -> None:
        self._text.append(delta)
        self._send("text_delta", index, delta=delta)

    def thinking(self, delta: str, *, index: int = 0) -> None:
        self._send("thinking_delta", index, delta=delta)

    def tool_call(self, delta: str, *, index: int = 0) -> None:
        """A piece of the arguments of a call."""
        self._send("toolcall_delta", index, delta=delta)

    def tool_call_end(self, id: str, name: str, arguments: dict[str, Any] | str, *, index: int = 0) -> None:
        """A call is whole. On the wire its arguments are a JSON text."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        self._send("toolcall_end", index, tool={"id": id, "name": name, "arguments": text})

    @property
    def so_far(self) -> str:
        """All text that was written."""
        return "".join(self._text)

    def _send(self, type: str, index: int, **more: Any) -> None:
        self._tell("provider/delta", {"requestId": self._request, "type": type, **({"index": index} if index else {}), **more})


def build_message(value: object, request: StreamRequest, deltas: Deltas) -> dict[str, Any]:
    """The message that is the answer: a whole one as it is, a text, or nothing for what was written."""
    if value is None:
        value = deltas.so_far
    if isinstance(value, str):
        value = {"content": [{"type": "text", "text": value}]}
    if not isinstance(value, dict):
        raise Returned(f"it returned {describe_type(value)}; a provider returns a message, a text, or nothing for what it wrote")
    about = {"model": request.model.id, "provider": request.model.provider, "usage": _USAGE, "stopReason": "stop"}
    return {**about, "timestamp": _format_now(), **value}


def _format_now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
