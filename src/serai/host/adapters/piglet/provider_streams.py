"""A conversation in piglet's form (spec piglet 6.2), and a guest's answers of a model: `provider/stream` and its deltas (spec
piglet 5.9).

Messages have their type beside them or inside. Pieces of an answer are passed on in the order of their arrival and none is
dropped; the message of the result is what counts. Every failure is a `ModelFailed`, so that the agent's retries apply (spec piglet
6.4).
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import unquote_plus, urlsplit, urlunsplit

import msgspec
from msgspec import Raw

from serai.dialects.piglet.messages import CompactMessage, ProviderDeltaParams, ProviderStreamParams, ProviderStreamResult
from serai.errors import Closed, FrameTooBig, LimitHit, ModelFailed, OversizeFrame, PeerGone, PeerTimeout, SeraiError
from serai.limits import HostLimits
from serai.model.provider import Chunk, Completion, MessageOrigin, Model, ModelMessage, ModelOptions, ModelRequest
from serai.model.tools import ToolCall
from serai.record.secret_patterns import mask_text
from serai.store import messages as stored
from serai.store.entries import ZERO
from serai.wire.codec import BAD_INPUT
from serai.wire.process import looks_secret

_TYPES = frozenset({"user", "assistant", "tool_result"})
# What a message's JSON may raise: no JSON at all, or a number that no integer takes.
UNREADABLE = (*BAD_INPUT, ValueError, OverflowError)


# The keys of a message, of its items and of its usage, which match in any case, as all of the protocol do (FIX-4).
_KEYS = {
    key.casefold(): key
    for key in (
        *(
            "content",
            "blocks",
            "timestamp",
            "model",
            "provider",
            "usage",
            "stopReason",
            "error",
            "toolCallId",
            "toolName",
            "isError",
        ),
        *("text", "thinking", "id", "name", "arguments", "providerMeta", "data", "mimeType", "type", "role"),
        *("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "cost"),
    )
}
_members: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])
_items: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])


def to_guest_args(call: ToolCall) -> Any:
    """Its arguments as a guest gets them: null when there are none (spec piglet 10.13)."""
    return call.arguments or None


def read_message(type: str, raw: Raw) -> stored.StoredMessage:
    """A message of this type, however its keys are spelt; one of `UNREADABLE` when it is none."""
    return stored.decode_message(type, fold_keys(raw))


def fold_keys(raw: Raw) -> Raw:
    """With the keys that the protocol has; a message that has them is left byte for byte, and so are arguments and the like."""
    if bytes(raw)[:1] != b"{":
        return raw
    members = _members.decode(raw)
    # The exact one wins, and of several others the last.
    named = {
        name: _normalise_value(name, value)
        for key, value in members.items()
        if (name := _KEYS.get(key.casefold(), key)) == key or name not in members
    }
    return raw if all(named.get(key) is value for key, value in members.items()) else Raw(msgspec.json.encode(named))


def _normalise_value(name: str, value: Raw) -> Raw:
    if name in ("content", "blocks") and bytes(value)[:1] == b"[":
        items = _items.decode(value)
        named = [fold_keys(item) for item in items]
        same = all(one is other for one, other in zip(named, items, strict=True))
        return value if same else Raw(msgspec.json.encode(named))
    return fold_keys(value) if name == "usage" else value


def to_compact(messages: Sequence[ModelMessage]) -> list[CompactMessage]:
    """Each with its type beside it, as a compactor gets them (spec piglet 5.8). A `ValueError` for what is no JSON."""
    return [CompactMessage(stored.get_role(message), stored.encode(message)) for message in _to_stored(messages)]


def from_compact(messages: Sequence[CompactMessage] | None) -> list[ModelMessage]:
    """What a compactor answered; entries of an unknown type, or whose data cannot be read, are left out (spec piglet 5.8)."""
    found: list[ModelMessage] = []
    for message in messages or ():
        if message.type in _TYPES:
            try:
                found.append(stored.to_model_message(read_message(message.type, message.data)))
            except UNREADABLE:
                continue
    return found


def encode_untagged(messages: Sequence[ModelMessage]) -> list[Raw]:
    """The JSON of each, which says its `role`, and of each item its `type` (FIX-21). A `ValueError` for what is no JSON."""
    return [stored.encode(message, tagged=False) for message in _to_stored(messages)]


def _to_stored(messages: Sequence[ModelMessage]) -> Iterator[stored.StoredMessage]:
    """As a session keeps them. A result is of the tool whose call has its id; ids may come again, and the last one counts."""
    tools: dict[str, str] = {}
    for message in messages:
        tools.update((call.id, call.name) for call in message.calls)
        yield stored.from_model_message(message, tool=tools.get(message.call_id, ""), timestamp=ZERO)


# Sends `provider/stream`. Its envelope id is the next of the counter when it draws one at once (spec piglet 2.3).
Ask = Callable[[ProviderStreamParams], Awaitable[ProviderStreamResult]]

# `toolcall_end` only informs; the result has the whole call.
_WHAT: dict[str, Literal["text", "thinking", "tool_input"]] = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "toolcall_delta": "tool_input",
}
_PIECE = 64  # bytes that a piece takes which nobody has taken yet, besides its text
_LONGEST = 500  # characters of a guest's own words
# In an address also these words name a secret.
_SIGNED = frozenset({"code", "hmac", "session", "sid", "sig", "signature", "ticket"})
_WORD = re.compile(r"[a-z]+")
_PAIRS = re.compile(r"[&;]")


class ProviderStream:
    """One answer on its way: the pieces that nobody has taken yet, and what ended it before its time."""

    __slots__ = ("_limit", "_news", "_size", "lost", "too_long", "waiting")

    def __init__(self, limit: int) -> None:
        self.waiting: deque[Chunk] = deque()
        self.too_long = False
        self.lost: SeraiError | None = None
        self._limit = limit
        self._size = 0  # bytes of all text that has come
        self._news: asyncio.Future[None] | None = None

    def take(self, delta: ProviderDeltaParams) -> None:
        what = _WHAT.get(delta.type)
        if what is None or self.too_long:
            return
        text = delta.delta
        self._size += max(len(text) if text.isascii() else len(text.encode(errors="replace")), 1)  # nothing is not for nothing
        self.too_long = self._size + _PIECE * len(self.waiting) > self._limit
        if self.too_long:
            self.waiting.clear()
        else:
            self.waiting.append(Chunk(text, what, delta.index))
        self.wake()

    def fail(self, error: SeraiError) -> None:
        self.lost = self.lost or error
        self.wake()

    def wake(self, _done: object = None) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def wait(self) -> None:
        """Until `wake`."""
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None


class ProviderStreams:
    """The streams of one guest, by the `requestId` that its deltas name."""

    def __init__(self, name: str, limits: HostLimits) -> None:
        self._name = name
        self._limits = limits
        self._streams: dict[int, ProviderStream] = {}

    def open(self, request_id: int) -> ProviderStream:
        self._streams[request_id] = stream = ProviderStream(self._limits.model_answer)
        return stream

    def add_delta(self, params: ProviderDeltaParams) -> None:
        """Of a stream that is not, or not any more, open it is ignored (spec piglet 10.37)."""
        if (stream := self._streams.get(params.request_id)) is not None:
            stream.take(params)

    def fail_all(self, error: SeraiError) -> None:
        """The wire is over: so are all streams. What has come is still handed on."""
        for stream in self._streams.values():
            stream.fail(error)

    async def stream(
        self, call: Ask, draw: Callable[[], int], api: str, request: ModelRequest
    ) -> AsyncGenerator[Chunk | Completion, None]:
        """Chunks, then one completion. Closed early, the call is cancelled, and by then has told the guest so."""
        key = request.model.key
        request_id = draw()  # before the call draws its own
        stream = self.open(request_id)
        asking: asyncio.Future[ProviderStreamResult] | None = None
        try:
            asking = asyncio.ensure_future(call(build_params(request_id, api, request)))
            asking.add_done_callback(stream.wake)
            while True:
                while stream.waiting:
                    yield stream.waiting.popleft()
                if stream.too_long or stream.lost or asking.done():
                    break
                await stream.wait()
            yield _build_completion(await self._await_result(stream, asking))
        except ModelFailed as failure:
            failure.who = key
            raise
        finally:
            del self._streams[request_id]
            if asking is not None:
                await _cancel_and_wait(asking, self._limits.interrupt)

    async def _await_result(self, stream: ProviderStream, asking: asyncio.Future[ProviderStreamResult]) -> ProviderStreamResult:
        if stream.too_long:
            hit, hint = LimitHit("model_answer", self._limits.model_answer), "ask for less, or raise the limit"
            raise ModelFailed("the answer is too long and was stopped", limit=hit, hint=hint)
        if stream.lost is not None:  # then every call fails at once, unless its answer came just before: that counts
            await asyncio.wait([asking], timeout=self._limits.interrupt)
        if not asking.done() or asking.cancelled():
            raise self._build_failure(stream.lost or Closed(""))
        try:
            return asking.result()
        except SeraiError as error:
            raise self._build_failure(error) from error

    def _build_failure(self, error: SeraiError) -> ModelFailed:
        """What went wrong on the wire, for who decides whether to ask again (spec piglet 5.9)."""
        again, words = True, _cut(error.message)
        match error:
            case PeerGone():
                words = f"extension {self._name} crashed"
            case Closed():
                words = f"extension {self._name} closed"
            case FrameTooBig() | OversizeFrame() | PeerTimeout():  # the next one would be no other
                again = False
        too_long = isinstance(error, FrameTooBig)  # the conversation is longer than the wire takes: a shorter one is not
        failure = ModelFailed(words, temporary=again, too_long=too_long, limit=error.limit, hint=error.hint)
        failure.exit, failure.stderr = error.exit, error.stderr
        return failure


async def _cancel_and_wait(asking: asyncio.Future[ProviderStreamResult], seconds: float) -> None:
    """Nobody waits for it any more. Whoever cancels a call tells the guest so, before this returns."""
    if not asking.done():
        asking.cancel()
        await asyncio.wait([asking], timeout=seconds)
    if asking.done() and not asking.cancelled():
        asking.exception()  # was told, or is nobody's business


# -- what is asked


def build_params(request_id: int, api: str, request: ModelRequest) -> ProviderStreamParams:
    """Without a key: the guest asks for one with `host/auth.getKey` (spec piglet 5.9, design rule 13)."""
    tools = [{"name": tool.name, "description": tool.description, "parameters": tool.schema} for tool in request.tools]
    try:
        messages = encode_untagged(request.messages)
    except ValueError as error:
        hint = "compact the conversation, or begin a new one"
        raise ModelFailed(f"the conversation is no JSON: {error}", hint=hint) from None
    return ProviderStreamParams(
        request_id, _encode_model(request.model, api), request.system, messages, tools or None, _encode_options(request.options)
    )


def _encode_model(model: Model, api: str) -> dict[str, Any]:
    """Spec piglet 6.5."""
    cost = model.cost
    found: dict[str, Any] = {"id": model.id, "name": model.name or model.id, "api": api, "provider": model.provider}
    if model.base_url:
        found["baseUrl"] = _strip_secrets(model.base_url)
    found |= {"reasoning": model.reasoning, "contextWindow": model.context_window, "maxTokens": model.max_tokens}
    found["cost"] = {"input": cost.input, "output": cost.output, "cacheRead": cost.cache_read, "cacheWrite": cost.cache_write}
    if headers := _harmless(model.headers):
        found["headers"] = headers
    return found


def _encode_options(options: ModelOptions) -> dict[str, Any]:
    found: dict[str, Any] = {"temperature": options.temperature, "maxTokens": options.max_tokens}
    found |= {"thinking": None if options.thinking == "off" else options.thinking, "headers": _harmless(options.headers) or None}
    return {name: value for name, value in found.items() if value is not None}


def _harmless(headers: Mapping[str, str]) -> dict[str, str]:
    """Those that authorise nobody."""
    return {name: value for name, value in headers.items() if "authori" not in name.casefold() and not looks_secret(name, value)}


def _strip_secrets(url: str) -> str:
    """Without the password in it, and without a question that has one (`?key=…` is how some do it)."""
    try:
        parts = urlsplit(url)
    except ValueError:  # no address at all: whoever asks there says so
        return ""
    query = "" if any(map(_is_secret_pair, _PAIRS.split(parts.query))) else parts.query
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query, fragment=""))


def _is_secret_pair(pair: str) -> bool:
    """Whether this part of a question looks like a secret, by its name or by itself."""
    plain = unquote_plus(pair)
    name = plain.partition("=")[0]
    return bool(_SIGNED.intersection(_WORD.findall(name.lower()))) or looks_secret(name, plain) or mask_text(plain) != plain


# -- what is answered


def _build_completion(result: ProviderStreamResult) -> Completion:
    """The result's message, which counts whatever has streamed."""
    if result.error:
        raise ModelFailed(_cut(result.error), temporary=True)
    try:
        message = read_message("assistant", result.message)
    except UNREADABLE as error:
        raise ModelFailed(f"the message of its answer cannot be read: {_cut(str(error))}", temporary=True) from None
    assert isinstance(message, stored.AssistantMessage)
    if message.error and message.stop_reason in ("error", ""):
        raise ModelFailed(_cut(message.error), temporary=True)
    answer = stored.to_model_message(message)
    made = answer.made or MessageOrigin()
    return Completion(answer, made.stop or ("tool_use" if answer.calls else "end"), made.usage)


def _cut(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"
