"""The Messages API: `POST /v1/messages`, its count of tokens, and the list of its models.

Requests are refused as the real API refuses them, with its texts.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from serai.agents.models.model_script import ScriptMessage, is_scripted
from serai.testing.models.reply import (
    Api,
    BadRequest,
    CallPiece,
    Content,
    Encoder,
    Json,
    NeutralRequest,
    ReplyBlock,
    TextPiece,
    ThoughtPiece,
    dumps,
    duplicates,
    items,
    need,
    objects,
    text_of,
    tokens,
)

_ROLES = ("user", "assistant", "system")  # `system` in between is what Claude Code sends
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_MOST_CACHED = 4
_LEAST_THINKING = 1024

_USER = {"text", "image", "document", "search_result", "tool_result", "container_upload"}
_ASSISTANT = {
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "container_upload",
}
_BLOCKS = {"user": _USER, "assistant": _ASSISTANT, "system": {"text"}}


class Signature:
    """What a thinking block is signed with: who sends it back changed is found out, as by the real API."""

    def __init__(self, thinking: str = "") -> None:
        self._digest = hashlib.sha256(b"a thought: ")
        self.add(thinking)

    def add(self, piece: str) -> None:
        self._digest.update(piece.encode(errors="surrogatepass"))

    def __str__(self) -> str:
        return base64.b64encode(self._digest.digest()).decode()


def check(body: Json, *, counting: bool = False) -> None:
    """`counting`: the request only wants its tokens counted, and says no `max_tokens`."""
    need(isinstance(body.get("model"), str) and body["model"], "model: Field required")
    if not counting:
        _check_most(body)
    need("messages" in body, "messages: Field required")
    need(isinstance(body["messages"], list), "messages: Input should be a valid list")
    need(body["messages"], "messages: at least one message is required")
    need(isinstance(body.get("stream", False), bool), "stream: Input should be a valid boolean")
    _check_system(body.get("system"))
    _check_tools(body.get("tools"))
    for number, message in enumerate(body["messages"]):
        _check_message(f"messages.{number}", message, is_last=number == len(body["messages"]) - 1)
    _check_pairs(body["messages"])
    marks = _cache_marks(body)
    need(marks <= _MOST_CACHED, f"A maximum of {_MOST_CACHED} blocks with cache_control may be provided. Found {marks}.")


def _check_most(body: Json) -> None:
    most = body.get("max_tokens")
    need(most is not None, "max_tokens: Field required")
    if not isinstance(most, int) or isinstance(most, bool):
        raise BadRequest("max_tokens: Input should be a valid integer")
    need(most >= 1, "max_tokens: Input should be greater than or equal to 1")
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or isinstance(budget, bool):
        raise BadRequest("thinking.enabled.budget_tokens: Field required")
    need(budget >= _LEAST_THINKING, f"thinking.enabled.budget_tokens: Input should be greater than or equal to {_LEAST_THINKING}")
    need(most > budget, "`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_system(system: Any) -> None:
    if system is None or isinstance(system, str):
        return
    need(isinstance(system, list), "system: Input should be a valid list")
    for number, block in enumerate(system):
        need(isinstance(block, dict) and block.get("type") == "text", f"system.{number}.type: Input should be 'text'")
        _check_text(f"system.{number}", block, "system")


def _check_tools(tools: Any) -> None:
    if tools is None:
        return
    need(isinstance(tools, list), "tools: Input should be a valid list")
    for number, tool in enumerate(tools):
        where = f"tools.{number}"
        need(isinstance(tool, dict), f"{where}: Input should be a valid dictionary or object to extract fields from")
        if tool.get("type", "custom") != "custom":
            continue  # the provider's own: `web_search_20250305` and the like
        name, schema = tool.get("name"), tool.get("input_schema")
        need(isinstance(name, str), f"{where}.custom.name: Field required")
        need(_NAME.fullmatch(name or ""), f"{where}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        need(isinstance(schema, dict), f"{where}.custom.input_schema: Field required")
        need(schema and schema.get("type") == "object", f"{where}.custom.input_schema.type: Input should be 'object'")
    names = [tool["name"] for tool in tools if isinstance(tool.get("name"), str)]
    need(not duplicates(names), "tools: Tool names must be unique.")


def _check_message(where: str, message: Any, *, is_last: bool) -> None:
    need(isinstance(message, dict), f"{where}: Input should be a valid dictionary or object to extract fields from")
    role, content = message.get("role"), message.get("content")
    need("role" in message, f"{where}.role: Field required")
    need(isinstance(role, str) and role in _ROLES, f"{where}.role: Input should be 'user' or 'assistant'")
    need("content" in message, f"{where}.content: Field required")
    need(isinstance(content, str | list), f"{where}.content: Input should be a valid list")
    need(content or (is_last and role == "assistant"), f"{where}: all messages must have non-empty content")
    for number, block in enumerate(items(content)):
        _check_block(f"{where}.content.{number}", block, role)


def _check_block(where: str, block: Any, role: str) -> None:
    need(isinstance(block, dict), f"{where}: Input should be a valid dictionary or object to extract fields from")
    kind = block.get("type")
    known = isinstance(kind, str) and kind in _USER | _ASSISTANT
    need(known, f"{where}: Input tag {kind!r} found using 'type' does not match any of the expected tags")
    need(kind in _BLOCKS[role], f"{where}: `{kind}` blocks are not permitted in `{role}` messages")
    match kind:
        case "text":
            _check_text(where, block, "messages")
        case "thinking":
            _check_thinking(where, block)
        case "tool_use":
            for field in ("id", "name"):
                need(isinstance(block.get(field), str) and block[field], f"{where}.tool_use.{field}: Field required")
            need(_ID.fullmatch(block["id"]), f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
            need(isinstance(block.get("input"), dict), f"{where}.tool_use.input: Input should be a valid dictionary")
        case "tool_result":
            _check_result(where, block)
        case "image" | "document":
            need(isinstance(block.get("source"), dict), f"{where}.{kind}.source: Field required")


def _check_text(where: str, block: Json, part: str) -> None:
    text = block.get("text")
    if not isinstance(text, str):
        raise BadRequest(f"{where}.text.text: Field required")
    need(text, f"{part}: text content blocks must be non-empty")
    need(text.strip(), f"{part}: text content blocks must contain non-whitespace text")


def _check_thinking(where: str, block: Json) -> None:
    thinking = block.get("thinking")
    if not isinstance(thinking, str):
        raise BadRequest(f"{where}.thinking.thinking: Field required")
    need(isinstance(block.get("signature"), str), f"{where}.thinking.signature: Field required")
    need(block["signature"] == str(Signature(thinking)), f"{where}: Invalid `signature` in `thinking` block")


def _check_result(where: str, block: Json) -> None:
    content = block.get("content", "")
    need(isinstance(block.get("tool_use_id"), str), f"{where}.tool_result.tool_use_id: Field required")
    need(isinstance(content, str | list), f"{where}.tool_result.content: Input should be a valid list")
    need(isinstance(block.get("is_error", False), bool), f"{where}.tool_result.is_error: Input should be a valid boolean")
    for number, part in enumerate(items(content)):
        need(isinstance(part, dict), f"{where}.tool_result.content.{number}: Input should be a valid dictionary")
        if part.get("type") == "text":
            _check_text(f"{where}.tool_result.content.{number}", part, "messages")


def _check_pairs(messages: list[Json]) -> None:
    """Every call has its result in the next turn, and every result its call in the one before. Adjacent messages of one role are
    one turn."""
    turns: list[tuple[str, int, list[Json]]] = []
    for number, message in enumerate(messages):
        if message["role"] == "system":
            continue
        if turns and turns[-1][0] == message["role"]:
            turns[-1][2].extend(_blocks(message))
        else:
            turns.append((message["role"], number, _blocks(message)))
    asked: list[str] = []  # by the turn before
    before = 0
    for role, number, content in turns:
        results = _leading_results(content)
        _check_results(number, content, asked)
        _check_answered(before, asked, results)
        asked = [block["id"] for block in content if block["type"] == "tool_use"] if role == "assistant" else []
        need(not duplicates(asked), f"messages.{number}: `tool_use` ids must be unique")
        before = number
    _check_answered(before, asked, [])


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return objects(content) if isinstance(content, list) else [{"type": "text", "text": content}]


def _leading_results(content: list[Json]) -> list[str]:
    """Results count only in front of everything else in their turn."""
    found = []
    for block in content:
        if block["type"] != "tool_result":
            break
        found.append(block["tool_use_id"])
    return found


def _check_results(number: int, content: list[Json], asked: list[str]) -> None:
    results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
    stray = sorted(set(results) - set(asked))
    need(
        not stray,
        f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {', '.join(stray)}. "
        "Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
    )
    twice = duplicates(results)
    need(
        not twice,
        f"messages.{number}: each tool_use must have a single result. "
        f"Found multiple `tool_result` blocks with id: {', '.join(twice)}",
    )


def _check_answered(number: int, asked: list[str], results: list[str]) -> None:
    missing = sorted(set(asked) - set(results))
    need(
        not missing,
        f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
    )


def _cache_marks(body: Json) -> int:
    marked = [*objects(body.get("system")), *objects(body.get("tools"))]
    for message in body["messages"]:
        for block in objects(message["content"]):
            marked += [block, *objects(block.get("content"))]
    return sum(block.get("cache_control") is not None for block in marked)


_STOPS = {"end": "end_turn", "length": "max_tokens"}  # the others have the same word
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_ARGUMENTS = 40  # characters of a call's arguments in one event


def read(body: Json, raw: bytes, digest: str) -> NeutralRequest:
    check(body)
    return NeutralRequest(
        body=body,
        digest=digest,
        model=body["model"],
        stream=body.get("stream", False),
        said=tuple(_said(body["messages"])),
        system=text_of(body.get("system"), "text"),
        tools=tuple(str(tool.get("name", "")) for tool in objects(body.get("tools"))),
        tokens=tokens(len(raw)),
        cached=tokens(len(dumps([body.get("tools"), body.get("system")]))) if b'"cache_control"' in raw else 0,
    )


def _said(messages: list[Json]) -> Iterator[ScriptMessage]:
    for message in messages:
        content = message["content"]
        if message["role"] == "assistant":
            yield ScriptMessage("assistant", text_of(content, "text"))
        elif message["role"] == "user":
            for block in objects(content):
                if block["type"] == "tool_result":
                    yield ScriptMessage("tool", text_of(block.get("content", ""), "text"))
            texts = (
                [content] if isinstance(content, str) else [block["text"] for block in objects(content) if block["type"] == "text"]
            )
            # each by itself: what was said one after the other may come as one message, and the newest script counts
            yield from (ScriptMessage("user", text) for text in texts if not _is_reminder(text))


def _is_reminder(text: str) -> bool:
    """What Claude Code puts beside a person's words is none of them."""
    return text.lstrip().startswith("<system-reminder>") and not is_scripted(text)


