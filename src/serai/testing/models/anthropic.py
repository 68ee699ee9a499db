"""The Messages API: `POST /v1/messages`, its count of tokens, and the list of its models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from serai.agents.models.model_script import ScriptMessage, is_scripted
from serai.testing.models.answering import (
    Api,
    Asked,
    BadRequest,
    Block,
    Called,
    Content,
    Encoder,
    Json,
    Text,
    Thought,
    dumps,
    tokens,
)
from serai.testing.models.anthropic_checks import Signature, check
from serai.testing.models.checking import objects, text_of

__all__ = ["API", "count", "error", "models"]

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


def read(body: Json, raw: bytes, digest: str) -> Asked:
    check(body)
    return Asked(
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


def _usage(asked: Asked, output: int) -> Json:
    written, found = (asked.cached, 0) if asked.is_first else (0, asked.cached)
    return {
        "input_tokens": max(asked.tokens - asked.cached, 1),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": found,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
        "service_tier": "standard",
    }


def _message(asked: Asked, content: list[Json], stop: str | None, output: int) -> Json:
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


def whole(asked: Asked, made: list[Block], stop: str) -> Json:
    length = sum(len(block.text) for block in made)
    return _message(asked, [_block(asked, block) for block in made], _STOPS.get(stop, stop), tokens(length))


def _block(asked: Asked, block: Block) -> Json:
    if block.kind is Text:
        return {"type": "text", "text": block.text}
    if block.kind is Thought:
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


class Events(Encoder):
    """message_start, { content_block_start, [ping], content_block_delta*, content_block_stop }*, message_delta, message_stop."""

    def __init__(self, asked: Asked, stop: str) -> None:
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
        if isinstance(piece, Thought):
            self._signature = Signature()
            block = {"type": "thinking", "thinking": "", "signature": ""}
        elif isinstance(piece, Called):
            block = {"type": "tool_use", "id": self.asked.id("toolu_", piece.number), "name": piece.name, "input": {}}
        yield _event("content_block_start", {"index": self._index, "content_block": block})
        if self._index == 0:
            yield _PING
        if isinstance(piece, Called):
            yield self._delta("input_json_delta", "partial_json", "")
            for start in range(0, len(piece.text), _ARGUMENTS):
                yield self._delta("input_json_delta", "partial_json", piece.text[start : start + _ARGUMENTS])

    def delta(self, piece: Content) -> bytes:
        if self._signature is not None:
            self._signature.add(piece.text)
        if piece is not self._last[0]:  # what repeats is encoded once
            words = ("text_delta", "text") if isinstance(piece, Text) else ("thinking_delta", "thinking")
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
    encoder=Events,
    whole=whole,
    error=error,
    broken=broken,
    malformed=b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":\n\n',
    request_id="request-id",
)
