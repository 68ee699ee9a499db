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

from serai.agents.models.parrot import ScriptMessage, is_scripted
from serai.testing.models import reply

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


def check(body: reply.Json, *, counting: bool = False) -> None:
    """`counting`: the request only wants its tokens counted, and says no `max_tokens`."""
    reply.need(isinstance(body.get("model"), str) and body["model"], "model: Field required")
    if not counting:
        _check_max_tokens(body)
    reply.need("messages" in body, "messages: Field required")
    reply.need(isinstance(body["messages"], list), "messages: Input should be a valid list")
    reply.need(body["messages"], "messages: at least one message is required")
    reply.need(isinstance(body.get("stream", False), bool), "stream: Input should be a valid boolean")
    _check_system(body.get("system"))
    _check_tools(body.get("tools"))
    for number, message in enumerate(body["messages"]):
        _check_message(f"messages.{number}", message, is_last=number == len(body["messages"]) - 1)
    _check_pairs(body["messages"])
    marks = _count_cache_marks(body)
    reply.need(marks <= _MOST_CACHED, f"A maximum of {_MOST_CACHED} blocks with cache_control may be provided. Found {marks}.")


def _check_max_tokens(body: reply.Json) -> None:
    most = body.get("max_tokens")
    reply.need(most is not None, "max_tokens: Field required")
    if not isinstance(most, int) or isinstance(most, bool):
        raise reply.ApiRefusal("max_tokens: Input should be a valid integer")
    reply.need(most >= 1, "max_tokens: Input should be greater than or equal to 1")
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or isinstance(budget, bool):
        raise reply.ApiRefusal("thinking.enabled.budget_tokens: Field required")
    reply.need(
        budget >= _LEAST_THINKING, f"thinking.enabled.budget_tokens: Input should be greater than or equal to {_LEAST_THINKING}"
    )
    reply.need(most > budget, "`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_system(system: Any) -> None:
    if system is None or isinstance(system, str):
        return
    reply.need(isinstance(system, list), "system: Input should be a valid list")
    for number, block in enumerate(system):
        reply.need(isinstance(block, dict) and block.get("type") == "text", f"system.{number}.type: Input should be 'text'")
        _check_text(f"system.{number}", block, "system")


def _check_tools(tools: Any) -> None:
    if tools is None:
        return
    reply.need(isinstance(tools, list), "tools: Input should be a valid list")
    for number, tool in enumerate(tools):
        where = f"tools.{number}"
        reply.need(isinstance(tool, dict), f"{where}: Input should be a valid dictionary or object to extract fields from")
        if tool.get("type", "custom") != "custom":
            continue  # the provider's own: `web_search_20250305` and the like
        name, schema = tool.get("name"), tool.get("input_schema")
        reply.need(isinstance(name, str), f"{where}.custom.name: Field required")
        reply.need(_NAME.fullmatch(name or ""), f"{where}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        reply.need(isinstance(schema, dict), f"{where}.custom.input_schema: Field required")
        reply.need(schema and schema.get("type") == "object", f"{where}.custom.input_schema.type: Input should be 'object'")
    names = [tool["name"] for tool in tools if isinstance(tool.get("name"), str)]
    reply.need(not reply.find_duplicates(names), "tools: Tool names must be unique.")


def _check_message(where: str, message: Any, *, is_last: bool) -> None:
    reply.need(isinstance(message, dict), f"{where}: Input should be a valid dictionary or object to extract fields from")
    role, content = message.get("role"), message.get("content")
    reply.need("role" in message, f"{where}.role: Field required")
    reply.need(isinstance(role, str) and role in _ROLES, f"{where}.role: Input should be 'user' or 'assistant'")
    reply.need("content" in message, f"{where}.content: Field required")
    reply.need(isinstance(content, str | list), f"{where}.content: Input should be a valid list")
    reply.need(content or (is_last and role == "assistant"), f"{where}: all messages must have non-empty content")
    for number, block in enumerate(reply.as_list(content)):
        _check_block(f"{where}.content.{number}", block, role)


def _check_block(where: str, block: Any, role: str) -> None:
    reply.need(isinstance(block, dict), f"{where}: Input should be a valid dictionary or object to extract fields from")
    kind = block.get("type")
    known = isinstance(kind, str) and kind in _USER | _ASSISTANT
    reply.need(known, f"{where}: Input tag {kind!r} found using 'type' does not match any of the expected tags")
    reply.need(kind in _BLOCKS[role], f"{where}: `{kind}` blocks are not permitted in `{role}` messages")
    match kind:
        case "text":
            _check_text(where, block, "messages")
        case "thinking":
            _check_thinking(where, block)
        case "tool_use":
            for field in ("id", "name"):
                reply.need(isinstance(block.get(field), str) and block[field], f"{where}.tool_use.{field}: Field required")
            reply.need(_ID.fullmatch(block["id"]), f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
            reply.need(isinstance(block.get("input"), dict), f"{where}.tool_use.input: Input should be a valid dictionary")
        case "tool_result":
            _check_result(where, block)
        case "image" | "document":
            reply.need(isinstance(block.get("source"), dict), f"{where}.{kind}.source: Field required")


def _check_text(where: str, block: reply.Json, part: str) -> None:
    text = block.get("text")
    if not isinstance(text, str):
        raise reply.ApiRefusal(f"{where}.text.text: Field required")
    reply.need(text, f"{part}: text content blocks must be non-empty")
    reply.need(text.strip(), f"{part}: text content blocks must contain non-whitespace text")


def _check_thinking(where: str, block: reply.Json) -> None:
    thinking = block.get("thinking")
    if not isinstance(thinking, str):
        raise reply.ApiRefusal(f"{where}.thinking.thinking: Field required")
    reply.need(isinstance(block.get("signature"), str), f"{where}.thinking.signature: Field required")
    reply.need(block["signature"] == str(Signature(thinking)), f"{where}: Invalid `signature` in `thinking` block")


def _check_result(where: str, block: reply.Json) -> None:
    content = block.get("content", "")
    reply.need(isinstance(block.get("tool_use_id"), str), f"{where}.tool_result.tool_use_id: Field required")
    reply.need(isinstance(content, str | list), f"{where}.tool_result.content: Input should be a valid list")
    reply.need(isinstance(block.get("is_error", False), bool), f"{where}.tool_result.is_error: Input should be a valid boolean")
    for number, part in enumerate(reply.as_list(content)):
        reply.need(isinstance(part, dict), f"{where}.tool_result.content.{number}: Input should be a valid dictionary")
        if part.get("type") == "text":
            _check_text(f"{where}.tool_result.content.{number}", part, "messages")


def _check_pairs(messages: list[reply.Json]) -> None:
    """Every call has its result in the next turn, and every result its call in the one before. Adjacent messages of one role are
    one turn."""
    turns: list[tuple[str, int, list[reply.Json]]] = []
    for number, message in enumerate(messages):
        if message["role"] == "system":
            continue
        if turns and turns[-1][0] == message["role"]:
            turns[-1][2].extend(_list_blocks(message))
        else:
            turns.append((message["role"], number, _list_blocks(message)))
    asked: list[str] = []  # by the turn before
    before = 0
    for role, number, content in turns:
        results = _find_leading_results(content)
        _check_results(number, content, asked)
        _check_answered(before, asked, results)
        asked = [block["id"] for block in content if block["type"] == "tool_use"] if role == "assistant" else []
        reply.need(not reply.find_duplicates(asked), f"messages.{number}: `tool_use` ids must be unique")
        before = number
    _check_answered(before, asked, [])


def _list_blocks(message: reply.Json) -> list[reply.Json]:
    content = message["content"]
    return reply.list_objects(content) if isinstance(content, list) else [{"type": "text", "text": content}]


def _find_leading_results(content: list[reply.Json]) -> list[str]:
    """Results count only in front of everything else in their turn."""
    found = []
    for block in content:
        if block["type"] != "tool_result":
            break
        found.append(block["tool_use_id"])
    return found


def _check_results(number: int, content: list[reply.Json], asked: list[str]) -> None:
    results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
    stray = sorted(set(results) - set(asked))
    reply.need(
        not stray,
        f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {', '.join(stray)}. "
        "Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
    )
    twice = reply.find_duplicates(results)
    reply.need(
        not twice,
        f"messages.{number}: each tool_use must have a single result. "
        f"Found multiple `tool_result` blocks with id: {', '.join(twice)}",
    )


def _check_answered(number: int, asked: list[str], results: list[str]) -> None:
    missing = sorted(set(asked) - set(results))
    reply.need(
        not missing,
        f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(missing)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
    )


def _count_cache_marks(body: reply.Json) -> int:
    marked = [*reply.list_objects(body.get("system")), *reply.list_objects(body.get("tools"))]
    for message in body["messages"]:
        for block in reply.list_objects(message["content"]):
            marked += [block, *reply.list_objects(block.get("content"))]
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


def read(body: reply.Json, raw: bytes, digest: str) -> reply.NeutralRequest:
    check(body)
    return reply.NeutralRequest(
        body=body,
        digest=digest,
        model=body["model"],
        stream=body.get("stream", False),
        said=tuple(_iter_messages(body["messages"])),
        system=reply.join_text(body.get("system"), "text"),
        tools=tuple(str(tool.get("name", "")) for tool in reply.list_objects(body.get("tools"))),
        tokens=reply.count_tokens(len(raw)),
        cached=reply.count_tokens(len(reply.dumps([body.get("tools"), body.get("system")]))) if b'"cache_control"' in raw else 0,
    )


def _iter_messages(messages: list[reply.Json]) -> Iterator[ScriptMessage]:
    for message in messages:
        content = message["content"]
        if message["role"] == "assistant":
            yield ScriptMessage("assistant", reply.join_text(content, "text"))
        elif message["role"] == "user":
            for block in reply.list_objects(content):
                if block["type"] == "tool_result":
                    yield ScriptMessage("tool", reply.join_text(block.get("content", ""), "text"))
            texts = (
                [content]
                if isinstance(content, str)
                else [block["text"] for block in reply.list_objects(content) if block["type"] == "text"]
            )
            # each by itself: what was said one after the other may come as one message, and the newest script counts
            yield from (ScriptMessage("user", text) for text in texts if not _is_reminder(text))


def _is_reminder(text: str) -> bool:
    """What Claude Code puts beside a person's words is none of them."""
    return text.lstrip().startswith("<system-reminder>") and not is_scripted(text)


def _build_usage(asked: reply.NeutralRequest, output: int) -> reply.Json:
    written, found = (asked.cached, 0) if asked.is_first else (0, asked.cached)
    return {
        "input_tokens": max(asked.tokens - asked.cached, 1),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": found,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
        "service_tier": "standard",
    }


def _build_message(asked: reply.NeutralRequest, content: list[reply.Json], stop: str | None, output: int) -> reply.Json:
    return {
        "id": asked.make_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": content,
        **_build_stop(stop),
        "usage": _build_usage(asked, output),
    }


def _build_stop(stop: str | None) -> reply.Json:
    details = {"type": "refusal", "category": None, "explanation": None} if stop == "refusal" else None
    return {"stop_reason": stop, "stop_sequence": None, "stop_details": details}


def build_answer(asked: reply.NeutralRequest, made: list[reply.ReplyBlock], stop: str) -> reply.Json:
    length = sum(len(block.text) for block in made)
    return _build_message(asked, [_build_block(asked, block) for block in made], _STOPS.get(stop, stop), reply.count_tokens(length))


def _build_block(asked: reply.NeutralRequest, block: reply.ReplyBlock) -> reply.Json:
    if block.kind is reply.TextPiece:
        return {"type": "text", "text": block.text}
    if block.kind is reply.ThoughtPiece:
        return {"type": "thinking", "thinking": block.text, "signature": str(Signature(block.text))}
    return {"type": "tool_use", "id": asked.make_id("toolu_", block.number), "name": block.name, "input": _parse_input(block.text)}


def _parse_input(arguments: str) -> Any:
    """Without a stream the arguments are JSON; broken ones are a text in it."""
    try:
        return msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return arguments


def _encode_event(kind: str, fields: reply.Json) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), reply.dumps({"type": kind, **fields}))


class MessagesEvents(reply.Encoder):
    """message_start, { content_block_start, [ping], content_block_delta*, content_block_stop }*, message_delta, message_stop."""

    def __init__(self, asked: reply.NeutralRequest, stop: str) -> None:
        super().__init__(asked, stop)
        self._index = -1
        self._signature: Signature | None = None
        self._last: tuple[reply.Content | None, bytes] = (None, b"")

    def begin(self) -> Iterator[bytes]:
        yield _encode_event("message_start", {"message": _build_message(self.asked, [], None, 1)})

    def open(self, piece: reply.Content) -> Iterator[bytes]:
        self._index += 1
        self._last = (None, b"")
        block: reply.Json = {"type": "text", "text": ""}
        if isinstance(piece, reply.ThoughtPiece):
            self._signature = Signature()
            block = {"type": "thinking", "thinking": "", "signature": ""}
        elif isinstance(piece, reply.CallPiece):
            block = {"type": "tool_use", "id": self.asked.make_id("toolu_", piece.number), "name": piece.name, "input": {}}
        yield _encode_event("content_block_start", {"index": self._index, "content_block": block})
        if self._index == 0:
            yield _PING
        if isinstance(piece, reply.CallPiece):
            yield self._encode_delta_event("input_json_delta", "partial_json", "")
            for start in range(0, len(piece.text), _ARGUMENTS):
                yield self._encode_delta_event("input_json_delta", "partial_json", piece.text[start : start + _ARGUMENTS])

    def encode_delta(self, piece: reply.Content) -> bytes:
        if self._signature is not None:
            self._signature.add(piece.text)
        if piece is not self._last[0]:  # what repeats is encoded once
            words = ("text_delta", "text") if isinstance(piece, reply.TextPiece) else ("thinking_delta", "thinking")
            self._last = (piece, self._encode_delta_event(*words, piece.text))
        return self._last[1]

    def _encode_delta_event(self, kind: str, field: str, text: str) -> bytes:
        return _encode_event("content_block_delta", {"index": self._index, "delta": {"type": kind, field: text}})

    def close(self) -> Iterator[bytes]:
        if self._signature is not None:
            yield self._encode_delta_event("signature_delta", "signature", str(self._signature))
            self._signature = None
        yield _encode_event("content_block_stop", {"index": self._index})

    def end(self) -> Iterator[bytes]:
        if self._index < 0:
            yield _PING
        delta = _build_stop(_STOPS.get(self.stop, self.stop))
        usage = _build_usage(self.asked, reply.count_tokens(self.length))
        told = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
        yield _encode_event("message_delta", {"delta": delta, "usage": {name: usage[name] for name in told}})
        yield _encode_event("message_stop", {})


def build_error(status: int, text: str, request_id: str, _why: reply.ApiRefusal | None = None) -> reply.Json:
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": text or kind}, "request_id": request_id}


def encode_error(status: int, text: str, _sent: int) -> bytes:
    kind = _ERRORS.get(status, "api_error")
    return _encode_event("error", {"error": {"type": kind, "message": text or kind}})


def build_count(body: reply.Json, raw: bytes) -> reply.Json:
    check(body, counting=True)
    return {"input_tokens": reply.count_tokens(len(raw))}


def list_models(ids: tuple[str, ...]) -> reply.Json:
    data = [{"type": "model", "id": id, "display_name": id, "created_at": "2026-01-01T00:00:00Z"} for id in ids]
    return {"data": data, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}


API = reply.Api(
    name="anthropic",
    read=read,
    encoder=MessagesEvents,
    whole=build_answer,
    error=build_error,
    broken=encode_error,
    malformed=b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":\n\n',
    request_id="request-id",
)
