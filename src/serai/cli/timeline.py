"""A recording as people read it: one line per frame, or the frames in full."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from serai.record import lookalikes
from serai.record.recording import Item, Recording, Wire

__all__ = ["as_json", "line", "masked", "moment", "pretty", "short", "summary"]

_ARROWS = {"sent": "→", "received": "←"}
_COLOURS = {"open": "green", "end": "yellow", "skipped": "red", "dropped": "red", "damaged": "red", "note": None}
_WIDTH = 100


def summary(recording: Recording) -> str:
    """What it is, in one line."""
    wires = recording.wires.values()
    sent, received = sum(wire.frames["sent"] for wire in wires), sum(wire.frames["received"] for wire in wires)
    about = f"{recording.run}: {len(wires)} wires, {sent:,} frames sent, {received:,} received"
    return about + (f", {recording.damage} bytes cannot be read" if recording.damage else "")


def line(item: Item, wires: dict[int, Wire], width: int = 0) -> str:
    """One item in one line; `width` is that of the names."""
    wire = wires.get(item.wire)
    who = (wire.who if wire else "").ljust(width)
    head = f"{click.style(moment(item.at), dim=True)} {item.number:>6}  {who} "
    if item.what != "frame":
        return head + click.style(f"· {item.what}: {short(item.text.encode())}", fg=_COLOURS[item.what])
    took = f"{item.latency / 1000:,.3f} ms " if item.latency is not None and item.request is not None else ""
    label = f"{_ARROWS[item.way or 'sent']} {click.style(item.type, bold=True)} {item.id}{' ' if item.id else ''}{took}"
    return head + label + click.style(short(item.raw), dim=True)


def pretty(item: Item) -> str:
    """The frame in full, indented; as it is when it is no JSON."""
    frame = lookalikes.mask(item.raw)
    try:
        text = msgspec.json.format(frame, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = frame.decode(errors="replace")
    return "\n".join(f"    {_printable(part)}" for part in text.splitlines())


def as_json(item: Item, wires: dict[int, Wire]) -> str:
    """The item as one line of JSON; the frame as JSON in it, or as text when it is none."""
    wire = wires.get(item.wire)
    form: dict[str, Any] = {"number": item.number, "what": item.what, "at": item.at / 1e6, "wire": item.wire}
    form |= {"who": wire.who} if wire else {}
    if item.what == "frame":
        form |= {"way": item.way, "type": item.type, "id": item.id, "size": item.size}
        form |= {"request": item.request} if item.request is not None else {}
        form |= {"latency_us": item.latency} if item.latency is not None else {}
        form["frame"] = _frame(lookalikes.mask(item.raw))
    else:
        form["text"] = masked(item.text.encode())
    return msgspec.json.encode(form).decode()


def moment(micros: int) -> str:
    """The time of day here."""
    seconds, rest = divmod(micros, 1_000_000)
    return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest // 1000:03}"


def masked(text: bytes) -> str:
    """Text of a recording as it may be shown."""
    return lookalikes.mask(text).decode(errors="replace")


def short(text: bytes) -> str:
    """The beginning of it, on one line, as it may be shown."""
    return _cut(masked(text[: 4 * _WIDTH]))


def _frame(frame: bytes) -> Any:
    try:
        return msgspec.Raw(msgspec.json.format(frame, indent=-1))  # on one line, whatever line ends it holds
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return frame.decode(errors="replace")


def _cut(text: str) -> str:
    text = _printable(text)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _printable(text: str) -> str:
    """What a terminal must not act upon is shown and not sent: frames come from programs one may not trust."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
