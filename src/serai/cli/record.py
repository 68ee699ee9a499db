"""`serai record`: recordings as people read them, one line per frame or the frames in full.

What is shown comes from programs one may not trust, or from somebody else's file. So every text goes through `shown`: what looks
like a secret is masked, and terminal escapes are spelt out.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from serai.cli.options import load_user_limits
from serai.errors import NoRecording
from serai.plain_text import escape_line, shorten
from serai.record import RecordingFolder, TimelineFilter, export_recording, replay, secret_patterns
from serai.record.recording import DIALECTS, RecordedWire, Recording, TimelineItem, describe, make_side, read_head
from serai.record.recording_folder import RecordedRun

_ARROWS = {"sent": "→", "received": "←"}
_COLOURS = {"open": "green", "end": "yellow", "skipped": "red", "dropped": "red", "damaged": "red", "note": None}
_WIDTH = 100  # of a frame on its line
_NAME = 40  # of a name
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def format_text(text: str | bytes, width: int = _WIDTH) -> str:
    """The beginning of a text as it may be shown, on one line."""
    raw = text[: 4 * width + 400]  # more than is shown, so that a secret that begins in it is seen whole
    masked = secret_patterns.mask(raw if isinstance(raw, bytes) else raw.encode(errors="replace")).decode(errors="replace")
    return shorten(escape_line(masked), width)


def summarize(recording: Recording) -> str:
    """What it is, in one line."""
    wires = recording.wires.values()
    sent, received = sum(wire.frames["sent"] for wire in wires), sum(wire.frames["received"] for wire in wires)
    about = f"{format_text(recording.run, _NAME)}: {len(wires)} wires, {sent:,} frames sent, {received:,} received"
    return about + (f", {recording.damage:,} bytes cannot be read" if recording.damage else "")


def measure_names(wires: dict[int, RecordedWire]) -> int:
    """How wide the column of names has to be."""
    return max((len(format_text(wire.who, _NAME)) for wire in wires.values()), default=0)


def format_item(item: TimelineItem, wires: dict[int, RecordedWire], width: int = 0) -> str:
    """One item in one line; `width` is that of the names."""
    wire = wires.get(item.wire)
    who = format_text(wire.who if wire else "", _NAME).ljust(width)
    head = f"{click.style(format_time_of_day(item.at), dim=True)} {item.number:>6}  {who} "
    if item.what != "frame":
        return head + click.style(f"· {item.what}: {format_text(item.text)}", fg=_COLOURS[item.what])
    took = f"{item.latency / 1000:,.3f} ms " if item.latency is not None and item.request is not None else ""
    type_, id = format_text(item.type, _NAME), format_text(item.id, _NAME)
    label = f"{_ARROWS[item.way or 'sent']} {click.style(type_, bold=True)} {id}{' ' if id else ''}{took}"
    return head + label + click.style(format_text(item.raw), dim=True)


def format_frame(item: TimelineItem) -> str:
    """The frame in full, indented; as it is when it is no JSON."""
    frame = secret_patterns.mask(item.raw)
    try:
        text = msgspec.json.format(frame, indent=2).decode()
    except _BAD:
        text = frame.decode(errors="replace")
    return "\n".join(f"    {escape_line(part)}" for part in text.splitlines())


def dump_item(item: TimelineItem, wires: dict[int, RecordedWire]) -> str:
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
        form["frame"] = _compact_frame(secret_patterns.mask(item.raw))
    else:
        form["text"] = secret_patterns.mask_text(item.text)
    return msgspec.json.encode(form).decode()


def format_time_of_day(micros: int) -> str:
    """The time of day here."""
    seconds, rest = divmod(micros, 1_000_000)
    try:
        return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest // 1000:03}"
    except (OverflowError, ValueError, OSError):  # of a year that nobody knows
        return "--:--:--.---"


def _compact_frame(frame: bytes) -> Any:
    try:
        compact = msgspec.json.format(frame, indent=-1)  # on one line, whatever line ends it holds
        compact.decode()
    except _BAD:
        return frame.decode(errors="replace")
    return msgspec.Raw(compact)


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

RUN = click.argument("run", default="")
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")


@click.group()
def record() -> None:
    """Show, export, replay and remove recordings: every frame on every wire.

    RUN is the name of a recording, the start or the end of it, or the path of an exported file; the latest one by default.
    """


@record.command("list")
@JSON
def list_(*, as_json: bool) -> None:
    """The recordings there are, the latest last."""
    folder = RecordingFolder.usual()
    if not (runs := folder.list_runs()):
        click.echo(f"nothing was recorded yet in {format_text(str(folder.path))}", err=True)
    for run in runs:
        command = format_text(_read_command(run))
        about = {"run": run.name, "started": run.started.isoformat(), "bytes": run.size, "running": run.live, "command": command}
        if as_json:
            click.echo(msgspec.json.encode(about))
        else:
            state = click.style("  still running", fg="green") if run.live else ""
            click.echo(f"{run.name}  {run.started.astimezone():%Y-%m-%d %H:%M:%S}  {_format_size(run.size):>10}  {command}{state}")


def _read_command(run: RecordedRun) -> str:
    try:
        return read_head(run.files[0]).command
    except (NoRecording, OSError) as error:  # one bad file must not hide the others
        return f"({error.message if isinstance(error, NoRecording) else error.strerror})"


def _filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that choose what to see of a recording."""
    for option in (
        click.option("--wire", type=int, help="Only this wire, by its number."),
        click.option("--who", "--guest", default="", help="Only wires to this peer, such as zot:weather or zot:*."),
        click.option("--type", "type_", default="", help="Only frames of this type or method, such as tool_call or tools/*."),
        click.option("--sent", "way", flag_value="sent", help="Only what Serai sent."),
        click.option("--received", "way", flag_value="received", help="Only what it received."),
        click.option("--since", default="", help="From then on: 12:30, 2026-11-15T12:30, or 10m (ago)."),
        click.option("--until", default="", help="Up to then."),
        click.option("--text", default="", help="Only what contains this text."),
    ):
        command = option(command)
    return command


