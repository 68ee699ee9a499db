"""What the model APIs share: the parts of a request (names, ids, schemas, images, arguments, prices) and an answer as it grows.

An `AnswerBuilder` takes pieces, returns chunks, and at last the whole answer. Sans-IO; each API decodes its own events.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Literal, Protocol
from uuid import uuid4

import msgspec

from serai.agents.models.endpoint_errors import EndpointErrors
from serai.model.events import Stop, Usage
from serai.model.provider import Chunk, Completion, Cost, Model, ModelMessage, ModelRequest
from serai.model.tools import Block, ImageBlock, OtherBlock, TextBlock, ToolCall, ToolSpec

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
                sent = next(made for made in _made(name) if made not in self._back)
                self._out[name], self._back[sent] = sent, name

    def out(self, name: str) -> str:
        if name in self._out:
            return self._out[name]
        return name if _NAME.fullmatch(name) else next(_made(name))

    def back(self, name: str) -> str:
        return self._back.get(name, name)


def _made(name: str) -> Iterator[str]:
    """Names that can be sent for one that cannot; the digest keeps `a.b` and `a:b` apart."""
    stem = _BAD.sub("_", name)[:50]
    for number in count():
        yield f"{stem}_{_digest(f'{name} {number}' if number else name, 8)}"


def safe_id(id: str) -> str:
    """The id of a call as every API takes it: another provider's may be too long or have other characters."""
    return id if _ID.fullmatch(id) else f"call_{_digest(id, 24)}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:length]


def schema_of(tool: ToolSpec) -> Json:
    """The schema of its arguments; a deferred tool is offered without (spec piglet 6.6)."""
    return {"type": "object", "properties": {}} if tool.deferred else {**tool.schema, "type": "object"}


def arguments_of(text: str) -> Any:
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
    level = _containers([value])
    for _ in range(_DEEPEST):
        level = [inner for one in level for inner in _containers(one.values() if isinstance(one, dict) else one)]
        if not level:
            return False
    return True


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list | tuple)]


def object_of(call: ToolCall) -> Json:
    """The arguments of an earlier call as the object that an API insists on, whatever the model once sent."""
    if is_deep(call.arguments):
        return {"arguments": "(nested too deep to be shown)"}
    return call.arguments if isinstance(call.arguments, dict) else {"arguments": call.arguments}


def text_of(content: Iterable[Block]) -> str:
    return "\n".join(block.text for block in content if isinstance(block, TextBlock))


def data_url(image: ImageBlock) -> str:
    return f"data:{image.mime or 'image/png'};base64,{base64.b64encode(image.data).decode()}"


def answer_tokens(request: ModelRequest) -> int:
    """How many tokens the answer may have; 0 when nobody knows."""
    asked, most = request.options.max_tokens or 0, request.model.max_tokens
    return min(asked, most) if asked and most else asked or most


def in_order(message: ModelMessage, model: Model, *, same_model: bool = False) -> Iterator[TextBlock | ToolCall | Json]:
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


def kept_blocks(content: Iterable[Block]) -> Iterator[TextBlock | ImageBlock]:
    """What an API is sent of a person's or a tool's content: no empty text, nothing that has no word for it."""
    for block in content:
        if isinstance(block, OtherBlock) or (isinstance(block, TextBlock) and not block.text.strip()):
            continue
        yield block


def priced(usage: Usage, cost: Cost) -> Usage:
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
                raise self.failures.too_many_calls()
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

    def latest(self, what: What) -> AnswerPart:
        """The part that this text goes on with: the last one, else a new one."""
        return self.parts[-1] if self.parts and self.parts[-1].what == what else self.begin(what)

    def grow(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise self.failures.too_much()

    def completion(self) -> Completion:
        for part in self.parts:
            if is_deep(part.kept):
                part.kept = None  # nobody could write it down, or send it again
        calls = tuple(self._calls())
        message = ModelMessage(
            "assistant",
            tuple(self._content()),
            calls,
            thinking="\n".join(part.text for part in self.parts if part.what == "thinking" and part.pieces),
            native=self._native(),
        )
        # Compatible servers have been seen to call a tool and say that they just stopped.
        stop: Stop = "tool_use" if calls and self.stop == "end" else self.stop
        return Completion(message, stop, priced(self.usage, self._model.cost))

    def _content(self) -> Iterator[Block]:
        for part in self.parts:
            if part.what == "text" and part.pieces:
                yield TextBlock(part.text)
            elif part.what == "other":
                yield OtherBlock(part.name, part.kept)

    def _calls(self) -> Iterator[ToolCall]:
        """The calls, each with an id of its own: compatible servers have been seen to give none, or one twice."""
        seen: set[str] = set()
        for part in self.parts:
            if part.what == "tool_input":
                id = part.id if part.id and part.id not in seen else f"call_{uuid4().hex[:24]}"
                seen.add(id)
                yield ToolCall(self.names.back(part.name), arguments_of(part.text), id)

    def _native(self) -> Any:
        """What must be sent again to this provider, between the texts and calls where it stood."""
        own: dict[str, Any] = {"stop": self.reason} if self.reason else {}
        if any(part.kept is not None and part.what != "other" for part in self.parts):
            own |= {"order": list(self._order())}
        return {"api": self._model.api, "provider": self._model.provider, "model": self._model.id, **own} if own else None

    def _order(self) -> Iterator[Any]:
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

    def take(self, data: bytes) -> None:
        """One event; what it says is fresh in the answer.

        Raises `ModelFailed` for an error that it carries, `ValueError` when it cannot be understood.
        """
        ...
