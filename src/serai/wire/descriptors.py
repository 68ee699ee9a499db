"""Descriptors: the pipes of a child, a poller for many descriptors, and drained ones of which the last bytes are kept.

The pipes of a child are made together, closed together, and larger when frames are. The poller makes many descriptors on which
little happens one descriptor of the loop. An undrained stderr blocks its writer after 64 KiB and looks like a time-out; a
discarded one hides the only reason for a crash (design rule 2).
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
from collections.abc import Callable, Mapping
from contextvars import copy_context
from fcntl import F_GETPIPE_SZ, F_SETPIPE_SZ, fcntl
from functools import partial
from typing import Literal, Protocol

log = logging.getLogger("serai.wire")

Direction = Literal["r", "w", "null"]  # as the child sees it

_USUAL = 65536


class ChildPipes:
    """The pipes of one child: `theirs` and `ours` by the child's numbers; ours do not block. What cannot be made leaves nothing."""

    def __init__(self, wanted: Mapping[int, Direction | int], size: int | None) -> None:
        """A number in place of a direction is a file of ours that the child gets as it is; we get one to read what comes now."""
        self.theirs: dict[int, int] = {}
        self.ours: dict[int, int] = {}
        try:
            for number, direction in wanted.items():
                if isinstance(direction, int):
                    self.theirs[number] = os.dup(direction)
                    self.ours[number] = os.open(f"/proc/self/fd/{direction}", os.O_RDONLY | os.O_CLOEXEC)
                    os.lseek(self.ours[number], 0, os.SEEK_END)  # before the child runs, which may write at once
                    continue
                if direction == "null":
                    self.theirs[number] = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                    continue
                read, write = os.pipe()
                self.theirs[number], self.ours[number] = (read, write) if direction == "r" else (write, read)
                os.set_blocking(self.ours[number], False)
                if size is not None:
                    grow_pipe(read, size)
        except OSError:
            close_descriptors(self.theirs)
            close_descriptors(self.ours)
            raise


def close_descriptors(descriptors: dict[int, int]) -> None:
    """Close and forget them."""
    for descriptor in descriptors.values():
        os.close(descriptor)
    descriptors.clear()


def get_pipe_capacity(descriptor: int) -> int:
    """How many bytes the pipe can hold."""
    return fcntl(descriptor, F_GETPIPE_SZ)


def grow_pipe(descriptor: int, size: int) -> None:
    """A larger pipe for a wire with long frames: fewer wake-ups for each. The machine may refuse; then it gets what it can."""
    while size > _USUAL:
        try:
            fcntl(descriptor, F_SETPIPE_SZ, size)
        except OSError:  # over the user's share of pipe memory
            size //= 2
        else:
            return
    log.debug("the pipe %d stays small", descriptor)


# So many are handled in one turn of the loop; the others have the next one.
_MOST = 64
# One that was ready alone so often is a busy one.
_BUSY = 16
# What is still there after so many seconds is watched: longer than most short programs live, shorter than anybody minds.
_MOMENT = 0.005


class Readers(Protocol):
    """Who calls back when a descriptor can be read: a loop, or a poller."""

    def add_reader(self, descriptor: int, callback: Callable[[], object], /) -> object: ...
    def remove_reader(self, descriptor: int, /) -> object: ...


class Poller:
    """Waits for the descriptors of many children: pidfds and stderrs that speak once or never, wires that are idle mostly.

    A loop's own books on a descriptor take longer to write than all else that is done about it when a child starts, and half a
    kilobyte. In turn every event costs one more look, so one that is ready alone again and again is moved to the loop.
    """

    __slots__ = ("_alone", "_busy", "_callbacks", "_epoll", "_loop")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._alone: dict[int, int] = {}  # how often
        self._busy: set[int] = set()  # moved to the loop
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._epoll.fileno(), self._poll)

    def add_reader(self, descriptor: int, callback: Callable[[], object]) -> None:
        """As a loop does it: called in the context of who adds it, whose work it is."""
        self._epoll.register(descriptor, select.EPOLLIN)
        self._callbacks[descriptor] = partial(copy_context().run, callback)

    def remove_reader(self, descriptor: int) -> None:
        """Idempotent."""
        self._alone.pop(descriptor, None)
        if self._callbacks.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)
        elif descriptor in self._busy:
            self._busy.remove(descriptor)
            self._loop.remove_reader(descriptor)

    def close(self) -> None:
        """Forget all of them. Idempotent."""
        if not self._epoll.closed:
            for descriptor in [*self._busy, self._epoll.fileno()]:
                self._loop.remove_reader(descriptor)
            self._busy.clear()
            self._callbacks.clear()
            self._epoll.close()

    def _poll(self) -> None:
        found = self._epoll.poll(0, _MOST)
        for descriptor, _ in found:
            callback = self._callbacks.get(descriptor)  # None: one that was ready before it has closed it
            if callback is not None:
                try:
                    callback()
                except Exception:  # one defect must not make the others deaf
                    log.exception("the reader of descriptor %d failed", descriptor)
        if len(found) == 1:
            self._count_alone(found[0][0])

    def _count_alone(self, descriptor: int) -> None:
        callback = self._callbacks.get(descriptor)
        if callback is None:
            return
        times = self._alone[descriptor] = self._alone.get(descriptor, 0) + 1
        if times == _BUSY:
            self.remove_reader(descriptor)
            self._busy.add(descriptor)
            self._loop.add_reader(descriptor, callback)


