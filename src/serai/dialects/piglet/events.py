"""What a side of a piglet wire says happened: the events of `HostSide` and `PeerSide`, beside those of `wire.jsonrpc`."""

from __future__ import annotations

from typing import Any

import msgspec

from serai.dialects.piglet.messages import Wire
from serai.wire import jsonrpc
from serai.wire.codec import Noise, Unknown
from serai.wire.stream import PendingCall


class Registered(msgspec.Struct, frozen=True):
    """The guest offers something that can be taken (spec piglet 4)."""

    method: str
    params: Any  # a `messages.Register…Params`


class RegistrationRefused(msgspec.Struct, frozen=True, gc=False):
    """A registration that cannot be taken: its parameters are none, or what must have a name has none (FIX-10)."""

    method: str
    why: str


class Told(msgspec.Struct, frozen=True):
    """Any other notification of the protocol."""

    method: str
    params: Any


class BadTold(msgspec.Struct, frozen=True, gc=False):
    """A notification of the protocol whose parameters are none: ignored (spec piglet 7.2)."""

    method: str
    why: str


class UnknownTold(msgspec.Struct, frozen=True):
    """A notification that the protocol does not have: ignored (spec piglet 2.3), its bytes kept (design rule 4)."""

    method: str
    raw: bytes


class Asked(msgspec.Struct, frozen=True):
    """The other side asks, and is owed an answer."""

    request: jsonrpc.Request
    method: str
    params: Any


class BadParams(msgspec.Struct, frozen=True):
    """A request whose parameters are none: -32602 (spec piglet 2.4)."""

    request: jsonrpc.Request
    why: str


class UnknownMethod(msgspec.Struct, frozen=True):
    """A request that the protocol does not have: -32601."""

    request: jsonrpc.Request


class Answered(msgspec.Struct, frozen=True):
    """One of our calls succeeded.

    `why` says what was wrong with the answer to `initialize`, which counts all the same (spec piglet 3).
    """

    call: PendingCall[jsonrpc.Id]
    result: Wire
    why: str = ""


Event = (
    Registered
    | RegistrationRefused
    | Told
    | BadTold
    | UnknownTold
    | Asked
    | BadParams
    | UnknownMethod
    | Answered
    | jsonrpc.Failure
    | jsonrpc.Garbled
    | jsonrpc.Cancelled
    | jsonrpc.Stray
    | Noise
    | Unknown
)
