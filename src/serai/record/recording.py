"""A recording, opened: its wires, its timeline, its frames, and which answers belong to which requests.

Opening reads the files once and builds an index in a private SQLite database, which spills to disk when it is large; frames
themselves stay in the files and are read on demand. `export_recording` makes one file of it that another person can open:
look-alikes of secrets masked, and only the wires that matter.

`summarize_frame` tells what a frame is, at a glance: its type, the id it carries, and whether it asks or answers. One reading for
all dialects, from what their frames have in common: a `method` or a `type`, an `id` or a `request_id`. It is for people who look
at a timeline; the dialects themselves are exact.

`replay` plays a recorded wire to a dialect, so that a bug report becomes a test. A dialect's side is a sans-IO object (`Side`). It
gets the frames that its peer sent, as they came, and is told what it said itself in between, so that answers find their questions.
What it makes of them are the same events as on the day of the recording. Replayed from Serai's side ("ours"), they are those that
Serai saw; from the peer's ("theirs"), those that a peer would have seen of Serai.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from importlib import import_module
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self

import msgspec
from msgspec import Raw

from serai.errors import ExitStatus, NoRecording, NotRecorded
from serai.record import secret_patterns, segment
from serai.record.recording_folder import RecordingFolder
from serai.record.segment import (
    Damaged,
    Dropped,
    End,
    Entry,
    FrameDirection,
    Frames,
    Head,
    Note,
    Open,
    Skipped,
    map_texts,
    pack,
    pack_frames_head,
)
from serai.wire.stream import Oversize

_SCHEMA = """
CREATE TABLE items (
    number INTEGER PRIMARY KEY, what TEXT NOT NULL, at INTEGER NOT NULL, wire INTEGER NOT NULL,
    way TEXT, type TEXT, id BLOB, file INTEGER, offset INTEGER, size INTEGER,
    request INTEGER, latency INTEGER, text TEXT);
