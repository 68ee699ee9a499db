"""What the providers over an SDK share: one client, one request, one stream, and its end in every case.

The SDK makes the request, sets its headers and reads its errors. The events are decoded here: its typed ones cost 40 to 200
microseconds each, ours 3 to 8, and its decoder holds a line of any length (measured with `anthropic` 2.8 and `openai` 3.49).

What the model APIs share: the parts of a request (names, ids, schemas, images, arguments, prices) and an answer as it grows. An
`AnswerBuilder` takes pieces, returns chunks, and at last the whole answer. Sans-IO; each API decodes its own events.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, Protocol
from uuid import uuid4

import msgspec

from serai.agents.models.http_client import EndpointErrors, SseDecoder, check_headers, find_secrets, is_compressed, make_http_client
from serai.errors import BadSettings, Closed, ModelFailed, NoModel
from serai.limits import AgentLimits
from serai.model.events import Stop, Usage
from serai.model.provider import Chunk, Completion, Cost, Model, ModelMessage, ModelRequest
from serai.model.tools import Block, ImageBlock, OtherBlock, TextBlock, ToolCall, ToolSpec

if TYPE_CHECKING:
    import httpx2

Json = dict[str, Any]
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_BAD = re.compile(r"[^A-Za-z0-9_-]")
_DEEPEST = 100  # levels of JSON in a call: at some depth not far above, one library can read what another cannot write


class ToolNameMap:
    """Names of tools as every API takes them: letters, digits, `_` and `-`, at most 64. One that is not would fail the request.

    Each stands for one tool alone, also when another is called just what this one would become.
    """

    def __init__(self, tools: Iterable[ToolSpec]) -> None:
        names = sorted({tool.name for tool in tools})
        self._out = {name: name for name in names if _NAME.fullmatch(name)}
        self._back = dict(self._out)
        for name in names:
            if name not in self._out:
                sent = next(made for made in _iter_safe_names(name) if made not in self._back)
                self._out[name], self._back[sent] = sent, name

    def encode(self, name: str) -> str:
        if name in self._out:
            return self._out[name]
        return name if _NAME.fullmatch(name) else next(_iter_safe_names(name))

    def decode(self, name: str) -> str:
        return self._back.get(name, name)


def _iter_safe_names(name: str) -> Iterator[str]:
    """Names that can be sent for one that cannot; the digest keeps `a.b` and `a:b` apart."""
    stem = _BAD.sub("_", name)[:50]
    for number in count():
        yield f"{stem}_{_digest(f'{name} {number}' if number else name, 8)}"


def clean_id(id: str) -> str:
    """The id of a call as every API takes it: another provider's may be too long or have other characters."""
    return id if _ID.fullmatch(id) else f"call_{_digest(id, 24)}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:length]


def build_schema(tool: ToolSpec) -> Json:
    """The schema of its arguments; a deferred tool is offered without (spec piglet 6.6)."""
    return {"type": "object", "properties": {}} if tool.deferred else {**tool.schema, "type": "object"}


def parse_arguments(text: str) -> Any:
    """A model's arguments: an object, or the text itself when it is no such JSON, or is nested too deep to be passed on."""
    if not text.strip():
        return {}
    try:
        arguments = msgspec.json.decode(text, type=Json)
    except (ValueError, RecursionError):
        return text
    return text if is_deep(arguments) else arguments


def is_deep(value: Any) -> bool:
    """It has more levels of objects and lists than we keep and send."""
    level = _list_containers([value])
    for _ in range(_DEEPEST):
        level = [inner for one in level for inner in _list_containers(one.values() if isinstance(one, dict) else one)]
        if not level:
            return False
    return True


def _list_containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list | tuple)]


def to_object(call: ToolCall) -> Json:
    """The arguments of an earlier call as the object that an API insists on, whatever the model once sent."""
    if is_deep(call.arguments):
        return {"arguments": "(nested too deep to be shown)"}
    return call.arguments if isinstance(call.arguments, dict) else {"arguments": call.arguments}


def extract_text(content: Iterable[Block]) -> str:
    return "\n".join(block.text for block in content if isinstance(block, TextBlock))


def to_data_url(image: ImageBlock) -> str:
    return f"data:{image.mime or 'image/png'};base64,{base64.b64encode(image.data).decode()}"


