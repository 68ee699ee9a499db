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

1. A line that starts with the separator is an entry, and nothing else is: where a peer's own line starts with one, the ASCII
   substitute character stands in its place (`escape_marks`). So no frame can pass for an entry, not even in a damaged file.
2. Whatever cannot be read (a killed host's half entry, a damaged disk) is one `Damaged` entry; reading goes on at the next
   entry, and the whole frames before the damage count.
3. An unknown kind of entry is `Damaged` too, so that an older Serai can open what a newer one wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from io import SEEK_CUR, SEEK_END, BufferedReader
from typing import Annotated, Literal

import msgspec

MARK = b"\x1e"
_SUBSTITUTE = b"\x1a"
FORMAT = 1
# The longest run that can be true: a channel's is one frame of 64 MiB and a read, a body may be longer.
_LONGEST_RUN = 1 << 28
_CHUNK = 1 << 16
# The longest entry line: an end with 64 KiB of stderr, each byte of which may be escaped to six.
_LONGEST = 1 << 20

FrameDirection = Literal["sent", "received"]
_SIGN: dict[FrameDirection, bytes] = {"sent": b">", "received": b"<"}
_WAYS: dict[bytes, FrameDirection] = {sign: way for way, sign in _SIGN.items()}
_HEAD = re.compile(MARK + rb"([<>])(\d{1,9}) (\d{1,18}) (\d{1,18})\n")


Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]  # what an index can hold


class _Entry(msgspec.Struct, tag_field="entry", tag=str.lower, omit_defaults=True, kw_only=True):
    at: Number = 0  # microseconds since 1970


class Head(_Entry, tag="recording"):
    """Of which run this file is a part."""

    format: int  # required, so that it is always written
    run: str
    part: Number = 0
    pid: Number = 0
    serai: str = ""
    command: str = ""


class Open(_Entry):
    """A wire begins. `framing` says what one frame is: a line, or a whole run (`bodies`: HTTP, one-shot hooks)."""

    wire: Number
    who: str
    kind: str = ""
    dialect: str = ""
    generation: Number = 0
    pid: Number = 0
    framing: Literal["lines", "bodies"] = "lines"
    again: bool = False


class Exit(msgspec.Struct):
    code: int | None = None
    signal: int | None = None


class End(_Entry):
    """A wire is over: why, how its peer ended, and the last it said on stderr."""

    wire: Number
    why: str = ""
    error: str = ""
    exit: Exit | None = None
    stderr: str = ""


class Skipped(_Entry):
    """A frame over the limit was received and not kept."""

    wire: Number
    size: Number
    limit: Number
    head: str = ""


class Dropped(_Entry):
    """What is not on record although it was on the wire, and why. Wire 0 means: of any."""

    wire: Number
    frames: Number
    bytes: Number
    why: str = ""


class Note(_Entry):
    """What a reader should know of the recording itself."""

    text: str


class Frames(msgspec.Struct, frozen=True, gc=False):
    """A run of whole frames. `offset` is where it starts in its file."""

    wire: int
    way: FrameDirection
    at: int
    run: bytes
    offset: int = 0
    cut: bool = False  # its end is missing


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


def map_texts(entry: Written, change: Callable[[str], str]) -> Written:
    """The same entry with each of its texts changed: to mask a packed one could spoil the line itself."""
    texts = {name: text for name in entry.__struct_fields__ if isinstance(text := getattr(entry, name), str) and text}
    return msgspec.structs.replace(entry, **{name: change(text) for name, text in texts.items()})


def pack_frames_head(wire: int, way: FrameDirection, at: int, size: int) -> bytes:
    """The line before a run; the run follows as it is."""
    return b"\x1e%b%d %d %d\n" % (_SIGN[way], wire, at, size)


def escape_marks(run: bytes) -> bytes:
    """A run in which no line starts with the separator; nearly always the very same object."""
    if MARK not in run:
        return run
    run = run.replace(b"\n" + MARK, b"\n" + _SUBSTITUTE)
    return _SUBSTITUTE + run[1:] if run.startswith(MARK) else run


def read(file: BufferedReader) -> Iterator[Entry]:
    """All entries of a file, from where it stands to where it ends now."""
    offset = file.tell()
    end = file.seek(0, SEEK_END)
    file.seek(offset)
    damage = 0  # bytes that could not be read since the last entry
    why = ""
    while offset < end and (line := file.readline(_LONGEST)):
        entry = _read_frames(line, file, offset) if line[1:2] in (b">", b"<") else _parse_entry(line)
        if isinstance(entry, str):
            damage, why = damage + len(line), why or entry
            offset += len(line)
            continue
        if why:
            yield Damaged(offset - damage, damage, why)
            damage, why = 0, ""
        offset += len(line)
        if type(entry) is not Frames:
            yield entry
            continue
        run, left = entry.run, len(entry.run)
        if entry.cut:  # its whole lines count, the rest is damage
            run = run[: run.rfind(b"\n") + 1]
            damage, why = left - len(run), "a run is not as long as it should be"
            entry = Frames(entry.wire, entry.way, entry.at, run, entry.offset, cut=True)
        if run:
            yield entry
        offset += left
    if why:
        yield Damaged(offset - damage, damage, why)


def _parse_entry(line: bytes) -> Written | str:
    """The entry on this line, or why there is none."""
    if not line.startswith(MARK):
        return "no entry starts here"
    if not line.endswith(b"\n"):
        return "the entry is not complete"
    try:
        return _decoder.decode(line[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"the entry cannot be read: {error}"


def _read_frames(line: bytes, file: BufferedReader, offset: int) -> Frames | str:
    """The run that this line announces, which ends at the next entry at the latest."""
    head = _HEAD.fullmatch(line)
    if head is None or int(head[4]) > _LONGEST_RUN:
        return "the head of a run cannot be read"
    size = int(head[4])
    run = _read_run(file, size)
    whole = len(run) == size and (run.endswith(b"\n") or file.peek(1)[:1] in (b"", MARK))
    return Frames(int(head[2]), _WAYS[head[1]], int(head[3]), run, offset + len(line), cut=not whole)


def _read_run(file: BufferedReader, size: int) -> bytes:
    """So many bytes, or what is there before the next entry. In pieces: what a damaged head announces may not be there at all."""
    parts: list[bytes] = []
    start = b"\n"  # a run begins at the start of a line
    while size:
        part = file.read(min(size, _CHUNK))
        if not part:
            break
        if MARK in part and (found := (start + part).find(b"\n" + MARK)) >= 0:
            parts.append(part[:found])
            file.seek(found - len(part), SEEK_CUR)
            break
        parts.append(part)
        start = part[-1:]
        size -= len(part)
    return b"".join(parts)
