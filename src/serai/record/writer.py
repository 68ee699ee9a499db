"""The thread that writes: off the hot path, in batches, bounded in memory, and never in anybody's way.

What a wire does is `put`: a lock, an append. The thread wakes at most once per batch, makes the bytes (heads, masks) and
hands them to the kernel in one call per slice; slices are small, so that the loop gets the interpreter back at once.

A batch is in the page cache once written: a host that is killed then loses nothing of it. Nothing is synced: a power cut may cost
the last seconds, and the reader copes.
"""

from __future__ import annotations

import logging
import os
import threading
from time import monotonic, time

from msgspec.structs import replace

from serai.limits import Limits
from serai.record.folder import Folder
from serai.record.secrets import Secrets
from serai.record.segment import Dropped, End, Head, Open, Way, Written, frames_head, pack

__all__ = ["Writer"]

log = logging.getLogger("serai.record")

# This much wakes the thread before the batch's time is up.
_BATCH_BYTES = 1 << 18
# How much is made ready between two calls of the kernel: the loop may have to wait so long for the interpreter.
_SLICE_PARTS = 256
_SLICE_BYTES = 1 << 18
# Less than this is joined first, which the kernel likes better than many small pieces.
_JOINED = 1 << 15
# What an item costs beside its bytes.
_OVERHEAD = 200
# A clock that was set, or a machine that slept: wall time is taken anew beyond this many seconds.
_DRIFT = 1.0

Run = tuple[int, Way, float, bytes]  # wire, way, monotonic time, bytes
Item = Run | Written | threading.Event  # the last is set when its turn has come


