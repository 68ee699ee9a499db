"""Serai's side of a piglet wire (sans-IO): what a guest registers, reports and requests, as typed values.

`TypedSide` is what both sides share: JSON-RPC events in, typed ones out. On a live wire `JsonRpcPeer` moves the frames of
`connection`, and `decode_notification` and `request` decode them; `receive` does both, for replays and tests.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET

from serai.dialects.piglet import neutral
from serai.dialects.piglet.events import (
    Answered,
    Asked,
    BadParams,
    BadTold,
    Event,
    Registered,
    RegistrationRefused,
    Told,
    UnknownMethod,
    UnknownTold,
)
from serai.dialects.piglet.messages import InitializeResult, Wire
from serai.dialects.piglet.methods import METHODS, Method, MethodSpec, decode_params, decode_result
from serai.wire import jsonrpc
from serai.wire.codec import BAD_INPUT, encode
from serai.wire.stream import Oversize, PendingCall

INVALID_PARAMS = -32602
NOT_FOUND = -32604  # a thing, not a method (spec piglet 2.4)


class TypedSide:
    """One end of one guest's wire. `_sender` is who speaks at the other end."""

    _sender: Literal["host", "guest"]

    def __init__(self) -> None:
        # The answer to `initialize` alone may be empty (spec piglet 2.3).
        self.connection = jsonrpc.JsonRpcConnection(folded=True, bare=frozenset({str(Method.INITIALIZE)}))

    # -- input ------------------------------------------------------------------------------------------------------------------

    def receive(self, run: bytes) -> list[Event]:
        return [self._decode(event) for event in self.connection.receive(run)]

    def note_sent(self, run: bytes, now: float) -> None:
        """Take up what this side said earlier, as in a replay: the answers to it then find their calls."""
        self.connection.note_sent(run, now)

    def oversize(self, frame: Oversize) -> list[PendingCall[jsonrpc.Id]]:
        """The calls that an oversize frame ends: the one it answered if its head tells, else all (design rule 5)."""
        return self.connection.oversize(frame)

    def lose(self) -> list[PendingCall[jsonrpc.Id]]:
        """The other side is gone: every waiting call."""
        return self.connection.lose()

    def next_deadline(self) -> float | None:
        return self.connection.next_deadline()

    def decode_notification(self, heard: jsonrpc.Notification) -> Event:
        """What a notification means."""
        row = self._find_spec(heard.method)
        if row is None or row.result is not None:
            return UnknownTold(heard.method, encode({"method": heard.method, "params": heard.params}).rstrip())
        try:
            return Told(heard.method, decode_params(heard.method, heard.params))
        except BAD_INPUT as error:
            return BadTold(heard.method, str(error))

    def decode_request(self, heard: jsonrpc.Request) -> Event:
        """What a request means."""
        row = self._find_spec(heard.method)
        if row is None or (row.result is None and heard.method != Method.SHUTDOWN):  # which may be a request too (spec piglet 5.10)
            return UnknownMethod(heard)
        try:
            return Asked(heard, heard.method, decode_params(heard.method, heard.params))
        except BAD_INPUT as error:
            return BadParams(heard, str(error))

    # -- commands: each gives the frame to send ---------------------------------------------------------------------------------

    def ask(
        self, method: str, params: object = UNSET, *, now: float = 0.0, timeout: float | None = None, waiter: Any = None
    ) -> tuple[PendingCall[jsonrpc.Id], bytes]:
        """A request, such as `host/chat`. The call is waiting from now on."""
        return self.connection.request(method, params, now=now, timeout=timeout, waiter=waiter)

    def tell(self, method: str, params: object = UNSET) -> bytes:
        """A notification."""
        return self.connection.notify(method, params)

    def answer(self, request: jsonrpc.Request, result: Wire | dict[str, Any] | None = None) -> bytes | None:
        """None when it is not open any more. No result is `{}`, the answer of all that has nothing to say."""
        return self.connection.answer(request, {} if result is None else result)

    def refuse(self, request: jsonrpc.Request, message: str, code: int = jsonrpc.INTERNAL_ERROR) -> bytes | None:
        return self.connection.refuse(request, code, message)

    def refuse_odd(self, odd: BadParams | UnknownMethod) -> bytes | None:
        """The answer to a request that cannot be served, in the words of spec piglet 2.4."""
        if isinstance(odd, BadParams):
            return self.refuse(odd.request, f"invalid params: {odd.why}", INVALID_PARAMS)
        return self.refuse(odd.request, f"method not found: {odd.request.method}", jsonrpc.METHOD_NOT_FOUND)

    # -- inside -----------------------------------------------------------------------------------------------------------------

    def _find_spec(self, method: str) -> MethodSpec | None:
        """The method's row, if the other side may send it."""
        row = METHODS.get(method)
        return row if row is not None and row.sender in (self._sender, "both") else None

    def _decode(self, event: jsonrpc.Event) -> Event:
        match event:
            case jsonrpc.Notification():
                return self.decode_notification(event)
            case jsonrpc.Request():
                return self.decode_request(event)
            case jsonrpc.Answer():
                return self._decode_answer(event)
            case _:
                return event

    @staticmethod
    def _decode_answer(answer: jsonrpc.Answer) -> Event:
        """An answer that cannot be read is a bad one (design rule 7), but to `initialize` any will do (spec piglet 3)."""
        method = answer.call.what
        if method not in METHODS or METHODS[method].result is None:  # as a recording may have it
            return jsonrpc.Garbled(answer.call, bytes(answer.result), f"{method} has no answer in the protocol")
        try:
            return Answered(answer.call, decode_result(method, answer.result))
        except BAD_INPUT as error:
            if method == Method.INITIALIZE:
                return Answered(answer.call, InitializeResult(), str(error))
            return jsonrpc.Garbled(answer.call, bytes(answer.result), str(error))


_REGISTER = "register/"


class HostSide(TypedSide):
    """The host's end of one guest's wire."""

    _sender = "guest"

    def decode_notification(self, heard: jsonrpc.Notification) -> Event:
        event = super().decode_notification(heard)
        if not heard.method.startswith(_REGISTER):
            return event
        match event:
            case Told(method=method, params=params):
                why = neutral.find_fault(params)
                return RegistrationRefused(method, why) if why else Registered(method, params)
            case BadTold(method=method, why=why):
                return RegistrationRefused(method, why)
        return event
