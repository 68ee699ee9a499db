"""One answer as it grows: pieces in, chunks out, and at last the whole of it. Sans-IO; each API's events are read by its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Protocol
from uuid import uuid4

from serai.agents.models.failures import Failures
from serai.agents.models.wording import Names, arguments_of, is_deep, priced
from serai.model.events import Stop, Usage
from serai.model.provider import Chunk, Completion, ModelMessage, ModelRequest
from serai.model.tools import Block, OtherBlock, TextBlock, ToolCall

__all__ = ["Answer", "Folding", "Part", "What"]

What = Literal["text", "thinking", "tool_input"]
_PART = 64  # of `model_answer` for a part itself: one of a million empty ones must end


class Part:
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


class Answer:
    """The parts that have come, and how it stands. `complete`: the provider has said that this was all."""

    def __init__(self, request: ModelRequest, failures: Failures) -> None:
        self.failures = failures
        self.names = Names(request.tools)
        self.parts: list[Part] = []
        self.fresh: list[Chunk] = []  # what nobody has been told yet
        self.complete = False
        self.finished = False  # a reason to stop was given: if no more than the closing word is missing, that was all
        self.stop: Stop = "end"
        self.reason = ""  # the provider's own word for it, where ours does not say enough
        self.usage = Usage()
        self._model = request.model
        self._left = failures.limits.model_answer
        self._calls_left = failures.limits.model_calls

    def begin(self, what: What | Literal["other"], *, id: str = "", name: str = "", kept: Any = None) -> Part:
        self.grow(len(id) + len(name) + _PART)
        if what == "tool_input":
            self._calls_left -= 1
            if self._calls_left < 0:
                raise self.failures.too_many_calls()
        part = Part(what, len(self.parts), id=id, name=name, kept=kept)
        self.parts.append(part)
        return part

    def add(self, part: Part, text: str) -> None:
        if not text:
            return
        self.grow(len(text) if text.isascii() else len(text.encode(errors="surrogatepass")))
        part.pieces.append(text)
        assert part.what != "other"
        self.fresh.append(Chunk(text, part.what, part.index))

    def latest(self, what: What) -> Part:
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


class Folding(Protocol):
    """How one API's events become an answer."""

    answer: Answer

    def take(self, data: bytes) -> None:
        """One event; what it says is fresh in the answer.

        Raises `ModelFailed` for an error that it carries, `ValueError` when it cannot be understood.
        """
        ...
