"""Bytes into whole lines (sans-IO).

The framer hands on *runs*: stretches of whole lines, in the very bytes object that was read when the lines end where the
read ended. So the common case copies nothing, a batch decoder gets all of it in one call, and a tap can keep it.

Rules (design rule 5):

1. Only LF ends a line. A CR before it is JSON white space and stays in the run; `split` takes it off.
2. A line longer than `limit` (its LF counts, as in the origins of zot and piglet) is one `Oversize` with its true size and
   its head, and the stream goes on after its LF. Its body is not kept in memory.
3. What is left at the end of input is a line too.
4. A byte is searched once. Slow peers that dribble a long line cost linear time.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Framer", "Oversize", "split"]


_PIECE = 4096


class Oversize(NamedTuple):
    """A line over the limit: how long it really was, its first bytes, and the limit."""

    size: int
    head: bytes
    limit: int


def split(run: bytes) -> list[bytes]:
    """The lines of a run without their line ends; blank lines are dropped."""
    return [line for line in (part.strip(b" \t\r") for part in run.split(b"\n")) if line]


class Framer:
    """Feed it chunks as they are read; take runs and oversize events in order."""

    __slots__ = ("_head_size", "_parts", "limit", "pending")

    def __init__(self, limit: int, head: int = 4096) -> None:
        if limit < 1:
            raise ValueError(f"a frame limit must be positive, not {limit}")
        self.limit = limit
        self.pending = 0  # bytes of the unfinished line seen so far, also those no longer kept
        self._head_size = min(head, limit)
        self._parts: list[bytes | bytearray] = []  # the unfinished line, or only its head once `pending` passed the limit

    def feed(self, chunk: bytes) -> list[bytes | Oversize]:
        """What `chunk` completed: at most one run when no line can be over the limit, else runs and oversize events."""
        if self.pending + len(chunk) > self.limit:
            return self._feed_carefully(chunk)
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._keep(chunk)
            return []
        if end == len(chunk):
            run = self._finish(chunk) if self.pending else chunk
        else:
            # A view: the run is copied once, not twice, when it begins with what was kept.
            run = self._finish(memoryview(chunk)[:end]) if self.pending else chunk[:end]
            self._keep(chunk[end:])
        return [run]

    def eof(self) -> list[bytes | Oversize]:
        """The last line, if the input ended without LF."""
        if not self.pending:
            return []
        if self.pending > self.limit:
            return [self._overflow()]
        return [self._finish(b"")]

    def _feed_carefully(self, chunk: bytes) -> list[bytes | Oversize]:
        """Line by line: somewhere in here a line may be too long."""
        out: list[bytes | Oversize] = []
        start = 0  # where the current run began; its first line may have begun in an earlier chunk
        line = 0  # where the current line began
        while end := chunk.find(b"\n", line) + 1:
            if self._length(start, line, end) > self.limit:
                if line > start:
                    out.append(self._finish(chunk[start:line]))
                self._keep(chunk[line:end])
                out.append(self._overflow())
                start = end
            line = end
        if line > start:
            out.append(self._finish(chunk[start:line]))
        self._keep(chunk[line:])
        return out

    def _length(self, start: int, line: int, end: int) -> int:
        """The length of the line `chunk[line:end]`; only the first line of a run continues an earlier chunk."""
        return end - line + (self.pending if line == start else 0)

    def _keep(self, part: bytes) -> None:
        if not part:
            return
        self.pending += len(part)
        if self.pending <= self.limit:
            self._append(part)
            return
        head = b""
        for piece in (*self._parts, part):
            head += piece[: self._head_size - len(head)]
            if len(head) == self._head_size:
                break
        self._parts = [head]

    def _append(self, part: bytes) -> None:
        """Small pieces are gathered: as objects of their own they would take many times their size."""
        if len(part) >= _PIECE:
            self._parts.append(part)
        elif self._parts and isinstance(self._parts[-1], bytearray):
            self._parts[-1] += part
        else:
            self._parts.append(bytearray(part))

    def _finish(self, part: bytes | memoryview) -> bytes:
        run = b"".join((*self._parts, part))
        self._parts = []
        self.pending = 0
        return run

    def _overflow(self) -> Oversize:
        event = Oversize(self.pending, bytes(self._parts[0]), self.limit)
        self._parts = []
        self.pending = 0
        return event
