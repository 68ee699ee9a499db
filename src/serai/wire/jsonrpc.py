"""JSON-RPC 2.0 correlation in both directions (sans-IO): runs in, events out; commands in, frames out.

Two id spaces. Ours are integers from 1; the peer's may be any JSON value and are echoed as they came. Rules:

1. Events come out in arrival order. Whoever applies notifications inline and starts requests in that order keeps the two
   promises of spec piglet 2.5: requests start in arrival order, and a notification sent before an answer takes effect before it.
2. `id` and `method`: a request. `id` alone: an answer. No `id`, or null: a notification. If both `result` and `error`
   come, the error wins; if neither comes, the result is null. `jsonrpc` is sent and not checked.
3. An answer nobody waits for (late, repeated, never asked) is a `Stray`: recorded, never raised (design rule 4).
4. A peer's request whose id is still open is a `Stray` too: the frame was replayed, and it is served once.
5. When the peer goes, `lose` gives every waiting call back at once; nothing can be asked afterwards.

A `folded` connection reads as piglet's origin does (spec piglet 2.2, 2.3): the keys of the envelope, of its error and of a
cancellation match in any case, and a request's id is an integer or a string, else it is a `Stray`. With `bare` the answers to
those methods alone may have neither result nor error; any other such answer is `Garbled`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from serai.errors import Closed
from serai.wire.codec import BAD_INPUT, Codec, Decodes, FoldingDecoder, Noise, Unknown, decode, encode, scan_head
from serai.wire.stream import Oversize, PendingCall, PendingCalls

NOTHING = Raw()


class Envelope(msgspec.Struct, gc=False):
    """What came: a member that is not there is `NOTHING`."""

    id: Raw = NOTHING
    method: str | None = None
    params: Raw = NOTHING
    result: Raw = NOTHING
    error: Raw = NOTHING


class _FoldedEnvelope(Envelope, forbid_unknown_fields=True, gc=False):
    """As long as a frame has these members alone, its keys are exact, and it is read at once."""

    jsonrpc: Raw = NOTHING


class Error(msgspec.Struct, gc=False):
    message: str = ""
    code: int | float = 0
    data: Raw = NOTHING


class _FoldedError(Error, forbid_unknown_fields=True, gc=False):
    pass


class OutgoingEnvelope(msgspec.Struct, omit_defaults=True, gc=False):
    jsonrpc: str  # required, so that it is never omitted
    id: int | Raw | msgspec.UnsetType = msgspec.UNSET
    method: str = ""
    params: Any = msgspec.UNSET
    result: Any = msgspec.UNSET
    error: Any = msgspec.UNSET


class EnvelopeForm(NamedTuple):
    """How the frames of a connection are read: what `kind` they become, and their error objects."""

    kind: type[Envelope]
    codec: Codec[Envelope]
    errors: Decodes[Error]


PLAIN = EnvelopeForm(Envelope, Codec(Envelope, kind_field="method"), msgspec.json.Decoder(Error))
FOLDED = EnvelopeForm(_FoldedEnvelope, Codec(_FoldedEnvelope, kind_field="method", folded=True), FoldingDecoder(_FoldedError))


INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603

_ID = b'"id"'
_NULL = Raw(b"null")
_EMPTY = Raw(b"{}")


Id = int | bytes  # of a call: ours are integers; those that a replay of the peer's side takes up may be any JSON text


class CancelStyle(NamedTuple):
    """How a protocol says "never mind": a notification and the member that carries the id."""

    method: str
    member: str


LSP_CANCEL = CancelStyle("$/cancelRequest", "id")


class Request(msgspec.Struct, frozen=True, gc=False):
    """The peer asks. Answer with `Connection.answer` or `refuse`."""

    id: Raw
    method: str
    params: Raw


class Notification(msgspec.Struct, frozen=True, gc=False):
    """The peer tells."""

    method: str
    params: Raw


class Answer(msgspec.Struct, frozen=True):
    """One of our calls succeeded."""

    call: PendingCall[Id]
    result: Raw


class Failure(msgspec.Struct, frozen=True):
    """One of our calls was refused."""

    call: PendingCall[Id]
    code: int
    message: str
    data: Raw


class Garbled(msgspec.Struct, frozen=True):
    """One of our calls was answered, but the answer cannot be read."""

    call: PendingCall[Id]
    raw: bytes
    why: str


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """The peer no longer wants the answer to a request of its own that is still open."""

    request: Request


class Stray(msgspec.Struct, frozen=True, gc=False):
    """A frame that fits nothing open: kept for the record."""

    raw: bytes
    why: str


Event = Request | Notification | Answer | Failure | Garbled | Cancelled | Stray | Unknown | Noise

_int: msgspec.json.Decoder[int] = msgspec.json.Decoder(int)
_members: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])


class JsonRpcConnection:
    """One side of a JSON-RPC connection."""

    def __init__(
        self, *, cancel: CancelStyle | None = LSP_CANCEL, folded: bool = False, bare: frozenset[str] | None = None
    ) -> None:
        self._cancel = cancel
        self._folded = folded
        self._bare = bare
        self._form = FOLDED if folded else PLAIN
        self._reader = self._form.codec.create_reader()
        self._calls: PendingCalls[Id] = PendingCalls()
        self._last_id = 0
        self._open: dict[bytes, Request] = {}  # the peer's requests that we have not answered, by the text of their ids
        self.lost = False

    # -- commands: each gives the frame to send ------------------------------------------------------------------------

    def request(
        self, method: str, params: object, *, now: float, timeout: float | None, waiter: Any = None
    ) -> tuple[PendingCall[Id], bytes]:
        """Ask the peer. The call is waiting from now on, so an answer can never come too early."""
        if self.lost:
            raise Closed(f"{method} cannot be asked: the peer is gone")
        id = self.take_id()
        frame = encode(OutgoingEnvelope("2.0", id, method, params))
        return self._calls.start(id, method, now=now, timeout=timeout, waiter=waiter), frame

    def take_id(self) -> int:
        """The next number of the counter that numbers our requests; what else needs one draws it here (spec piglet 2.3)."""
        self._last_id += 1
        return self._last_id

    def waits_for(self, call: PendingCall[Id]) -> bool:
        """Whether its answer is still wanted."""
        return self._calls.waiting.get(call.id) is call

    def notify(self, method: str, params: object = msgspec.UNSET) -> bytes:
        return encode(OutgoingEnvelope("2.0", method=method, params=params))

    def answer(self, request: Request, result: object) -> bytes | None:
        """None when the request is not open any more (answered already): nothing must be sent twice."""
        return self._close(request, OutgoingEnvelope("2.0", request.id, result=result))

    def refuse(self, request: Request, code: int, message: str, data: object = msgspec.UNSET) -> bytes | None:
        error = {"code": code, "message": _clean(message)} | ({} if data is msgspec.UNSET else {"data": data})
        return self._close(request, OutgoingEnvelope("2.0", request.id, error=error))

    @staticmethod
    def refusal(request: Request, code: int, message: str) -> bytes:
        """A refusal in place of an answer that was made but cannot be sent."""
        return encode(OutgoingEnvelope("2.0", request.id, error={"code": code, "message": _clean(message)}))

    def forget(self, call: PendingCall[Id]) -> bool:
        """No longer wait for it: it could not be sent, or nobody cares any more. False when it has ended already."""
        return self._calls.finish(call.id) is not None

    def cancel(self, call: PendingCall[Id]) -> bytes | None:
        """Forget a call and tell the peer; None when it has ended already or the protocol cannot say it."""
        return self.encode_cancellation(call) if self.forget(call) else None

    def encode_cancellation(self, call: PendingCall[Id]) -> bytes | None:
        """What tells the peer that nobody waits for this call any more; None if the protocol cannot say it."""
        return None if self._cancel is None else self.notify(self._cancel.method, {self._cancel.member: call.id})

    # -- input: each gives what happened ----------------------------------------------------------------------------------

    def receive(self, run: bytes) -> list[Event]:
        kind = self._form.kind
        return [
            self._parse_event(message) if type(message) is kind else self._handle_odd(message)  # type: ignore[arg-type]
            for message in self._reader.read(run)
        ]

    def note_sent(self, run: bytes, now: float) -> None:
        """Take up what this side said earlier, as in a replay: the answers to it then find their calls."""
        for message in self._form.codec.create_reader().read(run):
            if not isinstance(message, Envelope):
                continue
            id = bytes(message.id)
            if id in (b"", b"null"):
                self._take_back(message)
            elif message.method:
                key = _parse_id(id)
                self._last_id = max(self._last_id, key) if isinstance(key, int) else self._last_id
                self._calls.start(key, message.method, now=now, timeout=None)
            else:
                self._open.pop(id, None)

    def oversize(self, frame: Oversize) -> list[PendingCall[Id]]:
        """The calls that an oversize frame ends: the one it answered if its head tells, else all (design rule 5)."""
        members = self._parse_head(frame.head)
        if _is_request(members):
            return []
        id = members.get(_ID, b"")
        if id in (b"", b"null"):
            return self._calls.abandon()
        call = self._finish(id)
        return [] if call is None else [call]

    def refuse_oversize(self, frame: Oversize) -> bytes | None:
        """The answer to a request that was too long to be kept, so that the peer does not wait; None if it was none."""
        members = self._parse_head(frame.head)
        id = members.get(_ID, b"")
        if not _is_request(members) or id in (b"", b"null") or not self._accepts_id(id):
            return None
        why = f"the request had {frame.size} bytes; the limit is {frame.limit}"
        return encode(OutgoingEnvelope("2.0", Raw(id), error={"code": INVALID_REQUEST, "message": why}))

    @property
    def noise(self) -> int:
        """How many lines were no frames."""
        return self._reader.noise

    def expire(self, now: float) -> list[PendingCall[Id]]:
        return self._calls.expire(now)

    def next_deadline(self) -> float | None:
        return self._calls.next_deadline()

    def lose(self) -> list[PendingCall[Id]]:
        """The peer is gone: every waiting call, to be failed with that one cause."""
        self.lost = True
        self._open.clear()
        return self._calls.abandon()

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _parse_event(self, message: Envelope) -> Event:
        id = bytes(message.id)
        if id in (b"", b"null"):
            return self._parse_notification(message)
        if message.method:
            return self._open_request(id, message)
        call = self._finish(id)
        if call is None:
            return Stray(_encode_again(message), f"an answer to {id.decode(errors='replace')}, which nobody waits for")
        if len(message.error) and bytes(message.error) != b"null":
            return self._parse_failure(call, message.error)
        if len(message.result):  # which may be long: its bytes are not copied to look at it
            return Answer(call, message.result)
        if self._bare is None or call.what in self._bare:
            return Answer(call, _NULL)
        return Garbled(call, _encode_again(message), "neither a result nor an error")

    def _close(self, request: Request, answer: OutgoingEnvelope) -> bytes | None:
        if self._open.get(bytes(request.id)) is not request:  # answered, or another one that has the same id by now
            return None
        frame = encode(answer)
        del self._open[bytes(request.id)]  # only now: what cannot be encoded leaves it open for a refusal
        return frame

    def _handle_odd(self, message: Unknown | Noise) -> Event:
        """A line that could not be read; if it was an answer, its call must not wait for another (design rule 7)."""
        members = self._parse_head(message.raw[:4096]) if message.raw[:1] in (b"{", b"\xef") else {}
        if not _is_request(members) and (b'"result"' in members or b'"error"' in members):
            call = self._finish(members.get(_ID, b""))
            if call is not None:
                return Garbled(call, message.raw, message.why)
        return message

    def _finish(self, id: bytes) -> PendingCall[Id] | None:
        return self._calls.finish(_parse_id(id))

    def _take_back(self, message: Envelope) -> None:
        """This side said "never mind": it no longer waits."""
        if self._cancel is not None and message.method == self._cancel.method:
            self._finish(self._parse_cancelled_id(message.params))

    def _parse_cancelled_id(self, params: Raw) -> bytes:
        """The id that a cancellation names; empty when it names none."""
        assert self._cancel is not None
        wanted = self._cancel.member
        try:
            members = _members.decode(params)
        except BAD_INPUT:
            return b""
        if self._folded and wanted not in members:
            members = {name.casefold(): id for name, id in members.items()}
            wanted = wanted.casefold()
        return bytes(members.get(wanted, b""))

    def _parse_head(self, head: bytes) -> dict[bytes, bytes]:
        """The members that the head of a frame shows, by their exact names."""
        members = scan_head(head)
        return {name.lower(): value for name, value in members.items()} | members if self._folded else members

    def _accepts_id(self, id: bytes) -> bool:
        """Whether the peer's request may have it: `1.0`, `true` and the like are none where ids are integers."""
        return not self._folded or id.isdigit() or id[:1] == b'"' or isinstance(_parse_id(id), int)

    def _open_request(self, id: bytes, message: Envelope) -> Event:
        if not self._accepts_id(id):
            return Stray(_encode_again(message), f"a request with an id that is none: {id[:100].decode(errors='replace')}")
        if id in self._open:
            return Stray(_encode_again(message), f"a second request with the open id {id.decode(errors='replace')}")
        request = Request(Raw(id), message.method or "", _normalise_params(message.params))
        self._open[id] = request
        return request

    def _parse_notification(self, message: Envelope) -> Event:
        params = _normalise_params(message.params)
        if self._cancel is not None and message.method == self._cancel.method:
            request = self._open.get(self._parse_cancelled_id(params))
            return Stray(_encode_again(message), "cancels a request that is not open") if request is None else Cancelled(request)
        if not message.method:
            return Stray(_encode_again(message), "neither an id nor a method")
        return Notification(message.method, params)

    def _parse_failure(self, call: PendingCall[Id], raw: Raw) -> Failure:
        try:
            error = decode(self._form.errors, raw)
        except BAD_INPUT:  # not the shape of an error object, yet a refusal: its text is all there is
            return Failure(call, INTERNAL_ERROR, bytes(raw).decode(errors="replace").strip('"'), raw)
        return Failure(call, int(error.code), error.message, error.data)


def _parse_id(id: bytes) -> Id:
    try:
        return _int.decode(id)
    except BAD_INPUT:  # a string or a fraction
        return id


def _is_request(members: dict[bytes, bytes]) -> bool:
    """Whether the head of a frame shows that it asks or tells, rather than answers."""
    return any(members.get(key, b"null") != b"null" for key in (b'"method"', b'"params"'))


def _clean(text: str) -> str:
    """Text that can be encoded: a lone surrogate, such as from a file name, is replaced."""
    return text.encode(errors="replace").decode()


def _normalise_params(raw: Raw) -> Raw:
    """Absent and null parameters are an empty object (spec piglet FIX-5)."""
    return _EMPTY if len(raw) <= len(_NULL) and bytes(raw) in (b"", b"null") else raw


def _encode_again(message: Envelope) -> bytes:
    """The members that matter of a frame whose own bytes are part of a longer run."""
    members = {name: raw for name in ("id", "params", "result", "error") if bytes(raw := getattr(message, name))}
    return encode(members | ({"method": message.method} if message.method else {})).rstrip()
