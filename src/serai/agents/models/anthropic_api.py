"""Anthropic's Messages API, through the official SDK."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from serai.agents.models.api_provider import (
    AnswerBuilder,
    AnswerPart,
    ApiProvider,
    Json,
    ToolNameMap,
    build_schema,
    clean_id,
    get_max_tokens,
    iter_parts,
    iter_sendable_blocks,
    to_object,
)
from serai.agents.models.http_client import EndpointErrors
from serai.model.events import Stop, Usage
from serai.model.provider import ModelMessage, ModelRequest
from serai.model.tools import Block, ImageBlock, ToolCall

_CACHED: Json = {"type": "ephemeral"}
_ANSWER = 8192  # tokens, when the catalogue does not say: the API wants a number
# Models that take a budget of tokens for thinking; later ones decide themselves and take an effort.
_BUDGETED = re.compile(r"claude-(3-7|(opus|sonnet|haiku)-4(-[015])?(-\d{8})?$)")
_BUDGETS = {"low": 2048, "medium": 8192, "high": 24576}
_LEAST_BUDGET = 1024
_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_use",
    "refusal": "error",
}


class Anthropic(ApiProvider):
    sdk = "anthropic"
    path = "/v1/messages"

    def make_decoder(self, request: ModelRequest, failures: EndpointErrors) -> AnthropicDecoder:
        return AnthropicDecoder(AnswerBuilder(request, failures))

    def build_body(self, request: ModelRequest) -> Json:
        return encode_request(request)

    def make_client(self, sdk: Any, options: Json) -> Any:
        client = sdk.AsyncAnthropic(**options, open_telemetry={"traces": False, "propagation": False})
        client.webhook_key = None
        return client


def encode_request(request: ModelRequest) -> Json:
    """The request, with marks where its beginning may be kept for the next one: tools, system prompt, history."""
    names = ToolNameMap(request.tools)
    body: Json = {
        "model": request.model.id,
        "max_tokens": get_max_tokens(request) or _ANSWER,
        "messages": _mark_cached(list(_iter_messages(request, names))),
        "stream": True,
    }
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _CACHED}]
    if request.tools:
        body["tools"] = [
            {"name": names.encode(tool.name), "description": tool.description, "input_schema": build_schema(tool)}
            for tool in request.tools
        ]
        body["tools"][-1]["cache_control"] = _CACHED
    thinking = _encode_thinking(request, body["max_tokens"])
    if request.options.temperature is not None and not thinking:  # who thinks chooses no temperature
        body["temperature"] = request.options.temperature
    return body | thinking


def _encode_thinking(request: ModelRequest, max_tokens: int) -> Json:
    level = request.options.thinking
    if level == "off" or not request.model.reasoning:
        return {}
    if not _BUDGETED.match(request.model.id):
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": level}}
    budget = min(_BUDGETS[level], max_tokens - _LEAST_BUDGET)  # part of max_tokens: something must be left to answer with
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= _LEAST_BUDGET else {}


def _iter_messages(request: ModelRequest, names: ToolNameMap) -> Iterator[Json]:
    """The conversation; results and texts that follow each other are one message, the results first, as the API wants it."""
    results: list[Json] = []
    said: list[Json] = []
    for message in request.messages:
        if message.role == "tool":
            results.append(_encode_result(message))
        elif message.role == "user":
            said.extend(_iter_blocks(message.content))
        else:
            if results or said:
                yield {"role": "user", "content": [*results, *said]}
                results, said = [], []
            if parts := list(_iter_answer(message, request, names)):
                yield {"role": "assistant", "content": parts}
    if results or said:
        yield {"role": "user", "content": [*results, *said]}


def _iter_answer(message: ModelMessage, request: ModelRequest, names: ToolNameMap) -> Iterator[Json]:
    for part in iter_parts(message, request.model):
        if isinstance(part, ToolCall):
            yield {"type": "tool_use", "id": clean_id(part.id), "name": names.encode(part.name), "input": to_object(part)}
        elif isinstance(part, dict):
            yield part
        elif part.text.strip():
            yield {"type": "text", "text": part.text}


def _encode_result(message: ModelMessage) -> Json:
    result: Json = {"type": "tool_result", "tool_use_id": clean_id(message.call_id), "content": list(_iter_blocks(message.content))}
    return result | {"is_error": True} if message.is_error else result


def _iter_blocks(content: Iterable[Block]) -> Iterator[Json]:
    for block in iter_sendable_blocks(content):
        if isinstance(block, ImageBlock):
            data = base64.b64encode(block.data).decode()
            yield {"type": "image", "source": {"type": "base64", "media_type": block.mime or "image/png", "data": data}}
        else:
            yield {"type": "text", "text": block.text}


def _mark_cached(messages: list[Json]) -> list[Json]:
    """The newest two messages of the user's side end what may be kept: this request writes one, and reads the other."""
    users = [message for message in messages if message["role"] == "user"]
    for message in users[-2:]:
        message["content"][-1] = {**message["content"][-1], "cache_control": _CACHED}
    return messages


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Message(msgspec.Struct):
    usage: _Usage | None = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str
    index: int = 0
    delta: _Delta | None = None
    content_block: Json | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class AnthropicDecoder:
    """Reads the events `message_start` … `message_stop`."""

    def __init__(self, answer: AnswerBuilder) -> None:
        self.answer = answer
        self._parts: dict[int, AnswerPart] = {}
        self._signatures: dict[int, list[str]] = {}

    def feed(self, data: bytes) -> None:
        event = _decode(data)
        match event.type:
            case "content_block_delta":
                self._add_delta(event)
            case "content_block_start":
                self.answer.grow(len(data))  # it may hold much that is never a piece of text
                self._start(event.index, event.content_block or {})
            case "content_block_stop":
                self._add_signature(event.index)
            case "message_start" | "message_delta":
                self._update_answer(event)
            case "message_stop":
                self.answer.complete = True
            case "error":
                raise self.answer.failures.build_event_error(event.error)
            case _:  # ping, and what is not known yet
                pass

    def _start(self, index: int, block: Json) -> None:
        answer = self.answer
        match block.get("type"):
            case "text":
                self._parts[index] = answer.begin("text")
                answer.add(self._parts[index], str(block.get("text") or ""))
            case "thinking":
                self._parts[index] = answer.begin("thinking")
            case "redacted_thinking":
                self._parts[index] = answer.begin("thinking", kept=block)
            case "tool_use":
                self._parts[index] = answer.begin("tool_input", id=str(block.get("id", "")), name=str(block.get("name", "")))
                if given := block.get("input"):  # all at once; otherwise it is empty and the pieces follow
                    answer.add(self._parts[index], msgspec.json.encode(given).decode())
            case kind:
                answer.begin("other", name=str(kind), kept=block)

    def _add_delta(self, event: _Event) -> None:
        part, delta = self._parts.get(event.index), event.delta
        if part is None or delta is None:
            return
        match delta.type:
            case "text_delta":
                self.answer.add(part, delta.text)
            case "input_json_delta":
                self.answer.add(part, delta.partial_json)
            case "thinking_delta":
                self.answer.add(part, delta.thinking)
            case "signature_delta":
                self.answer.grow(len(delta.signature))
                self._signatures.setdefault(event.index, []).append(delta.signature)

    def _add_signature(self, index: int) -> None:
        """Thinking is sent again with its signature; without one the API would not take it back."""
        if signature := self._signatures.pop(index, None):
            part = self._parts[index]
            part.kept = {"type": "thinking", "thinking": part.text, "signature": "".join(signature)}

    def _update_answer(self, event: _Event) -> None:
        used = event.usage or (event.message.usage if event.message else None)
        if used is not None:  # later ones are cumulative; what they leave out stands as it was
            now = self.answer.usage
            self.answer.usage = Usage(
                now.input if used.input_tokens is None else used.input_tokens,
                now.output if used.output_tokens is None else used.output_tokens,
                now.cache_read if used.cache_read_input_tokens is None else used.cache_read_input_tokens,
                now.cache_write if used.cache_creation_input_tokens is None else used.cache_creation_input_tokens,
            )
        if event.delta is not None and event.delta.stop_reason:
            self.answer.stop = _STOPS.get(event.delta.stop_reason, "end")
            self.answer.reason = event.delta.stop_reason if self.answer.stop == "error" else ""
