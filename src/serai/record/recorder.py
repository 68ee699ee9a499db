"""The flight recorder: a tap for every wire, and the thread that writes everything.

    with Recorder.start(command="serai run") as recorder:
        tap = recorder.open_tap("zot:weather", kind="guest", dialect="zot", pid=child.pid)
        Channel(child, receiver, deadlines=deadlines, tap=tap)

The thread is off the hot path, writes in batches and is bounded in memory. A wire only does `put`: a lock, an append. The thread
wakes at most once per batch, makes the bytes (heads, masks) and passes them to the kernel in one call per slice; slices are small,
so that the loop gets the interpreter back at once.

A batch is in the page cache once written: a host that is killed then loses nothing of it. Nothing is synced: a power cut may cost
the last seconds, and the reader handles that.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import weakref
from time import monotonic, time
from typing import Literal, Self

from msgspec.structs import replace

from serai import paths
from serai.errors import ExitStatus, NotRecorded, SeraiError
from serai.limits import RecordLimits
from serai.record.recording_folder import RecordingFolder, make_run_name
from serai.record.secrets import Secrets, encode_secret
from serai.record.segment import (
    FORMAT,
    MARK,
    Dropped,
    End,
    Exit,
    FrameDirection,
    Head,
    Note,
    Open,
    Skipped,
    Written,
    escape_marks,
    map_texts,
    pack,
    pack_frames_head,
)
from serai.version import __version__
from serai.wire.stream import Oversize

log = logging.getLogger("serai.record")

# This much wakes the thread before the batch's time is up.
_BATCH_BYTES = 1 << 18
# How much is made ready between two calls of the kernel: the loop may have to wait so long for the interpreter. The kernel itself
# takes no more than 1024 parts at once.
_SLICE_PARTS = 256
_SLICE_BYTES = 1 << 18
# Less than this is joined first, which the kernel likes better than many small pieces.
_JOINED = 1 << 15
# What an item costs beside its bytes.
_OVERHEAD = 200
# A clock that was set, or a machine that slept: wall time is taken anew beyond this many seconds.
_DRIFT = 1.0

Run = tuple[int, FrameDirection, float, bytes]  # wire, way, monotonic time, bytes
Item = Run | Written | threading.Event  # the last is set when its turn has come


class RecordingWriter:
    """Writes one run's files. `put`, `tell`, `flush` and `close` from any thread; what is below them belongs to its own."""

    def __init__(self, folder: RecordingFolder, head: Head, secrets: Secrets, limits: RecordLimits) -> None:
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
        self._named: set[str] = set()  # values too short to be masked of which the recording tells
        self._lost = [0, 0]  # frames (and entries there was no room for) and bytes that could not be written
        self._kept: list[bytes] = []  # entries that could not be written yet
        self._offset = time() - monotonic()
        self.failure = ""  # why nothing can be written at the moment
        self.part = -1
        self._file = -1
        self._size = 0
        self._start_next_file()
        self._thread = threading.Thread(target=self._run, name="serai-recorder", daemon=True)
        self._thread.start()

    def put(self, item: Run | Skipped, size: int, before: Written | None = None) -> bool:
        """Have so many bytes written, and `before` in front; False when too much waits already: then neither was taken."""
        size += _OVERHEAD
        with self._lock:
            queued = self._queued
            if self._closing or (queued and queued + size > self._memory):
                return False
            items = self._items
            wake = not items or queued < _BATCH_BYTES <= queued + size
            if before is not None:
                items.append(before)
            items.append(item)
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

    def to_micros(self, at: float) -> int:
        """A monotonic time as microseconds since 1970."""
        return max(0, int((at + self._offset) * 1e6))

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
                queued, closing = self._queued, self._closing
            self._write_all(items)
            with self._lock:
                self._queued -= queued  # only now: until here they were in memory
            del items
            if closing:
                self._close_file(self._file)
                return

    def _write_all(self, items: list[Item]) -> None:
        """Write them in slices. Whatever goes wrong with one is counted, and the next has its turn."""
        self._set_clock()
        self._note_short_values()
        start = 0
        while start < len(items):
            end = _find_slice_end(items, start)
            try:
                parts = self._build_parts(items[start:end])
                written = self._write(parts)
            except Exception:  # a defect of ours
                log.exception("a part of the recording is lost")
                written = False
            if not written:
                self._count_lost(items[start:end])
            start = end
        if self._kept or self._lost[0]:
            self._write([])
        for item in items:
            if isinstance(item, threading.Event):
                item.set()

    def _build_parts(self, items: list[Item]) -> list[bytes]:
        """The bytes of the items. Everything on every wire comes through here: no call that can be spared."""
        parts: list[bytes] = []
        mask = self._secrets.mask if len(self._secrets) else None
        offset = self._offset
        for item in items:
            if type(item) is tuple:
                wire, way, at, run = item
                if mask is not None:
                    run = mask(run)
                if MARK in run:
                    run = escape_marks(run)
                parts += (pack_frames_head(wire, way, int((at + offset) * 1e6), len(run)), run)
            elif isinstance(item, Written):
                parts.append(self._pack(item))
        return parts

    def _pack(self, entry: Written) -> bytes:
        if isinstance(entry, Open):
            self._open[entry.wire] = entry
        elif isinstance(entry, End):
            self._open.pop(entry.wire, None)
        return pack(map_texts(entry, self._secrets.mask_text))

    def _write(self, parts: list[bytes]) -> bool:
        if self._size >= self._limits.record_segment:
            self._rotate()
        try:
            if self._lost[0]:
                lost = Dropped(wire=0, frames=self._lost[0], bytes=self._lost[1], why="the disk did not take them", at=_now())
                parts = [pack(lost), *parts]
            if self._kept:
                parts = [*self._kept, *parts]
            self._size += _write_fully(self._file, parts)
        except OSError as error:
            self._set_failure(error.strerror or str(error))
            if not _cut_back(self._file, self._size):
                self._kept.insert(0, b"\n")  # then a half entry stands there: what follows begins on a line of its own
            return False
        self._lost, self._kept = [0, 0], []
        self._set_failure("")
        return True

    def _count_lost(self, items: list[Item]) -> None:
        """Frames are counted; entries, of which there are few, are kept for when the disk takes them, as far as there is room."""
        room = self._memory - sum(map(len, self._kept))
        for item in items:
            if isinstance(item, tuple):
                wire = self._open.get(item[0])
                frames = 1 if wire is not None and wire.framing == "bodies" else item[3].count(b"\n") or 1
                self._lost = [self._lost[0] + frames, self._lost[1] + len(item[3])]
            elif isinstance(item, Dropped):
                self._lost = [self._lost[0] + item.frames, self._lost[1] + item.bytes]
            elif isinstance(item, Written):
                line = self._pack(item)
                room -= len(line)
                if room > 0:
                    self._kept.append(line)
                else:
                    self._lost[0] += 1

    def _set_failure(self, why: str) -> None:
        if why and not self.failure:
            log.error("the recording cannot be written, what is lost is counted: %s", why)
        elif self.failure and not why:
            log.warning("the recording is written again")
        self.failure = why

    def _rotate(self) -> None:
        try:
            self._start_next_file()
        except OSError as error:  # then the old one gets longer than it should; the next batch tries again
            log.warning("the recording cannot go on in a new file: %s", error)

    def _start_next_file(self) -> None:
        """Go on in a new file, which can be understood without those before it. The old one stays in use when that fails."""
        file, part = self._create_file()
        head = self._pack(replace(self._head, part=part, at=_now()))
        opened = [self._pack(replace(entry, again=True)) for entry in list(self._open.values())]
        try:
            size = _write_fully(file, [head, *opened])
        except OSError:
            self._close_file(file)
            self._folder.remove(self._head.run, part)
            raise
        old, self._file, self._size, self.part = self._file, file, size, part
        if old >= 0:
            self._close_file(old)
            self._prune()

    def _create_file(self) -> tuple[int, int]:
        """A file for the next part, and its number: those that a failed attempt could not remove are left out."""
        part = self.part + 1
        while True:
            try:
                return self._folder.create_file(self._head.run, part), part
            except FileExistsError:
                part += 1

    def _close_file(self, file: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_UN)  # a fork may hold the file open
            os.close(file)
        except OSError as error:  # some file systems tell only now that they did not write
            log.warning("closing a file of the recording: %s", error)

    def _prune(self) -> None:
        try:
            self._folder.prune_to_limits(self._limits)
        except Exception as error:  # the recording itself matters more
            log.warning("old recordings cannot be removed: %s", error)

    def _note_short_values(self) -> None:
        """Say which values are too short to be masked, also those learned meanwhile."""
        if new := self._secrets.too_short - self._named:
            self._named |= new
            self._kept.append(self._pack(Note(text=f"values too short to be masked: {', '.join(sorted(new))}", at=_now())))

    def _set_clock(self) -> None:
        offset = time() - monotonic()
        if abs(offset - self._offset) > _DRIFT:
            self._offset = offset


