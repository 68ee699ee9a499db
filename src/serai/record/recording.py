"""A recording, opened: its wires, its timeline, its frames, and which answers belong to which requests.

Opening reads the files once and builds an index in a private SQLite database, which spills to disk when it is large; frames
themselves stay in the files and are read on demand. `export_recording` makes one file of it that another person can open:
look-alikes of secrets masked, and only the wires that matter.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, Self

from serai.errors import ExitStatus, NoRecording, NotRecorded
from serai.record import secret_patterns, segment
from serai.record.frame_summary import FrameSummary, frame_role, summarize_frame
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
    frames_head,
    pack,
    with_texts,
)

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
            self._build()
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
            head_of(path)
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

    def timeline(self, wanted: TimelineFilter | None = None) -> Iterator[TimelineItem]:
        """Everything that fits, in order."""
        wanted = wanted or TimelineFilter()
        where, values = self._where(wanted)
        text = wanted.text.encode(errors="surrogateescape")
        for row in self._index.execute(f"SELECT * FROM items WHERE {where} ORDER BY number", values):  # noqa: S608  (our own words)
            item = self._item(row)
            if not text or text in item.raw or wanted.text in item.text:
                yield item

    def entries(self) -> Iterator[Entry]:
        """What the files hold, as it was written: runs of frames, not single ones. A part's repetitions are left out."""
        return (entry for _, entry in self._read())

    def fitting(self, wanted: TimelineFilter) -> list[int]:
        """The numbers of the wires that a filter lets through."""
        pattern = _glob(wanted.who) or "*"
        return [n for n, wire in self.wires.items() if wanted.wire in (None, n) and fnmatchcase(wire.who, pattern)]

    def wire(self, number: int | None = None) -> RecordedWire:
        """A wire by its number; the only one when nothing is said."""
        if number is None and len(self.wires) == 1:
            return next(iter(self.wires.values()))
        if number is None or number not in self.wires:
            there = ", ".join(f"{wire.number} ({wire.who})" for wire in list(self.wires.values())[:20])
            why = "it has several wires: say which" if number is None and self.wires else f"it has no wire {number or ''}".rstrip()
            raise NoRecording(why, who=self.run, hint=f"it has {there}{' and more' * (len(self.wires) > 20)}" if there else "")
        return self.wires[number]

    def _where(self, wanted: TimelineFilter) -> tuple[str, list[object]]:
        parts: list[str] = ["1"]
        values: list[object] = []
        if wanted.wire is not None or wanted.who:
            self._index.execute("DELETE FROM chosen")
            self._index.executemany("INSERT INTO chosen VALUES (?)", ((number,) for number in self.fitting(wanted)))
            parts.append("wire IN chosen")
        for column, value in (("way", wanted.way), ("type", wanted.type)):
            if value:
                parts.append(f"{column} GLOB ?")
                values.append(_glob(value))
        for sign, moment in ((">=", wanted.since), ("<=", wanted.until)):
            if moment is not None:
                parts.append(f"at {sign} ?")
                values.append(int(moment.timestamp() * 1e6))
        if wanted.pairs:
            parts.append("latency IS NOT NULL")
        return " AND ".join(parts), values

    def _item(self, row: tuple[object, ...]) -> TimelineItem:
        number, what, at, wire, way, type_, id, file, offset, size, request, latency, text = row
        raw = b""
        if file is not None:
            source = self._opened[file]  # type: ignore[call-overload]
            source.seek(offset)
            raw = source.read(size)
        shown = id.decode(errors="replace").strip('"') if isinstance(id, bytes) else ""
        return TimelineItem(number, what, at, wire, way, type_ or "", shown, size or 0, request, latency, text or "", raw)  # type: ignore[arg-type]

    # -- the index --------------------------------------------------------------------------------------------------------------

    def _read(self) -> Iterator[tuple[int, Entry]]:
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

    def _build(self) -> None:
        rows: list[tuple[object, ...]] = []
        pairs = _Pairs()
        self._number = 0
        for path in self.files:
            self._opened.append(path.open("rb"))
        for file, entry in self._read():
            for row in self._frames(entry, file, pairs) if isinstance(entry, Frames) else self._event(entry):
                rows.append(row)
                if len(rows) >= _MANY:
                    self._index.executemany(_INSERT, rows)
                    rows.clear()
        self._index.executemany(_INSERT, rows)
        # A request gets its answer's latency too, so that both show it.
        self._index.executemany("UPDATE items SET latency = ? WHERE number = ?", pairs.latencies)

    def _frames(self, entry: Frames, file: int, pairs: _Pairs) -> Iterator[tuple[object, ...]]:
        wire = self.wires.setdefault(entry.wire, RecordedWire(entry.wire, f"wire {entry.wire}", started=entry.at))
        for start, line in _split(entry.run, wire.framing):
            self._number += 1
            wire.frames[entry.way] += 1
            wire.bytes[entry.way] += len(line)
            seen = summarize_frame(line)
            request, latency = pairs.see(self._number, entry, seen, wire.dialect)
            yield (
                self._number, "frame", entry.at, entry.wire, entry.way, seen.type, seen.id, file, entry.offset + start, len(line),
                request, latency, None,
            )  # fmt: skip

    def _event(self, entry: Entry) -> Iterator[tuple[object, ...]]:
        """What is no frame. Order matters: `Skipped` and `Dropped` stand where the frames would."""
        match entry:
            case Head():
                self.run, self.command, self.started = entry.run, entry.command, entry.at
                return
            case Open():
                self.wires[entry.wire] = _wire(entry)
                what, text = "open", _describe(self.wires[entry.wire])
            case End():
                what, text = "end", self._end(entry)
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

    def _end(self, entry: End) -> str:
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

    def see(self, number: int, entry: Frames, seen: FrameSummary, dialect: str) -> tuple[int | None, int | None]:
        """The number of the request that this frame answers, and how long that took."""
        role, kind = frame_role(seen, dialect)
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


def head_of(path: Path) -> Head:
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


def _wire(entry: Open) -> RecordedWire:
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


def _glob(wanted: str) -> str:
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
    for entry in recording.entries():
        if isinstance(entry, Damaged) or not _kept(entry, keep):
            continue
        if isinstance(entry, Frames):
            lines = recording.wire(entry.wire).framing == "lines"
            yield frames_head(entry.wire, entry.way, entry.at, len(entry.run))
            yield secret_patterns.mask_run(entry.run) if lines else secret_patterns.mask(entry.run)
        else:
            yield pack(with_texts(entry, secret_patterns.mask_text))


def _kept(entry: Entry, keep: Callable[[int], bool]) -> bool:
    wire: Any = getattr(entry, "wire", 0)
    return isinstance(entry, Head) or not wire or keep(wire)