@record.command()
@RUN
@_filter_options
@click.option("--pairs", is_flag=True, help="Only requests that were answered, with their answers and the time between.")
@click.option("--pretty", is_flag=True, help="The frames in full.")
@click.option("--first", type=click.IntRange(0), help="Only so many, from the start.")
@click.option("--last", type=click.IntRange(0), help="Only so many, at the end.")
@JSON
def show(run: str, *, pairs: bool, pretty: bool, first: int | None, last: int | None, as_json: bool, **chosen: Any) -> None:
    """The timeline of a recording: all wires in the order of time."""
    with Recording.open(run) as recording:
        if chosen["wire"] is not None:
            recording.get_wire(chosen["wire"])
        items: Iterable[Any] = recording.iter_timeline(_build_filter(pairs=pairs, **chosen))
        if first is not None:
            items = islice(items, first)
        if last is not None:
            items = deque(items, maxlen=last)
        width = measure_names(recording.wires)
        if not as_json:
            click.secho(summarize(recording), bold=True)
        for item in items:
            click.echo(dump_item(item, recording.wires) if as_json else format_item(item, recording.wires, width))
            if pretty and not as_json and item.what == "frame":
                click.echo(format_frame(item))


@record.command("export")
@RUN
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The file to write.")
@click.option("--wire", type=int, help="Only this wire, by its number.")
@click.option("--who", "--guest", default="", help="Only wires to this peer.")
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
def export_(run: str, *, output: Path, wire: int | None, who: str, force: bool) -> None:
    """One file for somebody else. What looks like a secret is masked; look at it before you send it all the same."""
    with Recording.open(run) as recording:
        if wire is not None:
            recording.get_wire(wire)
        kept = recording.find_wires(TimelineFilter(wire=wire, who=who))
        size = export_recording(recording, output, keep=kept.__contains__, replace=force)
    click.echo(f"{output}: {len(kept)} wires, {_format_size(size)}. Open it with: serai record show {output}")


@record.command("replay")
@RUN
@click.option("--wire", type=int, help="The wire, by its number; not needed when there is only one.")
@click.option("--side", type=click.Choice(["ours", "theirs"]), default="ours", help="Whose side is played.")
@click.option("--dialect", type=click.Choice(list(DIALECTS)), help="By default the one that was spoken.")
@JSON
def replay_(run: str, *, wire: int | None, side: Literal["ours", "theirs"], dialect: str | None, as_json: bool) -> None:
    """Play a wire to its dialect again and print what the dialect makes of it."""
    with Recording.open(run) as recording:
        about = recording.get_wire(wire)
        chosen = make_side(dialect or about.dialect, side)
        for at, event in replay(recording, about.number, chosen, view=side, mask=secret_patterns.mask_run):
            plain = describe(event)
            if as_json:
                click.echo(msgspec.json.encode({"at": at / 1e6, **plain}))
            else:
                name = click.style(plain.pop("event"), bold=True)
                click.echo(f"{format_time_of_day(at)} {name} {format_text(msgspec.json.encode(plain))}")


@record.command()
@click.option("--older", default="", help="What is older than this, such as 3d.")
@click.option("--total", default="", help="The oldest, until no more than this is left, such as 200M.")
@click.option("--all", "everything", is_flag=True, help="All but what is being written.")
def prune(*, older: str, total: str, everything: bool) -> None:
    """Remove recordings; without options what the limits say. One that is being written stays."""
    folder = RecordingFolder.usual()
    if everything:
        removed = folder.prune(total=0)
    elif older or total:
        removed = folder.prune(days=_parse_seconds(older) / 86400 if older else None, total=_parse_size(total) if total else None)
    else:
        removed = folder.prune_to_limits(load_user_limits())
    for file in removed:
        click.echo(f"removed {file.name}")
    click.echo(f"{len(removed)} files removed, {_format_size(sum(run.size for run in folder.list_runs()))} left")


def _build_filter(*, type_: str, since: str, until: str, **others: Any) -> TimelineFilter:
    return TimelineFilter(type=type_, since=_parse_moment(since), until=_parse_moment(until), **others)


def _parse_moment(text: str) -> datetime | None:
    """A time of today, a full date and time, or so long ago."""
    if not text:
        return None
    now = datetime.now().astimezone()
    try:
        if re.fullmatch(r"[\d.]+[smhd]", text):
            return now - timedelta(seconds=_parse_seconds(text))
        if re.match(r"\d\d?:", text):
            text = f"{now.date()}T{text:0>{len(text) + (text[1] == ':')}}"
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is no time: give 12:30, 2026-11-15T12:30, or 10m") from None


def _parse_seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no span of time: give 90s, 10m, 2h or 3d")
    return float(match[1]) * _UNITS[match[2]]


def _parse_size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)i?B?", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no size: give 200M or 1G")
    return int(match[1]) * _SIZES[match[2]]


def _format_size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