def get_max_tokens(request: ModelRequest) -> int:
    """How many tokens the answer may have; 0 when nobody knows."""
    asked, most = request.options.max_tokens or 0, request.model.max_tokens
    return min(asked, most) if asked and most else asked or most


def iter_parts(message: ModelMessage, model: Model, *, same_model: bool = False) -> Iterator[TextBlock | ToolCall | Json]:
    """The parts of an earlier answer in the order they came: text, calls, and what the provider needs again, as it gave it.

    Another provider's own things are left out: it would not take them. So are they when text or calls are not those that came.
    """
    texts = [block for block in message.content if isinstance(block, TextBlock)]
    native = message.native if isinstance(message.native, dict) else {}
    ours = native.get("api") == model.api and native.get("provider") == model.provider
    order = native.get("order") if ours and (not same_model or native.get("model") == model.id) else None
    if not isinstance(order, list) or (order.count("text"), order.count("call")) != (len(texts), len(message.calls)):
        yield from texts
        yield from message.calls
        return
    said, calls = iter(texts), iter(message.calls)
    for part in order:
        if part == "text":
            yield next(said)
        elif part == "call":
            yield next(calls)
        elif isinstance(part, dict) and not is_deep(part):
            yield part


def iter_sendable_blocks(content: Iterable[Block]) -> Iterator[TextBlock | ImageBlock]:
    """What an API is sent of a person's or a tool's content: no empty text, nothing that has no word for it."""
    for block in content:
        if isinstance(block, OtherBlock) or (isinstance(block, TextBlock) and not block.text.strip()):
            continue
        yield block


def add_price(usage: Usage, cost: Cost) -> Usage:
    """With its price; without one when the catalogue does not know it, which is not the same as free."""
    if cost == Cost():
        return usage
    spent = (
        usage.input * cost.input
        + usage.output * cost.output
        + usage.cache_read * cost.cache_read
        + usage.cache_write * cost.cache_write
    )
    return msgspec.structs.replace(usage, cost_usd=spent / 1e6)


What = Literal["text", "thinking", "tool_input"]
_PART = 64  # of `model_answer` for a part itself: one of a million empty ones must end


