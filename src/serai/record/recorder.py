"""The flight recorder: hands out a tap for every wire and has everything written.

with Recorder.start(command="serai run") as recorder:
    tap = recorder.wire("zot:weather", kind="guest", dialect="zot", pid=child.pid)
    Channel(child, receiver, deadlines=deadlines, tap=tap)
"""

from __future__ import annotations

import os
import weakref
from time import monotonic
from typing import Literal, Self

from serai import paths
from serai.errors import ExitStatus, NotRecorded, SeraiError
from serai.limits import Limits
from serai.record.folder import Folder, new_run
from serai.record.secrets import Secrets, encoded
from serai.record.segment import FORMAT, Dropped, End, Exit, Head, Note, Open, Skipped, Way
from serai.record.writer import Run, Writer
from serai.version import __version__
from serai.wire.stream import Oversize

__all__ = ["Kind", "Recorder", "WireTap"]

Kind = Literal["guest", "agent", "hook", "box", "model"]

_PAGE = 4096
# How long an end may wait for the disk before it is given up, in seconds.
_PATIENCE = 5.0


class Recorder:
    """One run's recording, begun with it. Everything here may be called from any thread, and none of it waits for the disk."""

    def __init__(
        self,
        folder: Folder | None = None,
        *,
        command: str = "",
        secrets: Secrets | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`secrets` may be added to at any time; without any, whatever looks like a credential in our own environment is masked."""
        self.secrets = Secrets.of(os.environ) if secrets is None else secrets
        self.folder = folder or Folder.usual()
        self.run = new_run()
        self._wires = 0
        self._noted = False
        self.folder.create()
        head = Head(format=FORMAT, run=self.run, pid=os.getpid(), serai=__version__, command=command)
        try:
            self._writer = Writer(self.folder, head, self.secrets, limits or Limits())
        except OSError as error:
            raise NotRecorded(f"the recording cannot be started: {error.strerror}", who=str(self.folder.path)) from None
        self._taps: weakref.WeakSet[WireTap] = weakref.WeakSet()
        # At the latest when the interpreter ends: the last batch is the one that tells why.
        self._finish = weakref.finalize(self, _finish, self._writer, self._taps)

    @classmethod
    def start(cls, *, command: str = "", secrets: Secrets | None = None, limits: Limits | None = None) -> Recorder | None:
        """What an entry point does: a recorder in the usual folder, or None when the person has turned recording off."""
        return cls(command=command, secrets=secrets, limits=limits) if paths.recording_enabled() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def failure(self) -> str:
        """Why nothing can be written at the moment; what is lost meanwhile is counted in the recording."""
        return self._writer.failure

    def wire(
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
        return self._writer.micros(monotonic())


def _finish(writer: Writer, taps: weakref.WeakSet[WireTap]) -> None:
    for tap in list(taps):
        tap.tell_dropped()
    writer.close(_PATIENCE)


class WireTap:
    """Puts one wire on record. It is a `serai.wire.channel.Tap`; `body` and `end` are for what has no channel."""

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

    def frames(self, direction: Way, at: float, run: bytes) -> None:
        if self._dropped[0] or not self._put((self.wire, direction, at, run), len(run)):
            self._put_late((self.wire, direction, at, run), len(run), 1 if self._bodies else run.count(b"\n") or 1)

    def skipped(self, at: float, frame: Oversize) -> None:
        head = self._recorder.secrets.mask_piece(frame.head).decode(errors="replace")
        entry = Skipped(wire=self.wire, size=frame.size, limit=frame.limit, head=head, at=self._writer.micros(at))
        self._put_late(entry, len(head), 1)

    def ended(self, at: float, cause: SeraiError) -> None:
        self.end(at, cause=cause, exit=cause.exit, stderr=cause.stderr)

    def body(self, direction: Way, data: bytes, at: float | None = None) -> None:
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
        last = self._recorder.secrets.mask_piece(encoded(stderr)).decode(errors="replace")
        self._writer.tell(
            End(
                wire=self.wire,
                why="" if cause is None else cause.message,
                error="" if cause is None else type(cause).__name__,
                exit=None if exit is None else Exit(exit.code, exit.signal),
                stderr=last,
                at=self._writer.micros(when),
            )
        )

    def tell_dropped(self, at: float | None = None) -> None:
        """Say what was dropped since the last that was taken; done before an end and before a recording is closed."""
        if self._dropped[0]:
            self._writer.tell(self._drop(monotonic() if at is None else at))
            self._dropped = [0, 0]

    def _put_late(self, item: Run | Skipped, size: int, frames: int) -> None:
        """Put it behind the news of what was dropped before it, or count it with that."""
        if self._put(item, size, self._drop(monotonic()) if self._dropped[0] else None):
            self._dropped = [0, 0]
        else:
            self._dropped[0] += frames
            self._dropped[1] += size

    def _drop(self, at: float) -> Dropped:
        frames, size = self._dropped
        return Dropped(wire=self.wire, frames=frames, bytes=size, why="more came than could be written", at=self._writer.micros(at))
