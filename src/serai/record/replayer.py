"""A recorded wire played back to a dialect, so that a bug report becomes a test.

A dialect's side is a sans-IO object (`Side`). It gets the frames that its peer sent, as they came, and is told what it said itself
in between, so that answers find their questions. What it makes of them are the same events as on the day of the recording.

Replayed from Serai's side ("ours"), the events are those that Serai saw; from the peer's ("theirs"), those that a peer would have
seen of Serai.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from serai.errors import NoRecording
from serai.record.recording import Recording
from serai.record.segment import Dropped, End, Frames, Skipped
from serai.wire.stream import Oversize

View = Literal["ours", "theirs"]


class Side(Protocol):
    """One side of a dialect, as far as a replay needs it."""

    def receive(self, run: bytes) -> list[Any]:
        """What the other side said; what follows from it."""
        ...

    def sent(self, run: bytes, now: float) -> None:
        """What this side said."""
        ...

    def oversize(self, frame: Oversize) -> list[Any]:
        """A frame of the other side's that was too long to be kept."""
        ...

    def lose(self) -> list[Any]:
        """The wire is over; what was still waited for."""
        ...


class Replayed(NamedTuple):
    """What a side made of the frames of that moment, in microseconds since 1970."""

    at: int
    event: object


# By dialect: the side that Serai takes and the one its peer takes.
DIALECTS: dict[str, dict[View, str]] = {
    "jsonrpc": {"ours": "serai.wire.jsonrpc:JsonRpcConnection", "theirs": "serai.wire.jsonrpc:JsonRpcConnection"},
    "zot": {"ours": "serai.dialects.zot.host_side:HostSide", "theirs": "serai.dialects.zot.peer_side:PeerSide"},
    "piglet": {"ours": "serai.dialects.piglet.host_side:HostSide", "theirs": "serai.dialects.piglet.peer_side:PeerSide"},
    "claude": {"ours": "serai.dialects.claude.host_side:HostSide", "theirs": "serai.dialects.claude.peer_side:PeerSide"},
}


def side_of(dialect: str, view: View = "ours") -> Side:
    """A fresh side of a dialect."""
    if dialect not in DIALECTS:
        raise NoRecording(
            f"nothing here replays the dialect {dialect!r}", hint=f"name one that is spoken on the wire: {', '.join(DIALECTS)}"
        )
    module, _, name = DIALECTS[dialect][view].partition(":")
    make: Callable[[], Side] = getattr(import_module(module), name)
    return make()


def replay(
    recording: Recording,
    wire: int,
    side: Side | None = None,
    *,
    view: View = "ours",
    mask: Callable[[bytes], bytes] = lambda run: run,
) -> Iterator[Replayed]:
    """Play one wire of a recording to `side` (by default a fresh one of its dialect) and give what it says, in order.

    Where frames are missing, the `Dropped` entry that says so is given in their place. Two things a recording cannot know, so a
    replay may differ there: calls that were made but never written to a peer that did not read, and calls that were given up in a
    dialect that does not say so on the wire.
    """
    about = recording.wire(wire)
    side = side or side_of(about.dialect, view)
    theirs = "received" if view == "ours" else "sent"
    for entry in recording.entries():
        if isinstance(entry, Frames) and entry.wire == wire:
            if entry.way == theirs:
                yield from (Replayed(entry.at, event) for event in side.receive(mask(entry.run)))
            else:
                side.sent(mask(entry.run), entry.at / 1e6)
        elif isinstance(entry, Dropped) and entry.wire in (0, wire):
            yield Replayed(entry.at, entry)
        elif isinstance(entry, Skipped) and entry.wire == wire and view == "ours":
            frame = Oversize(entry.size, entry.head.encode(), entry.limit)
            yield Replayed(entry.at, frame)
            yield from (Replayed(entry.at, event) for event in side.oversize(frame))
        elif isinstance(entry, End) and entry.wire == wire:
            yield from (Replayed(entry.at, event) for event in side.lose())


def describe(event: object) -> dict[str, Any]:
    """An event as plain data: its name and its parts. Two events are the same when their descriptions are."""
    if isinstance(event, msgspec.Struct):
        parts = {name: getattr(event, name) for name in event.__struct_fields__}
    elif hasattr(event, "_asdict"):
        parts = event._asdict()
    else:
        parts = {"value": event}
    # Times differ between a live wire and its replay, and a future waits only in the former.
    plain = {name: _plain(value) for name, value in parts.items() if name not in ("sent", "deadline", "timeout", "waiter")}
    return {"event": type(event).__name__, **plain}


def _plain(value: object) -> Any:
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode(errors="replace")
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return describe(value) if isinstance(value, msgspec.Struct) else value