class AnswerPart:
    """A part of the answer. `kept` is what the provider wants again of it, `id` and `name` are a call's."""

    __slots__ = ("id", "index", "kept", "name", "pieces", "what")

    def __init__(self, what: What | Literal["other"], index: int, *, id: str = "", name: str = "", kept: Any = None) -> None:
        self.what = what
        self.index = index
        self.id = id
        self.name = name
        self.kept = kept
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class AnswerBuilder:
    """The parts that have come, and how it stands. `complete`: the provider has said that this was all."""

    def __init__(self, request: ModelRequest, failures: EndpointErrors) -> None:
        self.failures = failures
        self.names = ToolNameMap(request.tools)
        self.parts: list[AnswerPart] = []
        self.fresh: list[Chunk] = []  # what nobody has been told yet
        self.complete = False
        self.finished = False  # a reason to stop was given: if no more than the closing word is missing, that was all
        self.stop: Stop = "end"
        self.reason = ""  # the provider's own word for it, where ours does not say enough
        self.usage = Usage()
        self._model = request.model
        self._left = failures.limits.model_answer
        self._calls_left = failures.limits.model_calls

    def begin(self, what: What | Literal["other"], *, id: str = "", name: str = "", kept: Any = None) -> AnswerPart:
        self.grow(len(id) + len(name) + _PART)
        if what == "tool_input":
            self._calls_left -= 1
            if self._calls_left < 0:
                raise self.failures.make_too_many_calls()
        part = AnswerPart(what, len(self.parts), id=id, name=name, kept=kept)
        self.parts.append(part)
        return part

    def add(self, part: AnswerPart, text: str) -> None:
        if not text:
            return
        self.grow(len(text) if text.isascii() else len(text.encode(errors="surrogatepass")))
        part.pieces.append(text)
        assert part.what != "other"
        self.fresh.append(Chunk(text, part.what, part.index))

    def get_or_begin(self, what: What) -> AnswerPart:
        """The part that this text goes on with: the last one, else a new one."""
        return self.parts[-1] if self.parts and self.parts[-1].what == what else self.begin(what)

    def grow(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise self.failures.make_too_long()

    def build(self) -> Completion:
        for part in self.parts:
            if is_deep(part.kept):
                part.kept = None  # nobody could write it down, or send it again
        calls = tuple(self._iter_calls())
        message = ModelMessage(
            "assistant",
            tuple(self._iter_content()),
            calls,
            thinking="\n".join(part.text for part in self.parts if part.what == "thinking" and part.pieces),
            native=self._build_native(),
        )
        # Compatible servers have been seen to call a tool and say that they just stopped.
        stop: Stop = "tool_use" if calls and self.stop == "end" else self.stop
        return Completion(message, stop, add_price(self.usage, self._model.cost))

    def _iter_content(self) -> Iterator[Block]:
        for part in self.parts:
            if part.what == "text" and part.pieces:
                yield TextBlock(part.text)
            elif part.what == "other":
                yield OtherBlock(part.name, part.kept)

    def _iter_calls(self) -> Iterator[ToolCall]:
        """The calls, each with an id of its own: compatible servers have been seen to give none, or one twice."""
        seen: set[str] = set()
        for part in self.parts:
            if part.what == "tool_input":
                id = part.id if part.id and part.id not in seen else f"call_{uuid4().hex[:24]}"
                seen.add(id)
                yield ToolCall(self.names.decode(part.name), parse_arguments(part.text), id)

    def _build_native(self) -> Any:
        """What must be sent again to this provider, between the texts and calls where it stood."""
        own: dict[str, Any] = {"stop": self.reason} if self.reason else {}
        if any(part.kept is not None and part.what != "other" for part in self.parts):
            own |= {"order": list(self._iter_order())}
        return {"api": self._model.api, "provider": self._model.provider, "model": self._model.id, **own} if own else None

    def _iter_order(self) -> Iterator[Any]:
        for part in self.parts:
            if part.what == "other":
                continue
            if part.kept is not None:
                yield part.kept
            if part.what == "tool_input":
                yield "call"
            elif part.what == "text" and part.pieces:
                yield "text"


class StreamDecoder(Protocol):
    """How one API's events become an answer."""

    answer: AnswerBuilder

    def feed(self, data: bytes) -> None:
        """One event; what it says is fresh in the answer.

        Raises `ModelFailed` for an error that it carries, `ValueError` when it cannot be understood.
        """
        ...


_REST = 0.5  # seconds for the end of the stream behind the last event, so that the connection can be used again


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """Where a model is asked, and with what. `variable` names where the key comes from; the key itself is never shown.

    `base_url` has no password in it (`split_address`), and `headers` can be sent (`check_headers`).
    """

    model: Model = field(repr=False)  # its headers are as secret
    base_url: str
    limits: AgentLimits
    variable: str = ""
    local: bool = False  # on this machine: no key is needed and no proxy is asked
    key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)  # where proxies and certificates are looked for

    def make_errors(self, model: Model, headers: Mapping[str, str]) -> EndpointErrors:
        secrets = {*find_secrets(self.key, self.headers), *find_secrets("", headers)}
        return EndpointErrors(model.key, self.limits, self.variable, tuple(sorted(secrets, key=len, reverse=True)))