CREATE TABLE chosen (wire INTEGER PRIMARY KEY);
"""
_INSERT = "INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_MANY = 10_000


@dataclass(slots=True)
class RecordedWire:
    """Who was at the other end, and how it went. Times are microseconds since 1970; `ended` is 0 when no end is on record."""

    number: int
    who: str
    kind: str = ""
    dialect: str = ""
    generation: int = 0
    pid: int = 0
    framing: str = "lines"
    started: int = 0
    ended: int = 0
    why: str = ""
    error: str = ""
    exit: ExitStatus | None = None
    stderr: str = ""
    frames: dict[FrameDirection, int] = field(default_factory=lambda: {"sent": 0, "received": 0})
    bytes: dict[FrameDirection, int] = field(default_factory=lambda: {"sent": 0, "received": 0})
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class TimelineItem:
    """One line of the timeline. `what` is "frame", or what happened to a wire or to the recording, said in `text`."""

    number: int
    what: Literal["frame", "open", "end", "skipped", "dropped", "note", "damaged"]
    at: int
    wire: int
    way: FrameDirection | None = None
    type: str = ""
    id: str = ""
    size: int = 0
    request: int | None = None  # the number of the frame that this one answers
    latency: int | None = None  # microseconds between the two; on both of them
    text: str = ""
    raw: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineFilter:
    """What to see of a timeline; everything by default. `who` and `type` match a whole name, or its start before a `*`."""

    wire: int | None = None
    who: str = ""
    type: str = ""
    way: FrameDirection | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""
    pairs: bool = False  # only requests and their answers


class Recording:
    """Made by `open`; close it, or use it as a context manager."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files
        self.run = files[0].name.split(".")[0]  # for a file whose head was not written when its host was killed
        self.command = ""
        self.started = 0
        self.wires: dict[int, RecordedWire] = {}
        self.damage = 0  # bytes that could not be read
        self._opened: list[BufferedReader] = []
        self._index = sqlite3.connect("")  # private, in memory until it is large
        self._index.executescript(_SCHEMA)
        try:
            self._build_index()
        except OSError as error:
            self.close()
            raise NoRecording(f"it cannot be read: {error.strerror}", who=str(files[0])) from None
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, wanted: str | Path = "", folder: RecordingFolder | None = None) -> Recording:
        """A run by its name (or the start or the end of it), an exported file by its path, or the latest run."""
        path = Path(wanted)
        if isinstance(wanted, Path) or "/" in wanted or wanted.endswith(".rec"):
            if not path.is_file():
                raise NoRecording("there is no such file", who=str(path))
            read_head(path)
            return cls([path])
        return cls(list((folder or RecordingFolder.usual()).find(wanted).files))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._index.close()
        for file in self._opened:
            file.close()

    # -- looking ----------------------------------------------------------------------------------------------------------------

    def iter_timeline(self, wanted: TimelineFilter | None = None) -> Iterator[TimelineItem]:
        """Everything that fits, in order."""
        wanted = wanted or TimelineFilter()
        where, values = self._build_where(wanted)
        text = wanted.text.encode(errors="surrogateescape")
        for row in self._index.execute(f"SELECT * FROM items WHERE {where} ORDER BY number", values):  # noqa: S608  (our own words)
            item = self._build_item(row)
            if not text or text in item.raw or wanted.text in item.text:
                yield item

    def iter_entries(self) -> Iterator[Entry]:
        """What the files hold, as it was written: runs of frames, not single ones. A part's repetitions are left out."""
        return (entry for _, entry in self._read_entries())

    def find_wires(self, wanted: TimelineFilter) -> list[int]:
        """The numbers of the wires that a filter lets through."""
        pattern = _to_glob(wanted.who) or "*"
        return [n for n, wire in self.wires.items() if wanted.wire in (None, n) and fnmatchcase(wire.who, pattern)]

    def get_wire(self, number: int | None = None) -> RecordedWire:
        """A wire by its number; the only one when nothing is said."""
        if number is None and len(self.wires) == 1:
            return next(iter(self.wires.values()))
        if number is None or number not in self.wires:
            there = ", ".join(f"{wire.number} ({wire.who})" for wire in list(self.wires.values())[:20])
            why = "it has several wires: say which" if number is None and self.wires else f"it has no wire {number or ''}".rstrip()
            raise NoRecording(why, who=self.run, hint=f"it has {there}{' and more' * (len(self.wires) > 20)}" if there else "")
        return self.wires[number]

    def _build_where(self, wanted: TimelineFilter) -> tuple[str, list[object]]:
        parts: list[str] = ["1"]
        values: list[object] = []
        if wanted.wire is not None or wanted.who:
            self._index.execute("DELETE FROM chosen")
            self._index.executemany("INSERT INTO chosen VALUES (?)", ((number,) for number in self.find_wires(wanted)))
            parts.append("wire IN chosen")
        for column, value in (("way", wanted.way), ("type", wanted.type)):
            if value:
                parts.append(f"{column} GLOB ?")
                values.append(_to_glob(value))
        for sign, moment in ((">=", wanted.since), ("<=", wanted.until)):
            if moment is not None:
                parts.append(f"at {sign} ?")
                values.append(int(moment.timestamp() * 1e6))
        if wanted.pairs:
            parts.append("latency IS NOT NULL")
        return " AND ".join(parts), values

    def _build_item(self, row: tuple[object, ...]) -> TimelineItem:
        number, what, at, wire, way, type_, id, file, offset, size, request, latency, text = row
        raw = b""
        if file is not None:
            source = self._opened[file]  # type: ignore[call-overload]
            source.seek(offset)
            raw = source.read(size)
        shown = id.decode(errors="replace").strip('"') if isinstance(id, bytes) else ""
        return TimelineItem(number, what, at, wire, way, type_ or "", shown, size or 0, request, latency, text or "", raw)  # type: ignore[arg-type]

    # -- the index --------------------------------------------------------------------------------------------------------------

    def _read_entries(self) -> Iterator[tuple[int, Entry]]:
        """All entries with the number of their file; neither what a later part repeats nor half a body."""
        framing: dict[int, str] = {}
        due = 0  # the part that should come next
        for number, file in enumerate(self._opened):
            file.seek(0)
            for entry in segment.read(file):
                match entry:
                    case Head(part=part):
                        if part > due:
                            yield number, Note(text=f"{part - due} parts of the recording are gone", at=entry.at)
                        due = part + 1
                        if number:
                            continue
                    case Open(wire=wire):
                        if wire in framing:
                            continue
                        framing[wire] = entry.framing
                    case Frames(cut=cut, wire=wire) if cut and framing.get(wire) == "bodies":
                        continue
                yield number, entry

    def _build_index(self) -> None:
        rows: list[tuple[object, ...]] = []
        pairs = _Pairs()
        self._number = 0
        for path in self.files:
            self._opened.append(path.open("rb"))
        for file, entry in self._read_entries():
            for row in self._index_frames(entry, file, pairs) if isinstance(entry, Frames) else self._index_event(entry):
                rows.append(row)
                if len(rows) >= _MANY:
                    self._index.executemany(_INSERT, rows)
                    rows.clear()
        self._index.executemany(_INSERT, rows)
        # A request gets its answer's latency too, so that both show it.
        self._index.executemany("UPDATE items SET latency = ? WHERE number = ?", pairs.latencies)

    def _index_frames(self, entry: Frames, file: int, pairs: _Pairs) -> Iterator[tuple[object, ...]]:
        wire = self.wires.setdefault(entry.wire, RecordedWire(entry.wire, f"wire {entry.wire}", started=entry.at))
        for start, line in _split(entry.run, wire.framing):
            self._number += 1
            wire.frames[entry.way] += 1
            wire.bytes[entry.way] += len(line)
            seen = summarize_frame(line)
            request, latency = pairs.match_frame(self._number, entry, seen, wire.dialect)
            yield (
                self._number, "frame", entry.at, entry.wire, entry.way, seen.type, seen.id, file, entry.offset + start, len(line),
                request, latency, None,
            )  # fmt: skip

    def _index_event(self, entry: Entry) -> Iterator[tuple[object, ...]]:
        """What is no frame. Order matters: `Skipped` and `Dropped` stand where the frames would."""
        match entry:
            case Head():
                self.run, self.command, self.started = entry.run, entry.command, entry.at
                return
            case Open():
                self.wires[entry.wire] = _build_wire(entry)
                what, text = "open", _describe(self.wires[entry.wire])
            case End():
                what, text = "end", self._apply_end(entry)
            case Skipped():
                what, text = "skipped", f"a frame of {entry.size} bytes (limit {entry.limit}) was skipped: {entry.head}"
            case Dropped():
                if entry.wire in self.wires:
                    self.wires[entry.wire].dropped += entry.frames
                what, text = "dropped", f"{entry.frames} frames of {entry.bytes} bytes are not on record: {entry.why}"
            case Note():
                what, text = "note", entry.text
            case Damaged():
                self.damage += entry.size
                what, text = "damaged", f"{entry.size} bytes cannot be read: {entry.why}"
            case _:
                return
        self._number += 1
        yield (self._number, what, getattr(entry, "at", 0), getattr(entry, "wire", 0), *[None] * 8, text)

    def _apply_end(self, entry: End) -> str:
        wire = self.wires.setdefault(entry.wire, RecordedWire(entry.wire, f"wire {entry.wire}"))
        wire.ended, wire.why, wire.error, wire.stderr = entry.at, entry.why, entry.error, entry.stderr
        wire.exit = ExitStatus(entry.exit.code, entry.exit.signal) if entry.exit is not None else None
        text = wire.why or "ended"
        text += f" ({wire.exit})" if wire.exit is not None else ""
        said = wire.stderr.strip().splitlines()
        return f"{text}; the last on stderr: {said[-1]}" if said else text


