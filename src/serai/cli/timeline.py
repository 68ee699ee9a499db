"""A recording as people read it: one line per frame, or the frames in full.

Whatever is shown comes from programs one may not trust, or from somebody else's file. So every text goes through `shown`: what
looks like a secret is masked, and what a terminal would act upon is spelt out.
"""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from serai.cli.plain import printable
from serai.record import secret_patterns
from serai.record.recording import RecordedWire, Recording, TimelineItem

__all__ = ["as_json", "line", "moment", "pretty", "shown", "summary", "width_of"]

_ARROWS = {"sent": "→", "received": "←"}
_COLOURS = {"open": "green", "end": "yellow", "skipped": "red", "dropped": "red", "damaged": "red", "note": None}
_WIDTH = 100  # of a frame on its line
_NAME = 40  # of a name
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def shown(text: str | bytes, width: int = _WIDTH) -> str:
    """The beginning of a text as it may be shown, on one line."""
    raw = text[: 4 * width + 400]  # more than is shown, so that a secret that begins in it is seen whole
    masked = secret_patterns.mask(raw if isinstance(raw, bytes) else raw.encode(errors="replace")).decode(errors="replace")
    text = printable(masked)
    return text if len(text) <= width else text[: width - 1] + "…"


def summary(recording: Recording) -> str:
    """What it is, in one line."""
    wires = recording.wires.values()
    sent, received = sum(wire.frames["sent"] for wire in wires), sum(wire.frames["received"] for wire in wires)
    about = f"{shown(recording.run, _NAME)}: {len(wires)} wires, {sent:,} frames sent, {received:,} received"
    return about + (f", {recording.damage:,} bytes cannot be read" if recording.damage else "")


def width_of(wires: dict[int, RecordedWire]) -> int:
    """How wide the column of names has to be."""
    return max((len(shown(wire.who, _NAME)) for wire in wires.values()), default=0)


def line(item: TimelineItem, wires: dict[int, RecordedWire], width: int = 0) -> str:
    """One item in one line; `width` is that of the names."""
    wire = wires.get(item.wire)
    who = shown(wire.who if wire else "", _NAME).ljust(width)
    head = f"{click.style(moment(item.at), dim=True)} {item.number:>6}  {who} "
    if item.what != "frame":
        return head + click.style(f"· {item.what}: {shown(item.text)}", fg=_COLOURS[item.what])
    took = f"{item.latency / 1000:,.3f} ms " if item.latency is not None and item.request is not None else ""
    type_, id = shown(item.type, _NAME), shown(item.id, _NAME)
    label = f"{_ARROWS[item.way or 'sent']} {click.style(type_, bold=True)} {id}{' ' if id else ''}{took}"
    return head + label + click.style(shown(item.raw), dim=True)


def pretty(item: TimelineItem) -> str:
    """The frame in full, indented; as it is when it is no JSON."""
    frame = secret_patterns.mask(item.raw)
    try:
        text = msgspec.json.format(frame, indent=2).decode()
    except _BAD:
        text = frame.decode(errors="replace")
    return "\n".join(f"    {printable(part)}" for part in text.splitlines())


def as_json(item: TimelineItem, wires: dict[int, RecordedWire]) -> str:
    """The item as one line of JSON; the frame as JSON in it, or as text when it is none."""
    wire = wires.get(item.wire)
    form: dict[str, Any] = {"number": item.number, "what": item.what, "at": item.at / 1e6, "wire": item.wire}
    form |= {"who": secret_patterns.mask_text(wire.who)} if wire else {}
    if item.what == "frame":
        form |= {
            "way": item.way,
            "type": secret_patterns.mask_text(item.type),
            "id": secret_patterns.mask_text(item.id),
            "size": item.size,
        }
        form |= {"request": item.request} if item.request is not None else {}
        form |= {"latency_us": item.latency} if item.latency is not None else {}
        form["frame"] = _frame(secret_patterns.mask(item.raw))
    else:
        form["text"] = secret_patterns.mask_text(item.text)
    return msgspec.json.encode(form).decode()


def moment(micros: int) -> str:
    """The time of day here."""
    seconds, rest = divmod(micros, 1_000_000)
    try:
        return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest // 1000:03}"
    except (OverflowError, ValueError, OSError):  # of a year that nobody knows
        return "--:--:--.---"


def _frame(frame: bytes) -> Any:
    try:
        compact = msgspec.json.format(frame, indent=-1)  # on one line, whatever line ends it holds
        compact.decode()
    except _BAD:
        return frame.decode(errors="replace")
    return msgspec.Raw(compact)
