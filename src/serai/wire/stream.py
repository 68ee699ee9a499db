"""Bytes into whole lines, and calls that wait for an answer (sans-IO).

The framer returns *runs*: stretches of whole lines, in the very bytes object that was read when the lines end where the read
ended. So the common case copies nothing, a batch decoder gets all of it in one call, and a tap can keep it. Rules (design rule 5):

1. Only LF ends a line. A CR before it is JSON white space and stays in the run; `split_lines` takes it off.
2. A line longer than `limit` (its LF counts, as in the origins of zot and piglet) is one `Oversize` with its true size and
   its head, and the stream goes on after its LF. Its body is not kept in memory.
3. What is left at the end of input is a line too.
4. A byte is searched once. Slow peers that dribble a long line cost linear time.

`PendingCalls` is one table for every dialect that correlates by id, each call with its deadline. Time is an argument. Expiry looks
at all waiting calls, which is cheap because it happens only when the earliest deadline has come, not per call (design rule 3).
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)


class PendingCall(msgspec.Struct, Generic[K], eq=False):
    """One call under way. `waiter` is the owner's: a future on a live wire, nothing in a replay."""

    shown_as: ClassVar[str] = "Call"  # in what `serai record replay` prints
    id: K
    what: str
    sent: float
    deadline: float
    timeout: float | None
    waiter: Any = None


class PendingCalls(Generic[K]):
    """The calls of one connection that wait for their answers, in the order they were made.

    `waiting` has them by id: a hot path may put one in and take it out by itself.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[K, PendingCall[K]] = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def __contains__(self, id: K) -> bool:
        return id in self.waiting

    def start(self, id: K, what: str, *, now: float, timeout: float | None, waiter: Any = None) -> PendingCall[K]:
        """Begin to wait; no time-out means no deadline."""
        call = PendingCall(id, what, now, inf if timeout is None else now + timeout, timeout, waiter)
        self.waiting[id] = call
        return call

    def finish(self, id: K) -> PendingCall[K] | None:
        """The call that `id` answers, taken out; None when nobody waits for it: late, repeated or never asked."""
        return self.waiting.pop(id, None)

    def expire(self, now: float) -> list[PendingCall[K]]:
        """The calls whose deadline has passed, taken out."""
        late = [call for call in self.waiting.values() if call.deadline <= now]
        for call in late:
            del self.waiting[call.id]
        return late

    def next_deadline(self) -> float | None:
        """The earliest deadline, or None when none is set."""
        earliest = min((call.deadline for call in self.waiting.values()), default=inf)
        return None if earliest == inf else earliest

    def abandon(self) -> list[PendingCall[K]]:
        """All of them, taken out: their peer is gone."""
        lost = list(self.waiting.values())
        self.waiting.clear()
        return lost


_PIECE = 4096


class Oversize(NamedTuple):
    """A line over the limit: how long it really was, its first bytes, and the limit."""

    size: int
    head: bytes
    limit: int


def split_lines(run: bytes) -> list[bytes]:
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

    def feed_eof(self) -> list[bytes | Oversize]:
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
            if self._measure_line(start, line, end) > self.limit:
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

    def _measure_line(self, start: int, line: int, end: int) -> int:
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