class ApiProvider(ABC):
    """A `ModelProvider` over one endpoint. The SDK is imported and the client made when the first answer is wanted."""

    sdk: str
    path: str

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self.endpoint = endpoint
        self._client: Any = None
        self._closed = False

    async def models(self) -> Sequence[Model]:
        return (self.endpoint.model,)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Completion, None]:
        """Chunks, then one completion. Whatever ends it, also the consumer's leaving, gives the connection back or closes it."""
        headers = _merge_headers(request)
        failures = self.endpoint.make_errors(request.model, headers)
        decoder = self.make_decoder(request, failures)
        caught: Exception
        try:
            response = await self._send(request, headers)
            try:
                if is_compressed(response):
                    raise failures.make_compressed()
                async with aclosing(_iter_chunks(response, decoder, self.endpoint.limits)) as chunks:
                    async for chunk in chunks:
                        yield chunk
            finally:
                await response.aclose()
            yield decoder.answer.build()
            return
        except (ModelFailed, BadSettings, Closed, NoModel):
            raise
        except Exception as error:
            caught = error
        # Out here, so that the SDK's error, whose request has the key, is not part of ours, not even when this fails.
        failure = failures.translate_exception(caught)
        del caught
        raise failure

    async def close(self) -> None:
        """Close the client and its connections. Any number of times."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @abstractmethod
    def make_decoder(self, request: ModelRequest, failures: EndpointErrors) -> StreamDecoder:
        """How the events of this API are read."""

    @abstractmethod
    def build_body(self, request: ModelRequest) -> Json:
        """The request in the words of this API."""

    @abstractmethod
    def make_client(self, sdk: Any, options: Json) -> Any:
        """The SDK's own client, without what it has read from the process's environment."""

    async def _send(self, request: ModelRequest, headers: Mapping[str, str]) -> httpx2.Response:
        body = self.build_body(request)
        client = await self._get_client()
        import httpx2  # the SDKs'

        response: httpx2.Response = await client.post(
            self.path,
            cast_to=httpx2.Response,
            body=body,
            stream=True,
            options={"headers": {"Accept": "text/event-stream", **headers}},
        )
        return response

    async def _get_client(self) -> Any:
        if self._closed:
            raise Closed("the provider is closed", who=self.endpoint.model.key)
        if self._client is None:
            if self.sdk not in sys.modules:
                await asyncio.to_thread(_import_sdk, self.sdk)  # it takes a second, in which the loop has other things to do
                return await self._get_client()  # somebody may have come in between
            client = self.make_client(_import_sdk(self.sdk), self._build_options())
            # Both SDKs add what `…_CUSTOM_HEADERS` of the process says, for whatever server: there may be tokens in it.
            client._custom_headers.clear()  # there is no other way, and without this attribute nothing is sent at all
            client._custom_headers.update(self.endpoint.headers)
            self._client = client
        return self._client

    def _build_options(self) -> Json:
        import httpx2

        endpoint, limits = self.endpoint, self.endpoint.limits
        return {
            "api_key": endpoint.key or "none",
            "base_url": endpoint.base_url,
            "max_retries": 0,  # the loop retries, and tells so (spec piglet 6.4)
            "timeout": httpx2.Timeout(limits.model_idle, connect=min(limits.model_connect, limits.model_idle)),
            "default_headers": dict(endpoint.headers),
            "http_client": make_http_client(endpoint.base_url, endpoint.environ, limits, local=endpoint.local),
        }


def _merge_headers(request: ModelRequest) -> dict[str, str]:
    try:
        return check_headers({**request.model.headers, **request.options.headers})
    except ValueError as error:
        raise BadSettings(str(error), who=request.model.key, hint="look at the model's headers and at the options'") from None


def _import_sdk(name: str) -> Any:
    """The SDK, without the logging that it sets up by `ANTHROPIC_LOG` and the like: its details have headers and conversations."""
    own, http = logging.getLogger(name), logging.getLogger("httpx2")
    before = None if name in sys.modules else (own.level or logging.WARNING, http.level)
    try:
        module = import_module(name)
    except ImportError as error:
        raise NoModel(f"the package `{name}` cannot be imported: {error}", hint="pip install 'serai[models]'") from None
    if before is not None:
        own.setLevel(before[0])
        http.setLevel(before[1])
    return module


async def _iter_chunks(response: httpx2.Response, decoder: StreamDecoder, limits: AgentLimits) -> AsyncGenerator[Chunk, None]:
    """The chunks of a stream until its answer is complete; one that ends before is an error."""
    events = SseDecoder(2 * limits.model_answer)  # escaped JSON is longer than what it says
    answer, take = decoder.answer, decoder.feed
    pieces = response.aiter_raw()
    try:
        async for piece in pieces:
            for data in events.feed(piece):
                take(data)
                for chunk in answer.fresh:
                    yield chunk
                answer.fresh.clear()
            if answer.complete:
                break
        else:
            for data in events.end():
                take(data)
                for chunk in answer.fresh:
                    yield chunk
                answer.fresh.clear()
            answer.complete |= answer.finished
    except Exception:
        if not answer.complete:  # what breaks behind the end breaks nothing
            raise
    if not answer.complete:
        raise answer.failures.make_broken_off()
    await _read_to_end(pieces)


async def _read_to_end(pieces: AsyncIterator[bytes]) -> None:
    """Read to the end of the stream, which is at hand: a connection that is read out is used again."""
    try:
        async with asyncio.timeout(_REST):
            async for _ in pieces:
                pass
    except Exception:  # it is closed instead; the answer is here
        return