class _Pairs:
    """Which answer belongs to which request, by id, as the frames come."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, FrameDirection, str, bytes], tuple[int, int]] = {}  # number and time of the request
        self.latencies: list[tuple[int, int]] = []

    def match_frame(self, number: int, entry: Frames, seen: FrameSummary, dialect: str) -> tuple[int | None, int | None]:
        """The number of the request that this frame answers, and how long that took."""
        role, kind = find_role(seen, dialect)
        if not role:
            return None, None
        other: FrameDirection = "received" if entry.way == "sent" else "sent"
        asked = self._open.pop((entry.wire, other, kind, seen.id), None) if role != "request" else None
        if asked is None:
            if role != "answer":
                self._open[entry.wire, entry.way, kind, seen.id] = (number, entry.at)
            return None, None
        request, at = asked
        took = max(0, entry.at - at)  # a clock may have been set meanwhile
        self.latencies.append((took, request))
        return request, took


def read_head(path: Path) -> Head:
    """The first entry of a file, which says what it is."""
    try:
        with path.open("rb") as file:
            entry = next(segment.read(file), None)
    except OSError as error:
        raise NoRecording(f"it cannot be read: {error.strerror}", who=str(path)) from None
    if not isinstance(entry, Head):
        raise NoRecording("this is no recording of Serai", who=str(path))
    if entry.format > segment.FORMAT:
        why = f"it was made by Serai {entry.serai} in format {entry.format}; this one reads up to {segment.FORMAT}"
        raise NoRecording(why, who=str(path), hint="open it with a newer Serai")
    return entry


def _build_wire(entry: Open) -> RecordedWire:
    about = (entry.kind, entry.dialect, entry.generation, entry.pid, entry.framing)
    return RecordedWire(entry.wire, entry.who, *about, started=entry.at)


def _describe(wire: RecordedWire) -> str:
    parts = [
        f"wire {wire.number}",
        f"{wire.kind} speaks {wire.dialect}",
        f"generation {wire.generation}",
        f"pid {wire.pid}" if wire.pid else "",
    ]
    return ", ".join(part for part in parts if part)


def _split(run: bytes, framing: str) -> Iterator[tuple[int, bytes]]:
    """The frames of a run with their places in it."""
    if framing == "bodies":
        yield 0, run.removesuffix(b"\n")
        return
    at = 0
    while at < len(run):  # one by one: a run may have millions of lines
        end = run.find(b"\n", at)
        end = len(run) if end < 0 else end
        line = run[at:end]
        if frame := line.strip(b" \t\r"):
            yield at + line.index(frame[:1]), frame
        at = end + 1


def _to_glob(wanted: str) -> str:
    """SQLite's pattern for a name in which only `*` is special."""
    return "".join(f"[{char}]" if char in "?[" else char for char in wanted)


