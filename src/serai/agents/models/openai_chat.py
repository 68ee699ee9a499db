"""OpenAI's Chat Completions API, through the official SDK: what most other servers speak too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from serai.agents.models.api_mapping import (
    AnswerBuilder,
    AnswerPart,
    Json,
    ToolNameMap,
    answer_tokens,
    data_url,
    in_order,
    kept_blocks,
    object_of,
    safe_id,
    schema_of,
    text_of,
)
from serai.agents.models.api_provider import ApiProvider
from serai.agents.models.endpoint_errors import EndpointErrors
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


class OpenAIChat(ApiProvider):
    sdk = "openai"
    path = "/chat/completions"

    def folding(self, request: ModelRequest, failures: EndpointErrors) -> OpenAIChatDecoder:
        return OpenAIChatDecoder(AnswerBuilder(request, failures))

    def body(self, request: ModelRequest) -> Json:
        return body_of(request, theirs="api.openai.com" in self.endpoint.base_url)

    def client(self, sdk: Any, options: Json) -> Any:
        return client_of(sdk, options)


def client_of(sdk: Any, options: Json) -> Any:
    """The SDK's client for both its APIs. The process's organisation and project are nobody else's business."""
    client = sdk.AsyncOpenAI(**options)
    client.organization = client.project = client.admin_api_key = client.webhook_secret = None
    return client


def body_of(request: ModelRequest, *, theirs: bool = False) -> Json:
    """The request. `theirs`: it goes to OpenAI itself, which has a new name for the length of an answer."""
    names = ToolNameMap(request.tools)
    body: Json = {
        "model": request.model.id,
        "messages": list(_messages(request, names)),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.options.max_tokens:
        body["max_completion_tokens" if theirs else "max_tokens"] = answer_tokens(request)
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": names.out(tool.name), "description": tool.description, "parameters": schema_of(tool)},
            }
            for tool in request.tools
        ]
    if request.model.reasoning and request.options.thinking != "off":
        body["reasoning_effort"] = request.options.thinking
    elif request.options.temperature is not None:  # who thinks chooses no temperature
        body["temperature"] = request.options.temperature
    return body


def _messages(request: ModelRequest, names: ToolNameMap) -> Iterator[Json]:
    """The conversation. A tool's images follow its block of results in a message of the user's: there they are taken."""
    if request.system.strip():
        yield {"role": "system", "content": request.system}
    images: list[Json] = []
    for message in request.messages:
        if message.role == "tool":
            yield {"role": "tool", "tool_call_id": safe_id(message.call_id), "content": result_text(message)}
            images.extend(_parts(message, images_only=True))
            continue
        if images:
            yield {"role": "user", "content": [{"type": "text", "text": "The images of the tools:"}, *images]}
            images = []
        if message.role == "assistant":
            if answer := _answer(message, request, names):
                yield answer
        elif parts := list(_parts(message)):
            plain = len(parts) == 1 and parts[0]["type"] == "text"
            yield {"role": "user", "content": parts[0]["text"] if plain else parts}
    if images:
        yield {"role": "user", "content": [{"type": "text", "text": "The images of the tools:"}, *images]}


def _answer(message: ModelMessage, request: ModelRequest, names: ToolNameMap) -> Json:
    calls: list[Json] = []
    again: Json = {}
    for part in in_order(message, request.model):
        if isinstance(part, dict):
            again = part  # what the next call had besides, such as Google's signatures
        elif isinstance(part, ToolCall):
            arguments = msgspec.json.encode(object_of(part)).decode()
            function = {"name": names.out(part.name), "arguments": arguments}
            calls.append({"id": safe_id(part.id), "type": "function", "function": function, **again})
            again = {}
    text = text_of(message.content)
    if not calls and not text.strip():
        return {}
    return {"role": "assistant", "content": text or None} | ({"tool_calls": calls} if calls else {})


def _parts(message: ModelMessage, *, images_only: bool = False) -> Iterator[Json]:
    for block in kept_blocks(message.content):
        if isinstance(block, ImageBlock):
            yield {"type": "image_url", "image_url": {"url": data_url(block)}}
        elif not images_only:
            yield {"type": "text", "text": block.text}


def result_text(message: ModelMessage) -> str:
    """A tool's result as a text. The API has no mark for an error, so the text says it."""
    text = text_of(message.content)
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

    def __init__(self, answer: AnswerBuilder) -> None:
        self.answer = answer
        self._calls: dict[int, AnswerPart] = {}

    def take(self, data: bytes) -> None:
        if data.startswith(_DONE):
            self.answer.complete = True
            return
        event = _decode(data)
        if event.error:
            raise self.answer.failures.in_stream(event.error)
        if event.usage is not None:
            self.answer.usage = _used(event.usage)
        for choice in event.choices or ():
            if choice.delta is not None:
                self._delta(choice.delta)
            if choice.finish_reason:
                self.answer.stop = _STOPS.get(choice.finish_reason, "end")
                self.answer.reason = choice.finish_reason if self.answer.stop == "error" else ""
                self.answer.finished = True

    def _delta(self, delta: _Delta) -> None:
        answer = self.answer
        if thought := delta.reasoning_content or delta.reasoning:
            answer.add(answer.latest("thinking"), thought)
        if text := delta.content or delta.refusal:
            answer.add(answer.latest("text"), text)
        for call in delta.tool_calls or ():
            part = self._part(call)
            if call.extra_content is not None:
                answer.grow(len(msgspec.json.encode(call.extra_content)))
                part.kept = {"extra_content": call.extra_content}
            if call.function and call.function.arguments:
                answer.add(part, call.function.arguments)

    def _part(self, call: _Call) -> AnswerPart:
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


def _used(usage: _Usage) -> Usage:
    """Their input contains what came from the cache and what went into it; ours does not."""
    details = usage.prompt_tokens_details or _Details()
    read, written = details.cached_tokens or 0, details.cache_write_tokens or 0
    return Usage(max((usage.prompt_tokens or 0) - read - written, 0), usage.completion_tokens or 0, read, written)
