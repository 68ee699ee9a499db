"""What the APIs share: a request in neutral form, the pieces of its answer, how pieces become events, and faults.

Everything here is pure: the same request gives the same bytes (its digest makes the ids), and nothing knows of sockets. Members of
a request are read as values of their type, or are the 400 that a real API gives. Faults are a queue, used up one per request,
beside what a prompt's own script says:

    server.fault(Fault("status", status=529), Fault("status", status=529))    # fails twice, then works
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from serai.agents.models import parrot
from serai.agents.models.parrot import Cut, Fail, Hang, Malformed, ScriptMessage, Wait

Json = dict[str, Any]

CREATED = 1_767_225_600  # the time on every answer: the same request gives the same bytes
NO_TOOLS = "No tools were offered, so none is called."

dumps = msgspec.json.encode


class ApiRefusal(Exception):
    """The API refuses the request; `param` is the field it blames."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class NeutralRequest(msgspec.Struct, frozen=True, kw_only=True):
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

    def make_id(self, prefix: str, number: int = 0) -> str:
        return f"{prefix}{self.digest[:24]}{number:04d}"


class TextPiece(NamedTuple):
    text: str


class ThoughtPiece(NamedTuple):
    text: str


class CallPiece(NamedTuple):
    """A call; `text` is its arguments, which may be no JSON."""

    number: int
    name: str
    text: str


Content = TextPiece | ThoughtPiece | CallPiece
Control = Wait | Cut | Malformed | Hang
Piece = Content | Control

_JOIN = 4096  # pieces
_CONTENT = frozenset({TextPiece, ThoughtPiece, CallPiece})


class ScriptedReply(NamedTuple):
    """What a request is answered with. `pieces` can be read once: they are made while they are read."""

    pieces: Iterator[Piece]
    stop: str = "end"
    failure: Fail | None = None


def build_reply(asked: NeutralRequest) -> ScriptedReply:
    """The step that the script in the request has for it, as pieces."""
    answer = parrot.choose_answer(asked.said, asked.system)
    calls = bool(asked.tools) and any(isinstance(_unwrap_repeat(one), parrot.Call) for one in answer.step.directives)
    return ScriptedReply(_iter_pieces(asked, answer), answer.step.stop or ("tool_use" if calls else "end"), answer.step.failure)


def _unwrap_repeat(directive: parrot.Directive) -> parrot.Plain:
    return directive.directive if isinstance(directive, parrot.Repeat) else directive


def _iter_pieces(asked: NeutralRequest, answer: parrot.ScriptedAnswer) -> Iterator[Piece]:
    """A model calls no tools where none are offered: real programs ask so for titles, and quote the prompt with its script."""
    calls, dropped, some = 0, False, False
    for directive in answer.step.directives:
        plain, count = _unwrap_repeat(directive), directive.count if isinstance(directive, parrot.Repeat) else 1
        match plain:
            case parrot.Say(text) | parrot.Think(text):
                kind = TextPiece if isinstance(plain, parrot.Say) else ThoughtPiece
                some = True
                if count == 1:
                    yield from (kind(piece) for piece in parrot.split_pieces(answer.fill(text)))
                    continue
                unit = [kind(piece) for piece in parrot.split_pieces(answer.fill(text))]
                for _ in range(count):
                    yield from unit
            case parrot.Call(name, arguments):
                dropped = not asked.tools
                for _ in range(0 if dropped else count):
                    yield CallPiece(calls, name, arguments)
                    calls += 1
            case parrot.Wait() | parrot.Cut() | parrot.Malformed() | parrot.Hang():
                for _ in range(count):
                    yield plain
    if dropped and not some:
        yield from (TextPiece(piece) for piece in parrot.split_pieces(NO_TOOLS))


class ReplyBlock(NamedTuple):
    """Adjacent pieces of one kind together; every call is a block of its own."""

    kind: type[TextPiece | ThoughtPiece | CallPiece]
    text: str
    name: str = ""
    number: int = 0


class BlockBuilder:
    """Pieces as they come, put together to blocks. A piece that repeats a million times is not held a million times."""

    def __init__(self) -> None:
        self.blocks: list[ReplyBlock] = []
        self._kind: type[TextPiece | ThoughtPiece] | None = None
        self._texts: list[str] = []
        self._joined: list[str] = []

    def add(self, piece: Content) -> None:
        if isinstance(piece, CallPiece):
            self.close()
            self.blocks.append(ReplyBlock(CallPiece, piece.text, piece.name, piece.number))
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
            self.blocks.append(ReplyBlock(self._kind, "".join([*self._joined, *self._texts])))
        self._kind, self._texts, self._joined = None, [], []