def export_recording(
    recording: Recording, path: Path, *, keep: Callable[[int], bool] = lambda _: True, replace: bool = False
) -> int:
    """Write the wires that `keep` names to `path`, for this user alone; the size. An existing file stays unless `replace`."""
    try:
        # Beside it first: the recording may be that very file, and a full disk must not cost it.
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # for this user alone
        try:
            with open(descriptor, "wb") as file:
                size = sum(file.write(part) for part in export_bytes(recording, keep))
            _place(draft, path, replace=replace)
        except BaseException:
            os.unlink(draft)
            raise
        return size
    except FileExistsError:
        raise NotRecorded(
            "the file exists already", who=str(path), hint="choose another name, or replace it with --force"
        ) from None
    except OSError as error:
        raise NotRecorded(f"the file cannot be written: {error.strerror}", who=str(path), hint="choose another place") from None


def _place(draft: str, path: Path, *, replace: bool) -> None:
    if not replace:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))  # fails when there is one; else it is ours to replace
    try:
        os.replace(draft, path)
    except OSError:
        if not replace:
            os.unlink(path)
        raise


def export_bytes(recording: Recording, keep: Callable[[int], bool]) -> Iterator[bytes]:
    """The entries, masked at equal length: the file replays as the recording does."""
    for entry in recording.iter_entries():
        if isinstance(entry, Damaged) or not _is_kept(entry, keep):
            continue
        if isinstance(entry, Frames):
            lines = recording.get_wire(entry.wire).framing == "lines"
            yield pack_frames_head(entry.wire, entry.way, entry.at, len(entry.run))
            yield secret_patterns.mask_run(entry.run) if lines else secret_patterns.mask(entry.run)
        else:
            yield pack(map_texts(entry, secret_patterns.mask_text))


def _is_kept(entry: Entry, keep: Callable[[int], bool]) -> bool:
    wire: Any = getattr(entry, "wire", 0)
    return isinstance(entry, Head) or not wire or keep(wire)


_NOTHING = Raw()
Role = Literal["request", "answer", "either", ""]

# Where a frame's type alone tells whether it asks or answers: its role, and the kind of exchange that it is part of. In such a
# dialect ids are unique per kind only, so a pair has the same kind as well as the same id.
_PARTS: dict[str, dict[str, tuple[Role, str]]] = {
    "zot": {
        "tool_call": ("request", "tool"),
        "tool_result": ("answer", "tool"),
        "command_invoked": ("request", "command"),
        "command_response": ("answer", "command"),
        "event_intercept": ("request", "intercept"),
        "event_intercept_response": ("answer", "intercept"),
    },
    "yoi": {
        "call": ("request", "call"),
        "ok": ("answer", "call"),
        "big": ("answer", "call"),
        "trap": ("answer", "call"),
        "host": ("request", "host"),
        "reply": ("answer", "host"),
    },
}