class Writer:
    """Writes one run's files. `put`, `tell`, `flush` and `close` from any thread; what is below them belongs to its own."""

    def __init__(self, folder: Folder, head: Head, secrets: Secrets, limits: Limits) -> None:
        self._folder = folder
        self._head = head
        self._secrets = secrets
        self._limits = limits
        self._memory = limits.record_memory
        self._lock = threading.Lock()
        self._signal = threading.Event()  # something to write, or enough of it, or no time to lose
        self._items: list[Item] = []
        self._queued = 0  # bytes put and not yet written
        self._closing = self._hurry = False
        self._open: dict[int, Open] = {}  # the wires that the next file must tell of again
        self._lost = [0, 0]  # frames and bytes that could not be written
        self._offset = time() - monotonic()
        self.failure = ""  # why nothing can be written at the moment
        self.part = -1
        self._file = -1
        self._size = 0
        self._next_file()
        self._thread = threading.Thread(target=self._run, name="serai-recorder", daemon=True)
        self._thread.start()

    def put(self, wire: int, way: Way, at: float, run: bytes, before: Written | None = None) -> bool:
        """Have a run written, and `before` in front of it; False when too much waits already: then neither was taken."""
        size = len(run) + _OVERHEAD
        with self._lock:
            queued = self._queued
            if self._closing or (queued and queued + size > self._memory):
                return False
            items = self._items
            wake = not items or queued < _BATCH_BYTES <= queued + size
            if before is not None:
                items.append(before)
            items.append((wire, way, at, run))
            self._queued = queued + size
        if wake:
            self._signal.set()
        return True

    def tell(self, entry: Written | threading.Event) -> None:
        """Have an entry written: there are few, and each is worth its memory. An event is set when its turn has come."""
        with self._lock:
            if not self._closing:
                self._items.append(entry)
            elif isinstance(entry, threading.Event):
                entry.set()
        self._signal.set()

    def micros(self, at: float) -> int:
        """A monotonic time as microseconds since 1970."""
        return int((at + self._offset) * 1e6)

    def flush(self, timeout: float) -> bool:
        """Wait until everything put so far is written; False when that takes too long."""
        self._hurry = True
        written = threading.Event()
        self.tell(written)
        return written.wait(timeout)

    def close(self, timeout: float) -> bool:
        """Write what is there and end; False when the disk does not let us. Idempotent."""
        with self._lock:
            self._closing = True
            self._signal.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- the thread -------------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._prune()
        while True:
            self._signal.wait()
            if not (self._closing or self._hurry or self._queued >= _BATCH_BYTES):
                self._signal.clear()
                self._signal.wait(self._limits.record_batch)
            self._signal.clear()
            self._hurry = False
            with self._lock:
                items, self._items = self._items, []
                closing = self._closing
            try:
                self._write_all(items)
            except Exception:  # a defect of ours: what is lost by it is lost, the rest must not be
                log.exception("a part of the recording is lost")
                self._recount()
            if closing:
                os.close(self._file)
                return

    def _write_all(self, items: list[Item]) -> None:
        self._set_clock()
        parts: list[bytes] = []
        start = size = 0  # of the slice: its first item, and what it counts for
        mask = self._secrets.mask
        for end, item in enumerate(items, 1):
            if type(item) is tuple:
                wire, way, at, run = item
                parts += (frames_head(wire, way, self.micros(at), len(run)), mask(run))
                size += len(run) + _OVERHEAD
            elif isinstance(item, Written):
                parts.append(self._pack(item))
            if len(parts) >= _SLICE_PARTS or size >= _SLICE_BYTES or end == len(items):
                if not self._write(parts):
                    self._count_lost(items[start:end])
                with self._lock:
                    self._queued -= size
                parts, start, size = [], end, 0
        for item in items:
            if isinstance(item, threading.Event):
                item.set()

    def _pack(self, entry: Written) -> bytes:
        if isinstance(entry, Open):
            self._open[entry.wire] = entry
        elif isinstance(entry, End):
            self._open.pop(entry.wire, None)
        return self._secrets.mask(pack(entry))

    def _write(self, parts: list[bytes]) -> bool:
        try:
            if self._size >= self._limits.record_segment:
                self._next_file()
            if self._lost[0]:
                lost = Dropped(wire=0, frames=self._lost[0], bytes=self._lost[1], why="the disk did not take them", at=_now())
                parts = [pack(lost), *self._opened(), *parts]
            self._size += _write_fully(self._file, parts)
        except OSError as error:
            self._fails(error.strerror or str(error))
            _cut_back(self._file, self._size)
            return False
        self._lost = [0, 0]
        self._fails("")
        return True

    def _count_lost(self, items: list[Item]) -> None:
        for item in items:
            if isinstance(item, tuple):
                self._lost[0] += item[3].count(b"\n") or 1
                self._lost[1] += len(item[3])

    def _recount(self) -> None:
        with self._lock:
            self._queued = sum(len(item[3]) + _OVERHEAD for item in self._items if isinstance(item, tuple))

    def _fails(self, why: str) -> None:
        if why and not self.failure:
            log.error("the recording cannot be written, what is lost is counted: %s", why)
        elif self.failure and not why:
            log.warning("the recording is written again")
        self.failure = why

    def _next_file(self) -> None:
        """Go on in a new file, which can be understood without those before it."""
        file = self._folder.new_file(self._head.run, self.part + 1)
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size = file, 0
        self.part += 1
        head = self._secrets.mask(pack(replace(self._head, part=self.part, at=_now())))
        self._size = _write_fully(file, [head, *self._opened()])
        if self.part:
            self._prune()

    def _opened(self) -> list[bytes]:
        """The wires that are open, for a reader who may not have seen them open."""
        return [self._secrets.mask(pack(replace(entry, again=True))) for entry in self._open.values()]

    def _prune(self) -> None:
        try:
            self._folder.prune_by(self._limits)
        except OSError as error:
            log.warning("old recordings cannot be removed: %s", error)

    def _set_clock(self) -> None:
        offset = time() - monotonic()
        if abs(offset - self._offset) > _DRIFT:
            self._offset = offset


def _now() -> int:
    return int(time() * 1e6)


def _write_fully(file: int, parts: list[bytes]) -> int:
    """Write all of it; how much that was. What is written when it fails half-way is cut back by the caller."""
    size = sum(map(len, parts))
    if size < _JOINED:
        parts = [b"".join(parts)]
    written = os.writev(file, parts)
    if written < size:
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            rest = rest[os.write(file, rest) :]
    return size


def _cut_back(file: int, size: int) -> None:
    """Take off a half-written entry."""
    try:
        os.ftruncate(file, size)
    except OSError as error:
        log.debug("cutting back: %s", error)
