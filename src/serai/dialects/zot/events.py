"""What Serai's side of a zot wire says happened: the events of `host_side.HostSide`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from serai.dialects.zot.messages import CommandResponse, EventInterceptResponse, Malformed, Stray, ToolResult, UnknownFrame
from serai.wire.stream import PendingCall

__all__ = [
    "Answer",
    "Answered",
    "CommandOffered",
    "Event",
    "Expired",
    "Garbled",
    "Hello",
    "Malformed",
    "NoHello",
    "Notified",
    "PanelClosed",
    "PanelRendered",
    "Ready",
    "Repeated",
    "ShutdownAcknowledged",
    "Stray",
    "Subscribed",
    "ToolOffered",
    "ToolRefused",
    "UnknownFrame",
]

Answer = ToolResult | CommandResponse | EventInterceptResponse


class Hello(msgspec.Struct, frozen=True, gc=False):
    """The guest is there: welcome it. All of this is advisory; the manifest's name counts (spec zot 2.2)."""

    name: str
    version: str
    capabilities: tuple[str, ...]


class NoHello(msgspec.Struct, frozen=True, gc=False):
    """The guest did not begin with a hello, or not in time (`late`); it must be ended."""

    why: str
    raw: bytes
    late: bool = False


class ToolOffered(msgspec.Struct, frozen=True):
    name: str
    description: str
    schema: dict[str, Any]


class ToolRefused(msgspec.Struct, frozen=True, gc=False):
    """A tool that cannot be taken."""

    name: str
    why: str


class CommandOffered(msgspec.Struct, frozen=True, gc=False):
    name: str
    description: str


class Repeated(msgspec.Struct, frozen=True, gc=False):
    """A second registration of a name: the first one stays (spec zot 2.3)."""

    what: Literal["tool", "command"]
    name: str


class Subscribed(msgspec.Struct, frozen=True, gc=False):
    """All that the guest has subscribed to so far; `unknown` are names of this frame that never fire."""

    events: frozenset[str]
    intercept: frozenset[str]
    unknown: tuple[str, ...] = ()


class Ready(msgspec.Struct, frozen=True, gc=False):
    """The registration window is closed: by the guest's frame, because it fell silent, or because it took too long."""

    how: Literal["frame", "idle", "late"]


class Answered(msgspec.Struct, frozen=True, gc=False):
    call: PendingCall[str]
    frame: Answer


class Garbled(msgspec.Struct, frozen=True):
    """A call was answered, but the answer cannot be read: a bad answer, not a late one (design rule 7)."""

    call: PendingCall[str]
    raw: bytes
    why: str


class Expired(msgspec.Struct, frozen=True):
    """A call was not answered in time; no frame tells the guest (spec zot 4.1)."""

    call: PendingCall[str]


class Notified(msgspec.Struct, frozen=True, gc=False):
    level: str
    message: str


class PanelRendered(msgspec.Struct, frozen=True, gc=False):
    panel_id: str
    title: str
    lines: tuple[str, ...]
    footer: str


class PanelClosed(msgspec.Struct, frozen=True, gc=False):
    panel_id: str


class ShutdownAcknowledged(msgspec.Struct, frozen=True, gc=False):
    pass


Event = (
    Hello
    | NoHello
    | ToolOffered
    | ToolRefused
    | CommandOffered
    | Repeated
    | Subscribed
    | Ready
    | Answered
    | Garbled
    | Expired
    | Stray
    | Notified
    | PanelRendered
    | PanelClosed
    | ShutdownAcknowledged
    | Malformed
    | UnknownFrame
)