class DelayedReaders:
    """Watches descriptors only after a moment: for what a child writes that matters at its end, or when there is much of it.

    A child that ends sooner is read when it has ended. Else it would wake the loop with every word it writes, and with every
    descriptor it closes.
    """

    __slots__ = ("_fresh", "_loop", "_readers", "_timer", "_waiting")

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._fresh: dict[int, Callable[[], object]] = {}
        self._waiting: dict[int, Callable[[], object]] = {}  # for a whole moment at the next look
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def add_reader(self, descriptor: int, callback: Callable[[], object]) -> None:
        self._fresh[descriptor] = callback
        if self._timer is None:
            self._timer = self._loop.call_later(_MOMENT, self._add_due)

    def remove_reader(self, descriptor: int) -> None:
        """Idempotent."""
        if self._fresh.pop(descriptor, None) is None and self._waiting.pop(descriptor, None) is None:
            self._readers.remove_reader(descriptor)

    def close(self) -> None:
        """Forget those that nobody watches yet. Idempotent."""
        self._fresh.clear()
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _add_due(self) -> None:
        due, self._waiting, self._fresh = self._waiting, self._fresh, {}
        self._timer = self._loop.call_later(_MOMENT, self._add_due) if self._waiting else None
        for descriptor, callback in due.items():
            try:
                self._readers.add_reader(descriptor, callback)
            except OSError:  # no more can be watched; it is still read at the end
                log.exception("descriptor %d cannot be watched", descriptor)


_READ = 65536


class Tail:
    """Reads a descriptor until its end, keeps at most `limit` last bytes, and hands each chunk on as it comes."""

    __slots__ = ("_descriptor", "_kept", "_limit", "_readers", "on_chunk", "total")

    def __init__(self, descriptor: int, limit: int, readers: Readers | None = None) -> None:
        self._descriptor = descriptor
        self._limit = limit
        self._kept = bytearray()
        self.total = 0
        self.on_chunk: Callable[[bytes], None] | None = None
        self._readers = readers or asyncio.get_running_loop()
        self._readers.add_reader(descriptor, self._read_chunk)

    @property
    def closed(self) -> bool:
        return self._descriptor < 0

    def last(self) -> bytes:
        """The last bytes, at most `limit` of them."""
        return bytes(self._kept[-self._limit :])

    def text(self) -> str:
        """The same as text; what is no UTF-8 is replaced."""
        return self.last().decode(errors="replace")

    def drain(self) -> None:
        """Take what is there now, up to a pipe's worth: for the moment a peer's end is reported. Somebody may write without end."""
        reads = 0 if self.closed else max(self._limit, get_pipe_capacity(self._descriptor)) // _READ + 1
        for _ in range(reads):
            if not self._read_chunk():
                return

    def close(self) -> None:
        """Stop reading; what was kept stays. Idempotent."""
        if not self.closed:
            self._readers.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _read_chunk(self) -> bool:
        try:
            chunk = os.read(self._descriptor, _READ)
        except BlockingIOError:
            return False
        except OSError as error:
            log.debug("reading descriptor %d: %s", self._descriptor, error)
            chunk = b""
        if not chunk:
            self.close()
            return False
        self._keep(chunk)
        return True

    def _keep(self, chunk: bytes) -> None:
        self.total += len(chunk)
        self._kept += chunk
        if len(self._kept) > 2 * self._limit:  # cut seldom, so that each byte is moved at most once
            del self._kept[: -self._limit]
        if self.on_chunk is not None:
            try:
                self.on_chunk(chunk)
            except Exception:
                log.exception("a listener to a drained descriptor failed")


class FileTail(Tail):
    """The end of a file that its writer appends to by itself: nothing to drain, however much it writes (spec zot 7.40).

    Only what comes after the descriptor's position counts. Should somebody make the file shorter meanwhile, it starts anew.
    """

    __slots__ = ("_remarks", "_start")

    def __init__(self, descriptor: int, limit: int, remarks: bytes = b"") -> None:
        """Lines that begin with `remarks` are somebody else's and left out."""
        self._remarks = remarks
        self._descriptor = descriptor
        self._limit = limit
        self._kept = bytearray()
        self._start = os.lseek(descriptor, 0, os.SEEK_CUR)
        self.on_chunk = None

    @property
    def total(self) -> int:  # type: ignore[override]
        return len(self._kept) if self.closed else max(os.fstat(self._descriptor).st_size - self._start, 0)

    def last(self) -> bytes:
        self.drain()
        if not self._remarks or self._remarks not in self._kept:
            return bytes(self._kept)
        return b"".join(line for line in self._kept.splitlines(keepends=True) if not line.startswith(self._remarks))

    def drain(self) -> None:
        """See what is there now."""
        if self.closed:
            return
        size = os.fstat(self._descriptor).st_size
        self._start = self._start if size >= self._start else 0
        begin = max(self._start, size - self._limit)
        self._kept = bytearray(os.pread(self._descriptor, size - begin, begin))

    def close(self) -> None:
        if not self.closed:
            self.drain()
            os.close(self._descriptor)
            self._descriptor = -1
