"""Transcripts read for a list, by both ends, or whole (spec agents 4.3).

A list of thousands reads at most 64 KiB of each file's head and of its tail. Whoever wants all of one gets it line by line, so that
a long file costs time and no memory. A file may grow meanwhile, and its last line may be half written (spec agents 7.36).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from serai.agents.history.metadata import Gathering
from serai.agents.history.rows import Row, row_of, salvage
from serai.limits import KIB
from serai.wire.stream import Framer, Oversize, split_lines

__all__ = ["END", "Read", "Windows", "every_line", "glance", "windows"]

END = 64 * KIB  # of the head and of the tail
_CHUNK = 256 * KIB
_LONGEST = 4 * KIB  # characters of a text in a list: whoever wants more wants the session

# `os.pread`: a descriptor, so many bytes, from there.
Read = Callable[[int, int, int], bytes]


class Windows(NamedTuple):
    """Both ends of a file; `gap`: there is something between them."""

    head: bytes
    tail: bytes
    gap: bool


def windows(descriptor: int, read: Read = os.pread) -> Windows:
    size = os.fstat(descriptor).st_size
    head = read(descriptor, END, 0)
    if size <= END:
        return Windows(head, b"", gap=False)
    start = max(END, size - END)
    tail = read(descriptor, END, start)
    return Windows(head + tail, b"", gap=False) if start == END else Windows(head, tail, gap=True)


def glance(seen: Windows) -> Gathering | None:
    """What both ends tell; None when there is something and none of it is a transcript's. A first row may still be written."""
    gathering = Gathering(_LONGEST)
    whole_lines, _, cut = seen.head.rpartition(b"\n") if seen.gap else (seen.head, b"", b"")
    _tell(gathering, whole_lines)
    if seen.gap:
        if not gathering.messages and cut.lstrip(b" \0").startswith(b"{"):
            row, text = salvage(cut)
            if row.type:
                gathering.tell(Row(timestamp=row.timestamp, cwd=row.cwd, version=row.version))
                gathering.begin_with(text)
        gathering.gap()
        _tell(gathering, seen.tail.partition(b"\n")[2])
    begun = not seen.gap and b"\n" not in seen.head and seen.head.startswith(b"{")
    return gathering if gathering.rows or begun or not seen.head.strip(b" \t\r\n\0") else None


def _tell(gathering: Gathering, run: bytes) -> None:
    for line in split_lines(run):
        if (row := row_of(clean(line))) is not None:
            gathering.tell(row)


def clean(line: bytes) -> bytes:
    """Without what a machine that lost its power leaves before a line."""
    return line.lstrip(b"\0") if line[:1] == b"\0" else line


def every_line(descriptor: int, limit: int, read: Read = os.pread) -> Iterator[bytes | None]:
    """Each line that is not blank, from the first; None for one that is longer than `limit`."""
    framer = Framer(limit)
    at = 0
    while True:
        chunk = read(descriptor, _CHUNK, at)
        at += len(chunk)
        for run in framer.feed(chunk) if chunk else framer.eof():
            if isinstance(run, Oversize):
                yield None
            else:
                yield from map(clean, split_lines(run))
        if not chunk:
            return
