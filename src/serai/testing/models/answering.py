"""What the APIs have in common: a request in neutral words, the pieces of its answer, and how pieces become events.

Everything here is pure: the same request gives the same bytes (its digest makes the ids), and nothing knows of sockets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from serai.agents.models import model_script
from serai.agents.models.model_script import Cut, Fail, Hang, Malformed, ScriptMessage, Wait

__all__ = [
    "CREATED",
    "Answered",
    "Api",
    "Asked",
    "BadRequest",
    "Block",
    "Called",
    "Content",
    "Control",
    "Encoder",
    "Gathered",
    "Json",
    "Piece",
    "Text",
    "Thought",
    "answered",
    "dumps",
    "tokens",
]

Json = dict[str, Any]

CREATED = 1_767_225_600  # the time on every answer: the same request gives the same bytes
NO_TOOLS = "No tools were offered, so none is called."

dumps = msgspec.json.encode


class BadRequest(Exception):
    """The API refuses the request; `param` is the field it blames."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A valid request in neutral words."""

    body: Json
    digest: str
    model: str
    stream: bool
    said: tuple[ScriptMessage, ...]
    system: str = ""
    tools: tuple[str, ...] = ()  # that are offered, by name
    tokens: int = 0
    cached: int = 0  # of those, in front: what a real API would find in its cache, or put there

    @property
    def is_first(self) -> bool:
        """Nothing was answered yet, so nothing can be in the cache."""
        return not any(one.role == "assistant" for one in self.said)

    def id(self, prefix: str, number: int = 0) -> str:
        return f"{prefix}{self.digest[:24]}{number:04d}"


class Text(NamedTuple):
    text: str


class Thought(NamedTuple):
    text: str


class Called(NamedTuple):
    """A call; `text` is its arguments, which may be no JSON."""

    number: int
    name: str
    text: str


Content = Text | Thought | Called
Control = Wait | Cut | Malformed | Hang
Piece = Content | Control

_JOIN = 4096  # pieces
_CONTENT = frozenset({Text, Thought, Called})


class Answered(NamedTuple):
    """What a request is answered with. `pieces` can be read once: they are made while they are read."""

    pieces: Iterator[Piece]
    stop: str = "end"
    failure: Fail | None = None


def answered(asked: Asked) -> Answered:
    """The step that the script in the request has for it, as pieces."""
    answer = model_script.answer(asked.said, asked.system)
    calls = bool(asked.tools) and any(isinstance(_meant(one), model_script.Call) for one in answer.step.directives)
    return Answered(_pieces(asked, answer), answer.step.stop or ("tool_use" if calls else "end"), answer.step.failure)


def _meant(directive: model_script.Directive) -> model_script.Plain:
    return directive.directive if isinstance(directive, model_script.Repeat) else directive


def _pieces(asked: Asked, answer: model_script.ScriptedAnswer) -> Iterator[Piece]:
    """A model calls no tools where none are offered: real programs ask so for titles, and quote the prompt with its script."""
    calls, dropped, some = 0, False, False
    for directive in answer.step.directives:
        plain, count = _meant(directive), directive.count if isinstance(directive, model_script.Repeat) else 1
        match plain:
            case model_script.Say(text) | model_script.Think(text):
                kind = Text if isinstance(plain, model_script.Say) else Thought
                some = True
                if count == 1:
                    yield from (kind(piece) for piece in model_script.pieces(answer.filled(text)))
                    continue
                unit = [kind(piece) for piece in model_script.pieces(answer.filled(text))]
                for _ in range(count):
                    yield from unit
            case model_script.Call(name, arguments):
                dropped = not asked.tools
                for _ in range(0 if dropped else count):
                    yield Called(calls, name, arguments)
                    calls += 1
            case model_script.Wait() | model_script.Cut() | model_script.Malformed() | model_script.Hang():
                for _ in range(count):
                    yield plain
    if dropped and not some:
        yield from (Text(piece) for piece in model_script.pieces(NO_TOOLS))


class Block(NamedTuple):
    """Adjacent pieces of one kind together; every call is a block of its own."""

    kind: type[Text | Thought | Called]
    text: str
    name: str = ""
    number: int = 0


class Gathered:
    """Pieces as they come, put together to blocks. A piece that repeats a million times is not held a million times."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._kind: type[Text | Thought] | None = None
        self._texts: list[str] = []
        self._joined: list[str] = []

    def add(self, piece: Content) -> None:
        if isinstance(piece, Called):
            self.close()
            self.blocks.append(Block(Called, piece.text, piece.name, piece.number))
            return
        if type(piece) is not self._kind:
            self.close()
            self._kind = type(piece)
        self._texts.append(piece.text)
        if len(self._texts) == _JOIN:
            self._joined.append("".join(self._texts))
            self._texts.clear()

    def close(self) -> None:
        """The block under way has all its pieces."""
        if self._kind is not None:
            self.blocks.append(Block(self._kind, "".join([*self._joined, *self._texts])))
        self._kind, self._texts, self._joined = None, [], []


class Encoder(ABC):
    """One answer as the server-sent events of an API."""

    def __init__(self, asked: Asked, stop: str) -> None:
        self.asked = asked
        self.stop = stop
        self.length = 0  # characters so far

    def events(self, pieces: Iterator[Piece]) -> Iterator[bytes | Control]:
        """The whole stream, with what the server has to do in between."""
        yield from self.begin()
        kind: type[Piece] | None = None
        for piece in pieces:
            new = type(piece)
            if new not in _CONTENT:
                assert not isinstance(piece, Text | Thought | Called)
                yield piece
                continue
            assert isinstance(piece, Text | Thought | Called)
            if new is not kind or new is Called:
                if kind is not None:
                    yield from self.close()
                kind = new
                yield from self.open(piece)
            self.length += len(piece.text)
            if new is not Called:
                yield self.delta(piece)
        if kind is not None:
            yield from self.close()
        yield from self.end()

    @abstractmethod
    def begin(self) -> Iterator[bytes]: ...

    @abstractmethod
    def open(self, piece: Content) -> Iterator[bytes]:
        """A block begins; a call comes whole."""

    @abstractmethod
    def delta(self, piece: Content) -> bytes: ...

    @abstractmethod
    def close(self) -> Iterator[bytes]: ...

    @abstractmethod
    def end(self) -> Iterator[bytes]: ...


class Api(NamedTuple):
    """An API, as the server uses it."""

    name: str
    read: Callable[[Json, bytes, str], Asked]  # the body, its bytes, the digest of the request; raises BadRequest
    encoder: type[Encoder]
    whole: Callable[[Asked, list[Block], str], Json]  # the answer without a stream
    error: Callable[[int, str, str, BadRequest | None], Json]  # status, text, id of the request, what was wrong with it
    broken: Callable[[int, str, int], bytes]  # an error as an event in mid-stream: status, text, events before it
    malformed: bytes  # an event that is no JSON
    request_id: str  # the header that has it


def tokens(length: int) -> int:
    """Four characters are one: near enough, and the same every time."""
    return length // 4 + 1
