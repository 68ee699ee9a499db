"""Serai's side of a piglet wire (sans-IO): what a guest registers, tells and asks, in typed words.

On a live wire `wire.rpc.Rpc` moves the frames of `connection`, and `notification` and `request` say what they mean; `receive` does
both, for replays and tests.
"""

from __future__ import annotations

from serai.dialects.piglet import neutral
from serai.dialects.piglet.heard import (
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
from serai.dialects.piglet.side import INVALID_PARAMS, NOT_FOUND, Side
from serai.wire import jsonrpc

__all__ = [
    "INVALID_PARAMS",
    "NOT_FOUND",
    "Answered",
    "Asked",
    "BadParams",
    "BadTold",
    "Event",
    "Ours",
    "Registered",
    "RegistrationRefused",
    "Told",
    "UnknownMethod",
    "UnknownTold",
]

_REGISTER = "register/"


class Ours(Side):
    """The host's end of one guest's wire."""

    _sender = "guest"

    def notification(self, heard: jsonrpc.Notification) -> Event:
        event = super().notification(heard)
        if not heard.method.startswith(_REGISTER):
            return event
        match event:
            case Told(method=method, params=params):
                why = neutral.why_not(params)
                return RegistrationRefused(method, why) if why else Registered(method, params)
            case BadTold(method=method, why=why):
                return RegistrationRefused(method, why)
        return event
