"""OpenAI's Chat Completions API, through the official SDK: what most other servers speak too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from serai.agents.models import api_provider
from serai.agents.models.http_client import EndpointErrors
from serai.model.events import Stop, Usage
from serai.model.provider import ModelMessage, ModelRequest
from serai.model.tools import ImageBlock, ToolCall

_STOPS: dict[str, Stop] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "error",
}
_DONE = b"[DONE]"


class OpenAIChat(api_provider.ApiProvider):
    sdk = "openai"
    path = "/chat/completions"

    def make_decoder(self, request: ModelRequest, failures: EndpointErrors) -> OpenAIChatDecoder:
        return OpenAIChatDecoder(api_provider.AnswerBuilder(request, failures))

    def build_body(self, request: ModelRequest) -> api_provider.Json:
        return encode_request(request, theirs="api.openai.com" in self.endpoint.base_url)

    def make_client(self, sdk: Any, options: api_provider.Json) -> Any:
        return create_client(sdk, options)


def create_client(sdk: Any, options: api_provider.Json) -> Any:
    """The SDK's client for both its APIs. The process's organisation and project are nobody else's business."""
    client = sdk.AsyncOpenAI(**options)
    client.organization = client.project = client.admin_api_key = client.webhook_secret = None
    return client


def encode_request(request: ModelRequest, *, theirs: bool = False) -> api_provider.Json:
    """The request. `theirs`: it goes to OpenAI itself, which has a new name for the length of an answer."""
    names = api_provider.ToolNameMap(request.tools)
    body: api_provider.Json = {
        "model": request.model.id,
        "messages": list(_iter_messages(request, names)),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.options.max_tokens:
        body["max_completion_tokens" if theirs else "max_tokens"] = api_provider.get_max_tokens(request)
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": names.encode(tool.name),
                    "description": tool.description,
                    "parameters": api_provider.build_schema(tool),
                },
            }
            for tool in request.tools
        ]
    if request.model.reasoning and request.options.thinking != "off":
        body["reasoning_effort"] = request.options.thinking
    elif request.options.temperature is not None:  # who thinks chooses no temperature
        body["temperature"] = request.options.temperature
    return body


def _iter_messages(request: ModelRequest, names: api_provider.ToolNameMap) -> Iterator[api_provider.Json]:
    """The conversation. A tool's images follow its block of results in a message of the user's: there they are taken."""
    if request.system.strip():
        yield {"role": "system", "content": request.system}
    images: list[api_provider.Json] = []
    for message in request.messages:
        if message.role == "tool":
            yield {"role": "tool", "tool_call_id": api_provider.clean_id(message.call_id), "content": format_result(message)}
            images.extend(_iter_parts(message, images_only=True))
            continue
        if images:
            yield {"role": "user", "content": [{"type": "text", "text": "The images of the tools:"}, *images]}
            images = []
        if message.role == "assistant":
            if answer := _encode_answer(message, request, names):
                yield answer
        elif parts := list(_iter_parts(message)):
            plain = len(parts) == 1 and parts[0]["type"] == "text"
            yield {"role": "user", "content": parts[0]["text"] if plain else parts}
    if images:
        yield {"role": "user", "content": [{"type": "text", "text": "The images of the tools:"}, *images]}


def _encode_answer(message: ModelMessage, request: ModelRequest, names: api_provider.ToolNameMap) -> api_provider.Json:
    calls: list[api_provider.Json] = []
    again: api_provider.Json = {}
    for part in api_provider.iter_parts(message, request.model):
        if isinstance(part, dict):
            again = part  # what the next call had besides, such as Google's signatures
        elif isinstance(part, ToolCall):
            arguments = msgspec.json.encode(api_provider.to_object(part)).decode()
            function = {"name": names.encode(part.name), "arguments": arguments}
            calls.append({"id": api_provider.clean_id(part.id), "type": "function", "function": function, **again})
            again = {}
    text = api_provider.extract_text(message.content)
    if not calls and not text.strip():
        return {}
    return {"role": "assistant", "content": text or None} | ({"tool_calls": calls} if calls else {})


def _iter_parts(message: ModelMessage, *, images_only: bool = False) -> Iterator[api_provider.Json]:
    for block in api_provider.iter_sendable_blocks(message.content):
        if isinstance(block, ImageBlock):
            yield {"type": "image_url", "image_url": {"url": api_provider.to_data_url(block)}}
        elif not images_only:
            yield {"type": "text", "text": block.text}


def format_result(message: ModelMessage) -> str:
    """A tool's result as a text. The API has no mark for an error, so the text says it."""
    text = api_provider.extract_text(message.content)
    if message.is_error and not text.lower().startswith(("[error", "error")):
        text = f"error: {text}"
    return text or ("(an image)" if any(isinstance(block, ImageBlock) for block in message.content) else "(no output)")


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: Any = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class OpenAIChatDecoder:
    """Reads the chunks up to `[DONE]`. A server that forgets it is complete with a reason to finish and the end of its stream."""

    def __init__(self, answer: api_provider.AnswerBuilder) -> None:
        self.answer = answer
        self._calls: dict[int, api_provider.AnswerPart] = {}

    def feed(self, data: bytes) -> None:
        if data.startswith(_DONE):
            self.answer.complete = True
            return
        event = _decode(data)
        if event.error:
            raise self.answer.failures.build_event_error(event.error)
        if event.usage is not None:
            self.answer.usage = _to_usage(event.usage)
        for choice in event.choices or ():
            if choice.delta is not None:
                self._add_delta(choice.delta)
            if choice.finish_reason:
                self.answer.stop = _STOPS.get(choice.finish_reason, "end")
                self.answer.reason = choice.finish_reason if self.answer.stop == "error" else ""
                self.answer.finished = True

    def _add_delta(self, delta: _Delta) -> None:
        answer = self.answer
        if thought := delta.reasoning_content or delta.reasoning:
            answer.add(answer.get_or_begin("thinking"), thought)
        if text := delta.content or delta.refusal:
            answer.add(answer.get_or_begin("text"), text)
        for call in delta.tool_calls or ():
            part = self._get_part(call)
            if call.extra_content is not None:
                answer.grow(len(msgspec.json.encode(call.extra_content)))
                part.kept = {"extra_content": call.extra_content}
            if call.function and call.function.arguments:
                answer.add(part, call.function.arguments)

    def _get_part(self, call: _Call) -> api_provider.AnswerPart:
        """The call that a piece belongs to: by its index; servers have been seen to give all of them the same, or none."""
        name = (call.function.name if call.function else None) or ""
        index = call.index if call.index is not None else max(len(self._calls) - (not call.id), 0)
        part = self._calls.get(index)
        if part is not None and call.id and part.id and call.id != part.id:
            part = next((one for one in self._calls.values() if one.id == call.id), None)
            index = len(self._calls)
        if part is None:
            self._calls[index] = part = self.answer.begin("tool_input", id=call.id or "", name=name)
        elif name and not part.name:
            part.name = name
        return part


def _to_usage(usage: _Usage) -> Usage:
    """Their input contains what came from the cache and what went into it; ours does not."""
    details = usage.prompt_tokens_details or _Details()
    read, written = details.cached_tokens or 0, details.cache_write_tokens or 0
    return Usage(max((usage.prompt_tokens or 0) - read - written, 0), usage.completion_tokens or 0, read, written)