def _usage(asked: NeutralRequest, output: int) -> Json:
    written, found = (asked.cached, 0) if asked.is_first else (0, asked.cached)
    return {
        "input_tokens": max(asked.tokens - asked.cached, 1),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": found,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
        "service_tier": "standard",
    }


def _message(asked: NeutralRequest, content: list[Json], stop: str | None, output: int) -> Json:
    return {
        "id": asked.id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": content,
        **_stopped(stop),
        "usage": _usage(asked, output),
    }


def _stopped(stop: str | None) -> Json:
    details = {"type": "refusal", "category": None, "explanation": None} if stop == "refusal" else None
    return {"stop_reason": stop, "stop_sequence": None, "stop_details": details}


def whole(asked: NeutralRequest, made: list[ReplyBlock], stop: str) -> Json:
    length = sum(len(block.text) for block in made)
    return _message(asked, [_block(asked, block) for block in made], _STOPS.get(stop, stop), tokens(length))


def _block(asked: NeutralRequest, block: ReplyBlock) -> Json:
    if block.kind is TextPiece:
        return {"type": "text", "text": block.text}
    if block.kind is ThoughtPiece:
        return {"type": "thinking", "thinking": block.text, "signature": str(Signature(block.text))}
    return {"type": "tool_use", "id": asked.id("toolu_", block.number), "name": block.name, "input": _input(block.text)}


