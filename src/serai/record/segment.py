"""The file format of a recording (sans-IO): entries out to bytes, bytes back to entries.

A segment is a text file that `less` and `grep` can read. Every entry starts with the ASCII record separator, which no JSON text
can hold, at the start of a line:

    ␞{"entry":"recording","format":1,"run":"…","part":0,…}      the first of every file
    ␞{"entry":"open","wire":3,"who":"zot:weather",…}            a wire begins; again in every later part while it is open
    ␞>3 1763203737123456 61                                     61 bytes sent on wire 3 at that microsecond, then the bytes
    {"type":"tool_call","id":"7",…}
    ␞<3 1763203737124001 88                                     88 bytes received
    {"type":"tool_result","id":"7",…}
    ␞{"entry":"end","wire":3,…}                                 its end, with exit status and stderr

Rules:

1. Lengths rule: what is inside a run is never looked at to find the next entry.
2. Whatever cannot be read (a killed host's half entry, a damaged disk) is one `Damaged` entry; reading goes on at the next
   entry, and the whole frames before the damage count.
3. An unknown kind of entry is `Damaged` too, so that an older Serai can open what a newer one wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import SEEK_END, BufferedReader
from typing import Literal

import msgspec

__all__ = [
    "FORMAT",
    "MARK",
    "Damaged",
    "Dropped",
    "End",
    "Entry",
    "Frames",
    "Head",
    "Note",
    "Open",
    "Skipped",
    "Way",
    "frames_head",
    "pack",
    "read",
]

MARK = b"\x1e"
FORMAT = 1
# The longest entry line: an end with 64 KiB of stderr, each byte of which may be escaped to six.
_LONGEST = 1 << 20

Way = Literal["sent", "received"]
_SIGN: dict[Way, bytes] = {"sent": b">", "received": b"<"}
_WAYS: dict[int, Way] = {ord(sign): way for way, sign in _SIGN.items()}


class _Entry(msgspec.Struct, tag_field="entry", tag=str.lower, omit_defaults=True, kw_only=True):
    at: int = 0  # microseconds since 1970


class Head(_Entry, tag="recording"):
    """Of which run this file is a part."""

    format: int  # required, so that it is always written
    run: str
    part: int = 0
    pid: int = 0
    serai: str = ""
    command: str = ""


class Open(_Entry):
    """A wire begins. `framing` says what one frame is: a line, or a whole run (`bodies`: HTTP, one-shot hooks)."""

    wire: int
    who: str
    kind: str = ""
    dialect: str = ""
    generation: int = 0
    pid: int = 0
    framing: Literal["lines", "bodies"] = "lines"
    again: bool = False


class End(_Entry):
    """A wire is over: why, how its peer ended, and the last it said on stderr."""

    wire: int
    why: str = ""
    error: str = ""
    exit: dict[str, int | None] | None = None
    stderr: str = ""


class Skipped(_Entry):
    """A frame over the limit was received and not kept."""

    wire: int
    size: int
    limit: int
    head: str = ""


class Dropped(_Entry):
    """What is not on record although it was on the wire, and why. Wire 0 means: of any."""

    wire: int
    frames: int
    bytes: int
    why: str = ""


class Note(_Entry):
    """What a reader should know of the recording itself."""

    text: str


class Frames(msgspec.Struct, frozen=True, gc=False):
    """A run of whole frames. `offset` is where it starts in its file."""

    wire: int
    way: Way
    at: int
    run: bytes
    offset: int = 0
    cut: int = 0  # so many bytes are missing at its end


class Damaged(msgspec.Struct, frozen=True, gc=False):
    """So many bytes that cannot be read, from `offset`."""

    offset: int
    size: int
    why: str


Written = Head | Open | End | Skipped | Dropped | Note
Entry = Written | Frames | Damaged

_decoder: msgspec.json.Decoder[Written] = msgspec.json.Decoder(Written)
_encoder = msgspec.json.Encoder()


def pack(entry: Written) -> bytes:
    """An entry as a line."""
    return MARK + _encoder.encode(entry) + b"\n"


def frames_head(wire: int, way: Way, at: int, size: int) -> bytes:
    """The line before a run; the run follows as it is."""
    return b"\x1e%b%d %d %d\n" % (_SIGN[way], wire, at, size)


def read(file: BufferedReader) -> Iterator[Entry]:
    """All entries of a file, from where it stands to where it ends now."""
    offset = file.tell()
    end = file.seek(0, SEEK_END)
    file.seek(offset)
    damage = 0  # bytes that could not be read since the last entry
    why = ""
    while offset < end and (line := file.readline(_LONGEST)):
        entry = _frames(line, file, offset, end) if line[1:2] in (b">", b"<") else _written(line)
        if isinstance(entry, str):
            damage, why = damage + len(line), why or entry
            offset += len(line)
            file.seek(offset)
            continue
        if damage:
            yield Damaged(offset - damage, damage, why)
            damage, why = 0, ""
        offset += len(line)
        if type(entry) is Frames:
            yield from _whole(entry)
            offset += len(entry.run)
        else:
            yield entry
    if damage:
        yield Damaged(offset - damage, damage, why)


def _written(line: bytes) -> Written | str:
    """The entry on this line, or why there is none."""
    if not line.startswith(MARK):
        return "no entry starts here"
    if not line.endswith(b"\n"):
        return "the entry is not complete"
    try:
        return _decoder.decode(line[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"the entry cannot be read: {error}"


def _frames(line: bytes, file: BufferedReader, offset: int, end: int) -> Frames | str:
    """The run that this line announces. It must end where the file ends or the next entry starts, else the line lies."""
    try:
        wire, at, size = map(int, line[2:].split(b" "))
    except ValueError:
        return "the head of a run cannot be read"
    offset += len(line)
    run = file.read(max(0, min(size, end - offset)))
    complete = len(run) == size
    if size < 0 or not (file.peek(1)[:1] in (b"", MARK) if complete else b"\n" + MARK not in b"\n" + run):
        return "the length of a run is wrong"
    return Frames(wire, _WAYS[line[1]], at, run, offset, cut=0 if complete else size - len(run))


def _whole(entry: Frames) -> Iterator[Entry]:
    """A run as it is; of one that the end of the file cuts, the whole lines."""
    if not entry.cut:
        yield entry
        return
    end = entry.run.rfind(b"\n") + 1
    if end:
        yield Frames(entry.wire, entry.way, entry.at, entry.run[:end], entry.offset, cut=entry.cut)
    yield Damaged(entry.offset + end, len(entry.run) - end, f"the file ends {entry.cut} bytes before the end of a run")
