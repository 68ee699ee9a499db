"""OpenAI's Responses API, through the official SDK. Nothing is stored there: the conversation is ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from serai.agents.models.api_provider import (
    AnswerBuilder,
    AnswerPart,
    ApiProvider,
    Json,
    ToolNameMap,
    What,
    build_schema,
    clean_id,
    get_max_tokens,
    iter_parts,
    iter_sendable_blocks,
    to_data_url,
    to_object,
)
from serai.agents.models.http_client import EndpointErrors
from serai.agents.models.openai_chat import create_client, format_result
from serai.model.events import Stop, Usage
from serai.model.provider import ModelMessage, ModelRequest
from serai.model.tools import ImageBlock, ToolCall

_INCOMPLETE: dict[str, Stop] = {"max_output_tokens": "length", "content_filter": "error"}
_DONE = b"[DONE]"


class OpenAIResponses(ApiProvider):
    sdk = "openai"
    path = "/responses"

    def make_decoder(self, request: ModelRequest, failures: EndpointErrors) -> OpenAIResponsesDecoder:
        return OpenAIResponsesDecoder(AnswerBuilder(request, failures))

    def build_body(self, request: ModelRequest) -> Json:
        return encode_request(request)

    def make_client(self, sdk: Any, options: Json) -> Any:
        return create_client(sdk, options)


def encode_request(request: ModelRequest) -> Json:
    names = ToolNameMap(request.tools)
    body: Json = {"model": request.model.id, "input": list(_iter_items(request, names)), "stream": True, "store": False}
    if request.system.strip():
        body["instructions"] = request.system
    if request.options.max_tokens:
        body["max_output_tokens"] = get_max_tokens(request)
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": names.encode(tool.name),
                "description": tool.description,
                "parameters": build_schema(tool),
                "strict": False,
            }
            for tool in request.tools
        ]
    if request.model.reasoning:
        body["include"] = ["reasoning.encrypted_content"]  # what is not stored there must come back from here
        if request.options.thinking != "off":
            body["reasoning"] = {"effort": request.options.thinking, "summary": "auto"}
    elif request.options.temperature is not None:  # who thinks chooses no temperature
        body["temperature"] = request.options.temperature
    return body


def _iter_items(request: ModelRequest, names: ToolNameMap) -> Iterator[Json]:
    for message in request.messages:
        if message.role == "user":
            if parts := list(_iter_parts(message)):
                yield {"role": "user", "content": parts}
        elif message.role == "tool":
            yield {"type": "function_call_output", "call_id": clean_id(message.call_id), "output": _encode_output(message)}
        else:
            yield from _iter_answer(message, request, names)


def _iter_answer(message: ModelMessage, request: ModelRequest, names: ToolNameMap) -> Iterator[Json]:
    for part in iter_parts(message, request.model, same_model=True):  # no other model can read what it has thought
        if isinstance(part, ToolCall):
            arguments = msgspec.json.encode(to_object(part)).decode()
            yield {"type": "function_call", "call_id": clean_id(part.id), "name": names.encode(part.name), "arguments": arguments}
        elif isinstance(part, dict):
            yield part
        elif part.text.strip():
            yield {"role": "assistant", "content": part.text}


def _iter_parts(message: ModelMessage) -> Iterator[Json]:
    for block in iter_sendable_blocks(message.content):
        if isinstance(block, ImageBlock):
            yield {"type": "input_image", "image_url": to_data_url(block), "detail": "auto"}
        else:
            yield {"type": "input_text", "text": block.text}


def _encode_output(message: ModelMessage) -> str | list[Json]:
    images = [part for part in _iter_parts(message) if part["type"] == "input_image"]
    text = format_result(message)
    return [{"type": "input_text", "text": text}, *images] if images else text


class _Item(msgspec.Struct):
    type: str = ""
    content: Any = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    usage: _Usage | None = None
    error: Any = None
    incomplete_details: _Incomplete | None = None


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int = 0
    delta: Any = None
    item: msgspec.Raw = msgspec.Raw()  # read as what the event says it is
    response: msgspec.Raw = msgspec.Raw()
    code: str | None = None
    message: str | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode
_item = msgspec.json.Decoder(_Item).decode
_response = msgspec.json.Decoder(_Response).decode


class OpenAIResponsesDecoder:
    """Reads the events `response.created` … `response.completed`."""

    def __init__(self, answer: AnswerBuilder) -> None:
        self.answer = answer
        self._parts: dict[int, AnswerPart] = {}

    def feed(self, data: bytes) -> None:
        if data.startswith(_DONE):
            return
        event = _decode(data)
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                self._add_delta(event, "text")
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._add_delta(event, "thinking")
            case "response.function_call_arguments.delta":
                self._add_delta(event, "tool_input")
            case "response.reasoning_summary_part.added":
                part = self._parts.get(event.output_index)
                if part is not None and part.pieces:
                    self.answer.add(part, "\n")
            case "response.output_item.added":
                self._begin(event.output_index, _item(event.item))
            case "response.output_item.done":
                self._finish_item(event.output_index, event.item)
            case "response.completed" | "response.incomplete":
                self._end(_response(event.response))
            case "response.failed":
                raise self.answer.failures.build_event_error(_response(event.response).error)
            case "error":
                raise self.answer.failures.build_event_error(event.error or {"message": event.message, "code": event.code})
            case _ if event.error:
                raise self.answer.failures.build_event_error(event.error)

    def _add_delta(self, event: _Event, what: What) -> None:
        part = self._parts.get(event.output_index)
        if part is None or part.what != what:
            self._parts[event.output_index] = part = self.answer.begin(what)
        if not isinstance(event.delta, str):
            raise ValueError("a delta that is no text")  # noqa: TRY004 (an event that cannot be understood)
        self.answer.add(part, event.delta)

    def _begin(self, index: int, item: _Item) -> None:
        if item.type == "function_call":
            self._parts[index] = self.answer.begin("tool_input", id=item.call_id or "", name=item.name or "")
        elif item.type == "reasoning":
            self._parts[index] = self.answer.begin("thinking")

    def _finish_item(self, index: int, raw: msgspec.Raw) -> None:
        """A whole item: what was not streamed is taken from it, and a thought as it is to be sent again."""
        item = _item(raw)
        if index not in self._parts:
            self._begin(index, item)
        part = self._parts.get(index)
        match item.type:
            case "function_call" if part is not None and not part.pieces:
                self.answer.add(part, item.arguments or "")
            case "reasoning" if part is not None:
                self.answer.grow(len(bytes(raw)))
                part.kept = _to_resend(msgspec.json.decode(raw))
            case "message" if part is None:
                part = self._parts[index] = self.answer.begin("text")
                self.answer.add(part, _join_content(item.content))
            case "function_call" | "reasoning" | "message":
                pass
            case kind:
                self.answer.grow(len(bytes(raw)))
                self.answer.begin("other", name=kind, kept=msgspec.json.decode(raw))

    def _end(self, response: _Response) -> None:
        if response.usage is not None:
            self.answer.usage = _to_usage(response.usage)
        if response.incomplete_details is not None and response.incomplete_details.reason:
            self.answer.stop = _INCOMPLETE.get(response.incomplete_details.reason, "length")
            self.answer.reason = response.incomplete_details.reason if self.answer.stop == "error" else ""
        self.answer.complete = True


def _to_resend(item: Json) -> Json | None:
    """A thought as it may be sent again: without its status, which is the server's; only if it can be read there again."""
    if not item.get("encrypted_content"):
        return None
    return {name: item[name] for name in ("type", "id", "summary", "content", "encrypted_content") if item.get(name) is not None}


def _join_content(content: Any) -> str:
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def _to_usage(usage: _Usage) -> Usage:
    """Their input contains what came from the cache and what went into it; ours does not."""
    details = usage.input_tokens_details or _Details()
    read, written = details.cached_tokens or 0, details.cache_write_tokens or 0
    return Usage(max((usage.input_tokens or 0) - read - written, 0), usage.output_tokens or 0, read, written)