def _input(arguments: str) -> Any:
    """Without a stream the arguments are JSON; broken ones are a text in it."""
    try:
        return msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments


def _event(kind: str, fields: Json) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), dumps({"type": kind, **fields}))


class MessagesEvents(Encoder):
    """message_start, { content_block_start, [ping], content_block_delta*, content_block_stop }*, message_delta, message_stop."""

    def __init__(self, asked: NeutralRequest, stop: str) -> None:
        super().__init__(asked, stop)
        self._index = -1
        self._signature: Signature | None = None
        self._last: tuple[Content | None, bytes] = (None, b"")

    def begin(self) -> Iterator[bytes]:
        yield _event("message_start", {"message": _message(self.asked, [], None, 1)})

    def open(self, piece: Content) -> Iterator[bytes]:
        self._index += 1
        self._last = (None, b"")
        block: Json = {"type": "text", "text": ""}
        if isinstance(piece, ThoughtPiece):
            self._signature = Signature()
            block = {"type": "thinking", "thinking": "", "signature": ""}
        elif isinstance(piece, CallPiece):
            block = {"type": "tool_use", "id": self.asked.id("toolu_", piece.number), "name": piece.name, "input": {}}
        yield _event("content_block_start", {"index": self._index, "content_block": block})
        if self._index == 0:
            yield _PING
        if isinstance(piece, CallPiece):
            yield self._delta("input_json_delta", "partial_json", "")
            for start in range(0, len(piece.text), _ARGUMENTS):
                yield self._delta("input_json_delta", "partial_json", piece.text[start : start + _ARGUMENTS])

    def delta(self, piece: Content) -> bytes:
        if self._signature is not None:
            self._signature.add(piece.text)
        if piece is not self._last[0]:  # what repeats is encoded once
            words = ("text_delta", "text") if isinstance(piece, TextPiece) else ("thinking_delta", "thinking")
            self._last = (piece, self._delta(*words, piece.text))
        return self._last[1]

    def _delta(self, kind: str, field: str, text: str) -> bytes:
        return _event("content_block_delta", {"index": self._index, "delta": {"type": kind, field: text}})

    def close(self) -> Iterator[bytes]:
        if self._signature is not None:
            yield self._delta("signature_delta", "signature", str(self._signature))
            self._signature = None
        yield _event("content_block_stop", {"index": self._index})

    def end(self) -> Iterator[bytes]:
        if self._index < 0:
            yield _PING
        delta = _stopped(_STOPS.get(self.stop, self.stop))
        usage = _usage(self.asked, tokens(self.length))
        told = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
        yield _event("message_delta", {"delta": delta, "usage": {name: usage[name] for name in told}})
        yield _event("message_stop", {})


def error(status: int, text: str, request_id: str, _why: BadRequest | None = None) -> Json:
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": text or kind}, "request_id": request_id}


def broken(status: int, text: str, _sent: int) -> bytes:
    kind = _ERRORS.get(status, "api_error")
    return _event("error", {"error": {"type": kind, "message": text or kind}})


def count(body: Json, raw: bytes) -> Json:
    check(body, counting=True)
    return {"input_tokens": tokens(len(raw))}


def models(ids: tuple[str, ...]) -> Json:
    data = [{"type": "model", "id": id, "display_name": id, "created_at": "2026-01-01T00:00:00Z"} for id in ids]
    return {"data": data, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}


API = Api(
    name="anthropic",
    read=read,
    encoder=MessagesEvents,
    whole=whole,
    error=error,
    broken=broken,
    malformed=b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":\n\n',
    request_id="request-id",
)
