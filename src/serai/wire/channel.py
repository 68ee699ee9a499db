"""The hot path: a child's pipes, framed, with back-pressure, deadlines and a tap.

A channel knows bytes and frames, not messages. What sits on it (an adapter, a driver) is a `Receiver`: it gets runs of whole
frames and, exactly once and last, the reason why no more will come.

How it is fast (performance map, "What makes the difference"): the loop calls us when the pipe is readable, one read of 64 KiB, no
copy, no task, no stream object. A frame sent when it is alone is written at once; when several are under way they are
collected until the loop has run everybody who is ready, and go out in one write.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from fcntl import F_SETPIPE_SZ, fcntl
from time import monotonic
from typing import Literal, Protocol

from serai.errors import Closed, FrameTooBig, LimitHit, PeerGone, PeerStalled, SeraiError
from serai.limits import Limits
from serai.wire.deadlines import Deadlines
from serai.wire.framing import Framer, Oversize
from serai.wire.process import Child

__all__ = ["Channel", "Receiver", "Tap"]

log = logging.getLogger("serai.wire")

# Frames at least this long are written as they are; shorter ones are joined first, which costs less than a write each.
_JOIN = 65536


class Receiver(Protocol):
    """What a channel delivers to. Called from the loop, never concurrently; must not block."""

    def received(self, run: bytes) -> None:
        """Whole frames, in order. The bytes are the receiver's to keep."""
        ...

    def oversize(self, frame: Oversize) -> None:
        """A frame over the limit was skipped in its place between the runs."""
        ...

    def lost(self, cause: SeraiError) -> None:
        """Nothing more will come: `PeerGone`, or `Closed` when we closed it. Called once, last."""
        ...

    def tick(self, now: float) -> float | None:
        """A deadline given to `Channel.wake_by` has come; the next one, if any."""
        ...


class Tap(Protocol):
    """Sees every frame of a wire, as runs of whole frames in the order of the wire. Must be quick and must not raise."""

    def frames(self, direction: Literal["sent", "received"], at: float, run: bytes) -> None:
        """`at` is the monotonic time of the read or of the first write; the run is immutable and may be kept."""
        ...

    def skipped(self, at: float, frame: Oversize) -> None:
        """A frame over the limit was received and not kept; its place in the order is here."""
        ...

    def ended(self, at: float, cause: SeraiError) -> None:
        """The wire is over."""
        ...