def _find_slice_end(items: list[Item], start: int) -> int:
    size = 0
    for end in range(start, min(start + _SLICE_PARTS // 2, len(items))):
        item = items[end]
        size += len(item[3]) if type(item) is tuple else 0
        if size >= _SLICE_BYTES:
            return end + 1
    return min(start + _SLICE_PARTS // 2, len(items))


def _now() -> int:
    return int(time() * 1e6)


def _write_fully(file: int, parts: list[bytes]) -> int:
    """Write all of it; how much that was. What is written when it fails half-way is cut back by the caller."""
    size = sum(map(len, parts))
    if size < _JOINED or len(parts) > 4 * _SLICE_PARTS - 8:
        parts = [b"".join(parts)]
    written = os.writev(file, parts)
    if written < size:
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            rest = rest[os.write(file, rest) :]
    return size


def _cut_back(file: int, size: int) -> bool:
    """Take off a half-written entry."""
    try:
        os.ftruncate(file, size)
    except OSError as error:
        log.debug("cutting back: %s", error)
        return False
    return True


Kind = Literal["guest", "agent", "hook", "box", "model"]

_PAGE = 4096
# How long an end may wait for the disk before it is given up, in seconds.
_PATIENCE = 5.0


class Recorder:
    """One run's recording, begun with it. Everything here may be called from any thread, and none of it waits for the disk."""

    def __init__(
        self,
        folder: RecordingFolder | None = None,
        *,
        command: str = "",
        secrets: Secrets | None = None,
        limits: RecordLimits | None = None,
    ) -> None:
        """`secrets` may be added to at any time; without any, whatever looks like a credential in our own environment is masked."""
        self.secrets = Secrets.from_env(os.environ) if secrets is None else secrets
        self.folder = folder or RecordingFolder.usual()
        self.run = make_run_name()
        self._wires = 0
        self._noted = False
        self.folder.create()
        head = Head(format=FORMAT, run=self.run, pid=os.getpid(), serai=__version__, command=command)
        try:
            self._writer = RecordingWriter(self.folder, head, self.secrets, limits or RecordLimits())
        except OSError as error:
            raise NotRecorded(f"the recording cannot be started: {error.strerror}", who=str(self.folder.path)) from None
        self._taps: weakref.WeakSet[WireTap] = weakref.WeakSet()
        # At the latest when the interpreter ends: the last batch is the one that tells why.
        self._finish = weakref.finalize(self, _finish, self._writer, self._taps)

    @classmethod
    def start(cls, *, command: str = "", secrets: Secrets | None = None, limits: RecordLimits | None = None) -> Recorder | None:
        """What an entry point does: a recorder in the usual folder, or None when the person has turned recording off."""
        return cls(command=command, secrets=secrets, limits=limits) if paths.is_recording_enabled() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def failure(self) -> str:
        """Why nothing can be written at the moment; what is lost meanwhile is counted in the recording."""
        return self._writer.failure

    def open_tap(
        self,
        who: str,
        *,
        kind: Kind,
        dialect: str,
        generation: int = 1,
        pid: int = 0,
        framing: Literal["lines", "bodies"] = "lines",
    ) -> WireTap:
        """A tap for a wire that begins now. `generation` counts the starts of the same peer."""
        self._wires += 1
        entry = Open(
            wire=self._wires, who=who, kind=kind, dialect=dialect, generation=generation, pid=pid, framing=framing, at=self._now()
        )
        tap = WireTap(self, entry)
        self._taps.add(tap)
        return tap

    def note(self, text: str) -> None:
        """Something a reader should know; a page of it at most."""
        self._noted = True
        self._writer.tell(Note(text=text[:_PAGE], at=self._now()))

    def flush(self, timeout: float = _PATIENCE) -> bool:
        """Wait until everything so far is written; False when the disk takes longer than that."""
        return self._writer.flush(timeout)

    def close(self) -> None:
        """Write what is left. Idempotent; taps that are still called afterwards do nothing."""
        self._finish()

    def forget_empty(self) -> None:
        """Leave no file of a run in which there was nothing to record. Once it is closed."""
        if not self._wires and not self._noted:
            self.folder.remove(self.run, 0)

    def _now(self) -> int:
        return self._writer.to_micros(monotonic())


def _finish(writer: RecordingWriter, taps: weakref.WeakSet[WireTap]) -> None:
    for tap in list(taps):
        tap.tell_dropped()
    writer.close(_PATIENCE)


class WireTap:
    """Puts one wire on record. It is a `serai.wire.channel.Tap`; `record_body` and `end` are for what has no channel."""

    __slots__ = ("__weakref__", "_bodies", "_dropped", "_ended", "_put", "_recorder", "_writer", "wire")

    def __init__(self, recorder: Recorder, entry: Open) -> None:
        self.wire = entry.wire
        self._bodies = entry.framing == "bodies"
        self._recorder = recorder  # which must not end before its wires
        self._writer = recorder._writer
        self._put = self._writer.put
        self._dropped = [0, 0]  # frames and bytes, since the last that was taken
        self._ended = False
        self._writer.tell(entry)

    def frames(self, direction: FrameDirection, at: float, run: bytes) -> None:
        if self._dropped[0] or not self._put((self.wire, direction, at, run), len(run)):
            self._put_late((self.wire, direction, at, run), len(run), 1 if self._bodies else run.count(b"\n") or 1)

    def skipped(self, at: float, frame: Oversize) -> None:
        head = self._recorder.secrets.mask_piece(frame.head).decode(errors="replace")
        entry = Skipped(wire=self.wire, size=frame.size, limit=frame.limit, head=head, at=self._writer.to_micros(at))
        self._put_late(entry, len(head), 1)

    def ended(self, at: float, cause: SeraiError) -> None:
        self.end(at, cause=cause, exit=cause.exit, stderr=cause.stderr)

    def record_body(self, direction: FrameDirection, data: bytes, at: float | None = None) -> None:
        """One message that is no line: an HTTP body, a hook's input or output. For wires with `framing="bodies"`."""
        self.frames(direction, monotonic() if at is None else at, data + b"\n")

    def end(
        self, at: float | None = None, *, cause: SeraiError | None = None, exit: ExitStatus | None = None, stderr: str = ""
    ) -> None:
        """The wire is over. Without a cause it ended as it should. Idempotent."""
        if self._ended:
            return
        self._ended = True
        when = monotonic() if at is None else at
        self.tell_dropped(when)
        last = self._recorder.secrets.mask_piece(encode_secret(stderr)).decode(errors="replace")
        self._writer.tell(
            End(
                wire=self.wire,
                why="" if cause is None else cause.message,
                error="" if cause is None else type(cause).__name__,
                exit=None if exit is None else Exit(exit.code, exit.signal),
                stderr=last,
                at=self._writer.to_micros(when),
            )
        )

    def tell_dropped(self, at: float | None = None) -> None:
        """Say what was dropped since the last that was taken; done before an end and before a recording is closed."""
        if self._dropped[0]:
            self._writer.tell(self._build_dropped(monotonic() if at is None else at))
            self._dropped = [0, 0]

    def _put_late(self, item: Run | Skipped, size: int, frames: int) -> None:
        """Put it behind the news of what was dropped before it, or count it with that."""
        if self._put(item, size, self._build_dropped(monotonic()) if self._dropped[0] else None):
            self._dropped = [0, 0]
        else:
            self._dropped[0] += frames
            self._dropped[1] += size

    def _build_dropped(self, at: float) -> Dropped:
        frames, size = self._dropped
        return Dropped(
            wire=self.wire, frames=frames, bytes=size, why="more came than could be written", at=self._writer.to_micros(at)
        )