class FrameSummary(NamedTuple):
    """`role` says what the frame's own shape tells; "either" when only the other side's frames can."""

    type: str
    id: bytes = b""
    role: Role = ""


class _Nested(msgspec.Struct, gc=False):
    subtype: Raw = _NOTHING
    request_id: Raw = _NOTHING
    type: Raw = _NOTHING


class _Frame(msgspec.Struct, gc=False):
    type: Raw = _NOTHING
    method: Raw = _NOTHING
    id: Raw = _NOTHING
    request_id: Raw = _NOTHING
    subtype: Raw = _NOTHING
    event: Raw = _NOTHING  # zot: the event's name; Claude Code: the streamed event
    request: Raw = _NOTHING  # Claude Code: a control request's body
    response: Raw = _NOTHING  # and that of its answer
    result: Raw = _NOTHING
    error: Raw = _NOTHING
    jsonrpc: Raw = _NOTHING


_frame: msgspec.json.Decoder[_Frame] = msgspec.json.Decoder(_Frame)
_nested: msgspec.json.Decoder[_Nested] = msgspec.json.Decoder(_Nested)
_string: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def summarize_frame(frame: bytes) -> FrameSummary:
    try:
        seen = _frame.decode(frame)
    except msgspec.ValidationError:
        return FrameSummary("json")  # but no object
    except _BAD:
        return FrameSummary("noise")
    id = _decode_id(seen.id) or _decode_id(seen.request_id)
    if method := _decode_text(seen.method):
        return FrameSummary(method, id, "request" if id else "")
    kind = _decode_text(seen.type)
    if not kind:
        if bytes(seen.error) not in (b"", b"null"):
            return FrameSummary("error", id, "answer" if id else "")
        if bytes(seen.result) or seen.jsonrpc is not _NOTHING:  # JSON-RPC without either is an answer of null
            return FrameSummary("result", id, "answer" if id else "")
        return FrameSummary("object", id)
    inner = _decode_inner(seen)
    detail = _decode_text(seen.subtype) or _decode_text(seen.event)
    if inner is not None:
        detail = detail or _decode_text(inner.subtype) or _decode_text(inner.type)
        id = id or _decode_id(inner.request_id)
    return FrameSummary(f"{kind}:{detail}" if detail else kind, id, "either" if id else "")


def find_role(seen: FrameSummary, dialect: str) -> tuple[Role, str]:
    """The role of a frame in its dialect, and the kind of exchange if its dialect tells several apart."""
    parts = _PARTS.get(dialect)
    if parts is None:
        return seen.role, ""
    return parts.get(seen.type.partition(":")[0], ("", "")) if seen.id else ("", "")


def _decode_inner(seen: _Frame) -> _Nested | None:
    for raw in (seen.request, seen.response, seen.event):
        if raw is not _NOTHING and bytes(raw)[:1] == b"{":
            try:
                return _nested.decode(raw)
            except _BAD:
                return None
    return None


def _decode_text(raw: Raw) -> str:
    if raw is _NOTHING or bytes(raw)[:1] != b'"':
        return ""
    try:
        return _string.decode(raw)
    except _BAD:
        return ""


def _decode_id(raw: Raw) -> bytes:
    id = bytes(raw)
    return b"" if id == b"null" else id


View = Literal["ours", "theirs"]


class Side(Protocol):
    """One side of a dialect, as far as a replay needs it."""

    def receive(self, run: bytes) -> list[Any]:
        """What the other side said; what follows from it."""
        ...

    def note_sent(self, run: bytes, now: float) -> None:
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


def make_side(dialect: str, view: View = "ours") -> Side:
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
    about = recording.get_wire(wire)
    side = side or make_side(about.dialect, view)
    theirs = "received" if view == "ours" else "sent"
    for entry in recording.iter_entries():
        if isinstance(entry, Frames) and entry.wire == wire:
            if entry.way == theirs:
                yield from (Replayed(entry.at, event) for event in side.receive(mask(entry.run)))
            else:
                side.note_sent(mask(entry.run), entry.at / 1e6)
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
    plain = {name: _to_plain(value) for name, value in parts.items() if name not in ("sent", "deadline", "timeout", "waiter")}
    return {"event": getattr(event, "shown_as", type(event).__name__), **plain}


def _to_plain(value: object) -> Any:
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode(errors="replace")
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, tuple | list):
        return [_to_plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return describe(value) if isinstance(value, msgspec.Struct) else value