class Channel:
    """One wire to a child, over its standard streams or over a pair of its extra descriptors."""

    def __init__(
        self,
        child: Child,
        receiver: Receiver,
        *,
        deadlines: Deadlines,
        limits: Limits | None = None,
        tap: Tap | None = None,
        read: int | None = None,
        write: int | None = None,
    ) -> None:
        self.child = child
        self.limits = limits = limits or Limits()
        self._receiver = receiver
        self._tap = tap
        self._loop = asyncio.get_running_loop()
        self._framer = Framer(limits.frame, limits.frame_head)
        self._read = child.stdout if read is None else read
        self._write = child.stdin if write is None else write
        if self._read < 0:
            raise Closed("it has no output to read from", who=child.who)
        self._queue: deque[bytes] = deque()  # frames not yet given to the kernel
        self._queued = 0  # their bytes, with those of the rest
        self._rest: memoryview | None = None  # of a run the kernel took only part of
        self._flush_planned = False
        self._writer_added = False
        self._cork = False  # several frames are under way: collect
        self._grown: set[int] = set()  # pipes made larger already
        self._paused = False
        self._eof = False
        self._input_over = self._write < 0  # nothing (more) may be sent
        self._finish_at: float | None = None
        self._drained: list[asyncio.Future[None]] = []
        self._watch = deadlines.watch(self._tick)
        self.cause: SeraiError | None = None
        self._reading = True
        self._read_bytes = 0
        self._loop.add_reader(self._read, self._readable)
        child.before_close(self._read, self._output_closes)
        child.before_close(self._write, self._input_closes)
        child.exited.add_done_callback(self._exited)

    # -- sending --------------------------------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Send one frame with its newline. Never blocks: what the pipe does not take waits, up to `limits.backlog`."""
        if self._input_over:
            raise self._over()
        if len(frame) > self.limits.send:
            limit = LimitHit("send", self.limits.send)
            raise FrameTooBig(f"a frame of {len(frame)} bytes is not sent", who=self.child.who, limit=limit)
        if self._cork or self._queued:
            self._enqueue(frame)
            return
        self._cork = True  # until something comes back
        if self._tap is not None:
            self._tap.frames("sent", monotonic(), frame)
        self._put(frame)

    def wake_by(self, deadline: float | None) -> None:
        """Have `Receiver.tick` called at that time or soon after."""
        if deadline is not None and deadline < self._watch.at:
            self._watch.by(deadline)

    async def drain(self) -> None:
        """Wait until everything sent was taken by the kernel: back-pressure for who sends much. Raises when the wire is lost."""
        if self.cause is not None:
            raise self._over()
        if self._queued:
            done = self._loop.create_future()
            self._drained.append(done)
            await done

    def end_input(self) -> None:
        """Close the peer's input once everything sent is written. Idempotent; `send` fails from now on."""
        self._input_over = True
        if not self._queued:
            self.child.close_descriptor(self._write)

    # -- receiving --------------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop reading, so that the peer feels that we are behind; what was read already still comes. Idempotent."""
        if not self._paused:
            self._paused = True
            self._stop_reading()

    def resume(self) -> None:
        """Read again. Idempotent."""
        if self._paused:
            self._paused = False
            if not self._eof and self.cause is None:
                self._reading = True
                self._loop.add_reader(self._read, self._readable)
            if self._finish_at is not None:
                self._finish_at = None
                self._settle(self.limits.drain_grace)

    def close(self, cause: SeraiError | None = None) -> None:
        """Let go of the wire; the receiver is told `cause`, or that it was closed. The child is not touched. Idempotent."""
        self._finish(cause or Closed("the wire was closed", who=self.child.who))

    # -- inside: reading --------------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        limits = self.limits
        until = 0.0
        while True:
            try:
                chunk = os.read(self._read, limits.read)
            except BlockingIOError:
                return
            except OSError as error:
                log.debug("%s: reading: %s", self.child.who, error)
                chunk = b""
            if not chunk:
                self._end_of_output()
                return
            self._read_bytes += len(chunk)
            self._deliver(self._framer.feed(chunk))
            if len(chunk) < limits.read or self._paused or self.cause is not None:
                return
            now = monotonic()
            until = until or now + limits.read_slice
            if now >= until:
                return

    def _deliver(self, items: list[bytes | Oversize]) -> None:
        for item in items:
            try:
                if type(item) is bytes:
                    # One frame came back: the next is alone again. Several: as many are likely to follow.
                    self._cork = item.find(b"\n") + 1 < len(item)
                    if self._tap is not None:
                        self._tap.frames("received", monotonic(), item)
                    self._receiver.received(item)
                else:
                    assert isinstance(item, Oversize)
                    if self._tap is not None:
                        self._tap.skipped(monotonic(), item)
                    self._receiver.oversize(item)
            except Exception:  # a receiver's defect must not end the wire for good (design rule 4)
                log.exception("%s: its receiver failed on a run", self.child.who)
        if self._framer.pending > _JOIN and self._read not in self._grown:
            self._grow(self._read)

    def _end_of_output(self) -> None:
        self._eof = True
        self._stop_reading()
        self._deliver(self._framer.eof())
        self._settle(self.limits.exit_grace)

    def _output_closes(self) -> None:
        """The child is being closed: its tree is dead, so what is in the pipe is all there will ever be."""
        self._paused = False
        most = self._read_bytes + self.limits.pipe  # what a pipe can hold, should somebody still write after all
        while not self._eof and self.cause is None and (before := self._read_bytes) < most:
            self._readable()
            if self._read_bytes == before:
                break
        ended = self._eof or self.child.exited.done()
        self._finish(self._gone() if ended else Closed("its output was closed", who=self.child.who))

    def _exited(self, _: object) -> None:
        self._settle(self.limits.drain_grace)

    def _settle(self, grace: float) -> None:
        """The end of output and the exit belong together; either alone waits a moment for the other."""
        if self.cause is not None:
            return
        if self._eof and self.child.exited.done():
            self._finish(self._gone())
        elif self._finish_at is None:
            self._finish_at = monotonic() + grace
            self._watch.by(self._finish_at)

    def _tick(self, now: float) -> float | None:
        if self.cause is not None:
            return None
        if self._finish_at is not None and self._finish_at <= now and not self._paused:
            self._finish(self._gone())
            return None
        try:
            deadline = self._receiver.tick(now)
        except Exception:
            log.exception("%s: its receiver failed on a deadline", self.child.who)
            deadline = None
        return min((at for at in (deadline, self._finish_at) if at is not None and at > now), default=None)

    def _gone(self) -> PeerGone:
        child = self.child
        child.stderr.drain()
        exit = child.exited.result() if child.exited.done() else None
        if exit is not None:
            message = "ended" if self._eof else "ended, but a process it started holds its output open"
        elif self._eof:
            message = "closed its output, but still runs"
        else:
            message = "closed its input, but still runs"
        return PeerGone(message, who=child.who, exit=exit, stderr=child.stderr.text())

    def _finish(self, cause: SeraiError) -> None:
        if self.cause is not None:
            return
        self.cause = cause
        self._watch.close()
        self._stop_reading()
        self._drop_output()
        if self._tap is not None:
            self._tap.ended(monotonic(), cause)
        try:
            self._receiver.lost(cause)
        except Exception:
            log.exception("%s: its receiver failed on the end of the wire", self.child.who)

    def _over(self) -> SeraiError:
        """Why nothing can be sent: a fresh error each time, since a raised one collects tracebacks."""
        if self.cause is not None:
            return self.cause.for_call("")
        return Closed("its input was closed", who=self.child.who)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._read)

    # -- inside: writing --------------------------------------------------------------------------------------------------------

    def _enqueue(self, frame: bytes) -> None:
        if self._queued and self._queued + len(frame) > self.limits.backlog:
            limit = LimitHit("backlog", self.limits.backlog)
            raise PeerStalled(f"{self._queued} bytes wait for it to read", who=self.child.who, limit=limit)
        self._queue.append(frame)
        self._queued += len(frame)
        if self._rest is None and not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        self._cork = False
        while self._rest is not None or self._queue:
            if self._rest is None:
                run = self._take()
                self._queued -= len(run)
                if self._tap is not None:
                    self._tap.frames("sent", monotonic(), run)
                if not self._put(run):
                    return
            else:
                rest, self._rest = self._rest, None
                self._queued -= len(rest)
                if not self._put(rest):
                    return
        self._stop_writing()
        for done in self._drained:
            if not done.done():
                done.set_result(None)
        self._drained.clear()
        if self._input_over and self.cause is None:
            self.child.close_descriptor(self._write)

    def _take(self) -> bytes:
        """The next run to write: a long frame alone, or short ones joined."""
        queue = self._queue
        if len(queue) == 1 or len(queue[0]) >= _JOIN:
            return queue.popleft()
        parts: list[bytes] = []
        size = 0
        while queue and size + len(queue[0]) <= _JOIN:
            parts.append(queue.popleft())
            size += len(parts[-1])
        return b"".join(parts)

    def _put(self, data: bytes | memoryview) -> bool:
        """Write; what the pipe does not take becomes the rest. False when there is one, or the pipe is broken."""
        try:
            written = os.write(self._write, data)
        except BlockingIOError:
            written = 0
        except OSError as error:
            self._broken(error)
            return False
        if written == len(data):
            return True
        self._rest = memoryview(data)[written:]
        self._queued += len(self._rest)
        if len(data) > _JOIN and self._write not in self._grown:
            self._grow(self._write)
        if not self._writer_added:
            self._writer_added = True
            self._loop.add_writer(self._write, self._flush)
        return False

    def _broken(self, error: OSError) -> None:
        """The peer closed its input. Its exit says more than the broken pipe does, so wait a moment for that (agents 7.13)."""
        log.debug("%s: writing: %s", self.child.who, error)
        self._drop_output()
        self.child.close_descriptor(self._write)
        self._settle(self.limits.exit_grace)

    def _input_closes(self) -> None:
        """A last try for what is queued, such as a farewell, then let go of the descriptor."""
        if self._queue and self._rest is None:
            self._flush()
        self._drop_output()

    def _drop_output(self) -> None:
        self._input_over = True
        self._stop_writing()
        self._queue.clear()
        self._queued, self._rest = 0, None
        for done in self._drained:
            if not done.done():
                done.set_exception(self._over())
        self._drained.clear()

    def _stop_writing(self) -> None:
        if self._writer_added:
            self._writer_added = False
            self._loop.remove_writer(self._write)

    def _grow(self, descriptor: int) -> None:
        """A larger pipe for a wire with long frames: fewer wake-ups for each. The machine may refuse; then it stays."""
        self._grown.add(descriptor)
        try:
            fcntl(descriptor, F_SETPIPE_SZ, self.limits.pipe)
        except OSError as error:
            log.debug("%s: its pipe stays small: %s", self.child.who, error)