class Encoder(ABC):
    """One answer as the server-sent events of an API."""

    def __init__(self, asked: NeutralRequest, stop: str) -> None:
        self.asked = asked
        self.stop = stop
        self.length = 0  # characters so far

    def encode(self, pieces: Iterator[Piece]) -> Iterator[bytes | Control]:
        """The whole stream, with what the server has to do in between."""
        yield from self.begin()
        kind: type[Piece] | None = None
        for piece in pieces:
            new = type(piece)
            if new not in _CONTENT:
                assert not isinstance(piece, TextPiece | ThoughtPiece | CallPiece)
                yield piece
                continue
            assert isinstance(piece, TextPiece | ThoughtPiece | CallPiece)
            if new is not kind or new is CallPiece:
                if kind is not None:
                    yield from self.close()
                kind = new
                yield from self.open(piece)
            self.length += len(piece.text)
            if new is not CallPiece:
                yield self.encode_delta(piece)
        if kind is not None:
            yield from self.close()
        yield from self.end()

    @abstractmethod
    def begin(self) -> Iterator[bytes]: ...

    @abstractmethod
    def open(self, piece: Content) -> Iterator[bytes]:
        """A block begins; a call comes whole."""

    @abstractmethod
    def encode_delta(self, piece: Content) -> bytes: ...

    @abstractmethod
    def close(self) -> Iterator[bytes]: ...

    @abstractmethod
    def end(self) -> Iterator[bytes]: ...


class Api(NamedTuple):
    """An API, as the server uses it."""

    name: str
    read: Callable[[Json, bytes, str], NeutralRequest]  # the body, its bytes, the digest of the request; raises ApiRefusal
    encoder: type[Encoder]
    whole: Callable[[NeutralRequest, list[ReplyBlock], str], Json]  # the answer without a stream
    error: Callable[[int, str, str, ApiRefusal | None], Json]  # status, text, id of the request, what was wrong with it
    broken: Callable[[int, str, int], bytes]  # an error as an event in mid-stream: status, text, events before it
    malformed: bytes  # an event that is no JSON
    request_id: str  # the header that has it


def count_tokens(length: int) -> int:
    """Four characters are one: near enough, and the same every time."""
    return length // 4 + 1


def need(ok: object, message: str, *, param: str | None = None, code: str | None = None) -> None:
    if not ok:
        raise ApiRefusal(message, param=param, code=code)


def as_list(value: object) -> list[Any]:
    """A list; anything else is none."""
    return value if isinstance(value, list) else []


def list_objects(value: object) -> list[Json]:
    """The objects of a list; what is none was complained about before, or does not matter."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def find_duplicates(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def join_text(content: object, *kinds: str) -> str:
    """The text of a message: it is one, or the blocks of these kinds have it."""
    if isinstance(content, str):
        return content
    texts = [block.get("text") for block in list_objects(content) if block.get("type") in kinds]
    return "\n".join(text for text in texts if isinstance(text, str))


Kind = Literal["none", "status", "error", "cut", "malformed", "slow", "huge", "hang", "close", "refuse", "endless"]

# What each does, by the options it reads.
FAULTS: dict[Kind, str] = {
    "none": "works, so that a later request has the next fault",
    "status": "answers with this HTTP `status`, `retry_after` and `headers`; `body` instead of the API's own",
    "endless": "answers with this HTTP `status` and a body that has no end, until the client leaves",
    "error": "tells an error of this `status` as an event, `after` so many others",
    "cut": "closes the connection `after` so many events",
    "malformed": "an event that is no JSON, `after` so many others; then it goes on",
    "slow": "so many `seconds` between two events",
    "huge": "a text of so many `bytes`, in one event",
    "hang": "says nothing more `after` so many events, until the client leaves",
    "close": "closes the connection when it has read the request, before any answer",
    "refuse": "resets the next connection before it reads a byte; one that is used again, before it answers",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong with one request; `FAULTS` tells of each kind."""

    kind: Kind
    _: KW_ONLY
    status: int = 500
    retry_after: str = ""  # the header's value: seconds, or a date
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    after: int = 0
    seconds: float = 0.01
    bytes: int = 1_000_000

    def __post_init__(self) -> None:
        if self.kind not in FAULTS:
            raise ValueError(f"no fault {self.kind!r}; there are: {', '.join(FAULTS)}")


NONE = Fault("none")

_IN_STREAM: dict[Kind, Control] = {"cut": Cut(), "malformed": Malformed(), "hang": Hang()}


def apply_fault(events: Iterator[bytes | Control], fault: Fault, error: bytes) -> Iterator[bytes | Control]:
    """The events with the fault among them; `error` is the API's own event for one, after which nothing comes."""
    if fault.kind == "slow":
        for event in events:
            yield event
            yield Wait(fault.seconds)
        return
    if fault.kind not in _IN_STREAM and fault.kind != "error":
        yield from events
        return
    sent = 0
    for event in events:
        if sent == fault.after:
            yield error if fault.kind == "error" else _IN_STREAM[fault.kind]
            if fault.kind == "error":
                return
        sent += isinstance(event, bytes)
        yield event


def make_huge_text(fault: Fault) -> Iterator[Piece]:
    yield TextPiece("x" * fault.bytes)
