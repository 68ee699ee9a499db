"""The hot path: a child's pipes, framed, with back-pressure, deadlines and a tap.

A channel knows bytes and frames, not messages. What sits on it (an adapter, a driver) is a `Receiver`: it gets runs of whole
frames and, exactly once and last, the reason why no more will come.

How it is fast (design rule 3): the loop calls us when the pipe is readable, one read of 64 KiB, no copy, no task, no stream
object.

`Outbox` is the sending half; it never blocks. A frame sent when nothing else is under way is written at once. Frames sent while
others are (something was sent since the last read, or the last read brought several) are collected until the loop has run
everybody who is ready, and go out in one write. What the pipe does not take waits, up to a budget of bytes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Literal, Protocol

from serai.errors import Closed, FrameTooBig, LimitHit, PeerGone, PeerStalled, SeraiError
from serai.limits import WireLimits
from serai.wire.descriptors import get_pipe_capacity, grow_pipe
from serai.wire.event_loop import Deadlines
from serai.wire.process import Child
from serai.wire.stream import Framer, Oversize

log = logging.getLogger("serai.wire")

# Frames at least this long are written as they are; shorter ones are joined first, which costs less than a write each.
LONG = 65536


class Outbox:
    """Writes frames to one descriptor. Its owner says why nothing can be sent any more, and is told of the end."""

    __slots__ = (
        "_backlog", "_descriptor", "_drained", "_grown", "_limits", "_loop", "_most", "_on_broken", "_on_sent", "_planned",
        "_queue", "_rest", "_shut", "_who", "_why", "_writer_added", "closed", "cork", "ending", "queued",
    )  # fmt: skip

    def __init__(
        self,
        descriptor: int,
        limits: WireLimits,
        *,
        who: str,
        on_sent: Callable[[bytes], None],
        on_broken: Callable[[OSError | None], None],
        why: Callable[[], SeraiError],
    ) -> None:
        self._descriptor = descriptor
        self._limits = limits
        self._who = who
        self._on_sent = on_sent  # a run goes to the kernel
        self._on_broken = on_broken  # nothing more will: the pipe broke, or everything was written after `end`
        self._why = why
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes] | None = None  # frames not yet given to the kernel; most wires never have one
        self._rest: memoryview | None = None  # of a run the kernel took only part of
        self._planned = False  # a flush is on its way
        self._writer_added = False
        self._grown = False
        self._drained: list[asyncio.Future[None]] = []
        self.queued = 0  # bytes of the queue and the rest
        self.cork = False  # others are under way: collect
        self.ending = False  # no more frames, but what is queued is still written
        self.closed = descriptor < 0
        self._shut = self.closed  # ending or closed, and the longest frame: looked at for every frame
        self._most = limits.send
        self._backlog = limits.backlog

    def send(self, frame: bytes) -> None:
        """One frame with its newline."""
        if self._shut:
            raise self._why()
        if len(frame) > self._most:
            limit = LimitHit("send", self._limits.send)
            raise FrameTooBig(f"a frame of {len(frame)} bytes is not sent", who=self._who, limit=limit)
        if self.cork or self.queued:
            size = self.queued + len(frame)
            if size > self._backlog and self.queued:
                limit = LimitHit("backlog", self._limits.backlog)
                raise PeerStalled(f"{self.queued} bytes wait for it to read", who=self._who, limit=limit)
            if self._queue is None:
                self._queue = deque()
            self._queue.append(frame)
            self.queued = size
            if not self._planned and self._rest is None:
                self._planned = True
                self._loop.call_soon(self.flush)
            return
        self.cork = True  # until something comes back
        self._on_sent(frame)
        self._put(frame)

    async def drain(self) -> None:
        """Wait until the kernel has everything; raises when that can no longer happen."""
        if self.queued:
            done = self._loop.create_future()
            self._drained.append(done)
            await done

    def end(self) -> None:
        """No more frames; `on_broken(None)` once all are written. Idempotent."""
        self.ending = self._shut = True
        if not self.queued and not self.closed:
            self._on_broken(None)

    def flush(self) -> None:
        """Write what can be written now."""
        self._planned = False
        self.cork = False
        while True:
            if self._rest is not None:
                rest, self._rest = self._rest, None
                self.queued -= len(rest)
                if not self._put(rest):
                    return
            elif self._queue:
                run = self._take(self._queue)
                self.queued -= len(run)
                self._on_sent(run)
                if not self._put(run):
                    return
            else:
                break
        self._stop_writing()
        self._wake(None)
        if self.ending and not self.closed:
            self._on_broken(None)

    def close(self) -> None:
        """Let go of the descriptor; what is queued is dropped, and who waits for it is told. Idempotent."""
        if self.closed:
            return
        self.closed = self._shut = True
        self._stop_writing()
        self._queue = self._rest = None
        self.queued = 0
        if self._drained:
            self._wake(self._why)

    # -- inside -----------------------------------------------------------------------------------------------------------------

    def _take(self, queue: deque[bytes]) -> bytes:
        """The next run to write: a long frame alone, or short ones joined."""
        if self.queued <= LONG:  # all that waits; no rest does, or it would go first
            run = b"".join(queue)
            queue.clear()
            return run
        if len(queue) == 1 or len(queue[0]) >= LONG:
            return queue.popleft()
        parts: list[bytes] = []
        size = 0
        while queue and size + len(queue[0]) <= LONG:
            parts.append(queue.popleft())
            size += len(parts[-1])
        return b"".join(parts)

    def _put(self, data: bytes | memoryview) -> bool:
        """Write; what the pipe does not take becomes the rest. False when there is one, or the pipe is broken."""
        try:
            written = os.write(self._descriptor, data)
        except BlockingIOError:
            written = 0
        except OSError as error:
            self._on_broken(error)  # first, so that who waits is told the true reason
            self.close()
            return False
        if written == len(data):
            return True
        self._rest = memoryview(data)[written:]
        self.queued += len(self._rest)
        if len(data) > LONG and not self._grown:
            self._grown = True
            grow_pipe(self._descriptor, self._limits.pipe)
        if not self._writer_added:
            self._writer_added = True
            self._loop.add_writer(self._descriptor, self.flush)
        return False

    def _wake(self, why: Callable[[], SeraiError] | None) -> None:
        waiting, self._drained = self._drained, []
        for done in waiting:
            if done.done():
                continue
            if why is None:
                done.set_result(None)
            else:
                done.set_exception(why())

    def _stop_writing(self) -> None:
        if self._writer_added:
            self._writer_added = False
            self._loop.remove_writer(self._descriptor)


# A run with more lines than this is handed on in pieces, with the loop's other work in between: short lines are dear.
_LINES = 1000
_SAMPLE = 2000  # bytes
# For wires that have none of their own; shared, since it takes a while to check.
_LIMITS = WireLimits()
# How soon to look again whether everything held was handed on, in seconds.
_HELD = 0.01


class Receiver(Protocol):
    """What a channel delivers to. Called from the loop, never concurrently; must not block."""

    def handle_run(self, run: bytes) -> None:
        """Whole frames, in order. The bytes are the receiver's to keep."""
        ...

    def handle_oversize(self, frame: Oversize) -> None:
        """A frame over the limit was skipped in its place between the runs."""
        ...

    def handle_loss(self, cause: SeraiError) -> None:
        """Nothing more will come: `PeerGone`, or `Closed` when we closed it. Called once, last."""
        ...

    def tick(self, now: float) -> float | None:
        """A deadline given to `Channel.wake_by` has come; the next one, if any."""
        ...


class Tap(Protocol):
    """Sees every frame of one wire, as runs of whole frames in the order of the wire. Whoever makes it knows whose wire it is.

    Must be quick. One that raises is logged and not called again: a full disk must not end a conversation.
    """

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
        limits: WireLimits | None = None,
        tap: Tap | None = None,
        read: int | None = None,
        write: int | None = None,
    ) -> None:
        self.child = child
        self.limits = limits = limits or _LIMITS
        self.cause: SeraiError | None = None
        self.receiver = receiver
        self._tap = tap
        self._loop = asyncio.get_running_loop()
        self._framer = Framer(limits.frame, limits.frame_head)
        self._read = child.stdout if read is None else read
        self._write = child.stdin if write is None else write
        if self._read < 0:
            raise Closed("it has no output to read from", who=child.who)
        self._reading = False
        self._read_bytes = 0
        self._held: list[bytes | Oversize] = []  # read, to be handed on piece by piece; never many
        self._handing = False  # the next piece is on its way
        self._giving = False  # the receiver has an item in hand: it is told of the end only afterwards
        self._last_read = False  # nothing more is read
        self._grown = False
        self._paused = False
        self._eof = False
        self._broken = False  # the peer closed its input before we did
        self._finish_at: float | None = None
        self.watch = deadlines.watch(self._tick)
        self.outbox = Outbox(
            self._write,
            limits,
            who=child.who,
            on_sent=self._record_sent,
            on_broken=self._handle_input_end,
            why=self._build_send_error,
        )
        self.send = self.outbox.send  # one call less on the hot path; documented there
        self._start_reading()
        child.before_close(self._read, self._finish_output)
        child.before_close(self._write, self._finish_input)
        child.on_exit(self._handle_exit)

    @property
    def lost(self) -> bool:
        """Whether the wire is over; `cause` says why."""
        return self.cause is not None

    # -- for who sits on it -------------------------------------------------------------------------------------------------

    def wake_by(self, deadline: float | None) -> None:
        """Have `Receiver.tick` called at that time or soon after."""
        if deadline is not None and deadline < self.watch.at:
            self.watch.schedule(deadline)

    async def drain(self) -> None:
        """Wait until everything sent was taken by the kernel: back-pressure for who sends much. Raises when the wire is lost."""
        if self.cause is not None or self._broken:
            raise self._build_send_error()
        await self.outbox.drain()

    def end_input(self) -> None:
        """Close the peer's input once everything sent is written. Idempotent; `send` fails from now on."""
        self.outbox.end()
        if self._broken:  # by what was sent just before: with nothing more to say, that is the peer's business
            self._broken = False
            if not self._eof and self.child.status is None:
                self._finish_at = None

    async def send_farewell(self, *frames: bytes) -> None:
        """Send these last frames, close the peer's input once all is written, and wait for that: what `stop` takes as `polite`."""
        for frame in frames:
            self.send(frame)
        self.end_input()
        await self.outbox.drain()

    def pause(self) -> None:
        """Stop reading, so that the peer feels that we are behind. Idempotent."""
        if not self._paused:
            self._paused = True
            self._stop_reading()

    def resume(self) -> None:
        """Read again. Idempotent."""
        if not self._paused:
            return
        self._paused = False
        if self.cause is not None:
            return
        if self._held:
            self._plan_hand_on()
        elif not self._eof:
            self._start_reading()
        if self._finish_at is not None:
            self._finish_at = None
            self._settle(self.limits.drain_grace)

    def close(self, cause: SeraiError | None = None) -> None:
        """Let go of the wire; the receiver is told `cause`, or that it was closed. The child is not touched. Idempotent."""
        child = self.child
        self._finish(cause or Closed("the wire was closed", who=child.who, exit=child.status, stderr=child.stderr.text()))

    # -- reading --------------------------------------------------------------------------------------------------------------

    def _read_available(self) -> None:
        size = self.limits.read
        until = monotonic() + self.limits.read_slice
        while True:
            try:
                chunk = os.read(self._read, size)
            except BlockingIOError:
                return
            except OSError as error:
                log.debug("%s: reading: %s", self.child.who, error)
                chunk = b""
            if not chunk:
                self._handle_eof()
                return
            self._read_bytes += len(chunk)
            for item in self._framer.feed(chunk):
                if len(item) > 2 * _LINES or self._held or self._paused:
                    self._take(item)
                else:
                    self._deliver(item)
            if self._framer.pending > LONG and not self._grown:
                self._grown = True
                grow_pipe(self._read, self.limits.pipe)
            if len(chunk) < size or not self._reading or monotonic() >= until:
                return

    def _take(self, item: bytes | Oversize) -> None:
        """Hand an item on, or hold it when there is much to hand on."""
        if not self._held and not self._paused and (type(item) is not bytes or not _has_many_lines(item)):
            self._deliver(item)
            return
        self._stop_reading()
        self._held.append(item)
        self._plan_hand_on()

    def _plan_hand_on(self) -> None:
        if not self._handing:
            self._handing = True
            self._loop.call_soon(self._hand_on)

    def _hand_on(self) -> None:
        """One piece of what is held; then the loop's other work, then the next."""
        self._handing = False
        if self._paused or not self._held or self.cause is not None:
            return
        item = self._held.pop(0)
        if type(item) is bytes and _has_many_lines(item):
            cut = _find_line_start(item, _LINES)
            self._held.insert(0, item[cut:])
            item = item[:cut]
        self._deliver(item)
        if self._held:
            self._plan_hand_on()
        elif self._eof:
            self._settle(self.limits.exit_grace)
        elif not self._paused:
            self._start_reading()

    def _deliver(self, item: bytes | Oversize) -> None:
        if self.cause is not None:  # closed by whoever got the item before
            return
        self._giving = True
        try:
            if type(item) is bytes:
                # One frame came back: the next is alone again. Several: as many are likely to follow.
                self.outbox.cork = item.find(b"\n") + 1 < len(item)
                if self._tap is not None:
                    self._record("received", item)
                self.receiver.handle_run(item)
            else:
                assert isinstance(item, Oversize)
                self._tell_tap("skipped", item)
                self.receiver.handle_oversize(item)
        except Exception:  # a receiver's defect must not end the wire for good (design rule 4)
            log.exception("%s: its receiver failed on a run", self.child.who)
        self._giving = False
        if self.lost:
            self._tell_lost()

    def _start_reading(self) -> None:
        if not self._reading and not self._last_read and self.cause is None:
            self._reading = True
            self.child.readers.add_reader(self._read, self._read_available)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self.child.readers.remove_reader(self._read)

    # -- the end ----------------------------------------------------------------------------------------------------------------

    def _handle_eof(self) -> None:
        self._eof = True
        self._stop_reading()
        for item in self._framer.feed_eof():
            self._take(item)
        self._settle(self.limits.exit_grace)

    def _handle_exit(self) -> None:
        self._settle(self.limits.drain_grace)

    def _settle(self, grace: float) -> None:
        """The end of output and the exit belong together; either alone waits a moment for the other."""
        if self.cause is not None:
            return
        if self._eof and self.child.status is not None and not self._held:
            self._finish(self._build_peer_gone())
        elif self._finish_at is None:
            self._finish_at = monotonic() + grace
            self.watch.schedule(self._finish_at)

    def _tick(self, now: float) -> float | None:
        if self.cause is not None:
            return None
        if self._finish_at is not None and self._finish_at <= now and not self._paused:
            self._finish_soon(now)
            if self.lost:
                return None
        try:
            deadline = self.receiver.tick(now)
        except Exception:
            log.exception("%s: its receiver failed on a deadline", self.child.who)
            deadline = None
        return min((at for at in (deadline, self._finish_at) if at is not None and at > now), default=None)

    def _finish_soon(self, now: float) -> None:
        """The grace is over. What is in the pipe still counts, however late we come to it; then the receiver gets what is held."""
        if not self._last_read:
            self._read_rest()
            self._last_read = True
            self._stop_reading()
        if self._held:
            self._finish_at = now + _HELD
        elif self.cause is None:
            self._finish(self._build_peer_gone())

    def _read_rest(self) -> None:
        """Read what is there, but at most what a pipe can hold: somebody may write without end."""
        most = self._read_bytes + get_pipe_capacity(self._read) + self.limits.read
        while not self._eof and self.cause is None and (before := self._read_bytes) < most:
            self._read_available()
            if self._read_bytes == before:
                break

    def _build_peer_gone(self) -> PeerGone:
        child = self.child
        child.stderr.drain()
        if child.status is not None:
            message = "ended" if self._eof else "ended, but a process it started holds its output open"
        else:
            message = f"closed its {'output' if self._eof else 'input'}, but still runs"
        return PeerGone(message, who=child.who, exit=child.status, stderr=child.stderr.text())

    def _finish(self, cause: SeraiError) -> None:
        if self.cause is not None:
            return
        self.cause = cause
        self.watch.close()
        self._stop_reading()
        self._held.clear()
        self.outbox.close()
        if not self._giving:
            self._tell_lost()

    def _tell_lost(self) -> None:
        assert self.cause is not None
        self._tell_tap("ended", self.cause)
        try:
            self.receiver.handle_loss(self.cause)
        except Exception:
            log.exception("%s: its receiver failed on the end of the wire", self.child.who)

    def _build_send_error(self) -> SeraiError:
        """Why nothing can be sent: a fresh error each time, since a raised one collects tracebacks."""
        if self.cause is not None:
            return self.cause.for_call("")
        return self._build_peer_gone() if self._broken else Closed("its input was closed", who=self.child.who)

    def _finish_output(self) -> None:
        """The child is being closed: its tree is dead, so what is in the pipe is all there will ever be."""
        if self.cause is not None:
            return
        self._paused = False
        self._read_rest()
        while self._held and self.cause is None:
            self._deliver(self._held.pop(0))
        ended = self._eof or self.child.status is not None
        self._finish(self._build_peer_gone() if ended else Closed("its output was closed", who=self.child.who))

    def _finish_input(self) -> None:
        """A last try for what is queued, such as a farewell, then let go of the descriptor."""
        if not self.outbox.closed:
            self.outbox.flush()
        self.outbox.close()

    def _handle_input_end(self, error: OSError | None) -> None:
        """All is written after `end_input`, or the peer closed its input.

        A broken pipe is its peer's business once we have nothing more to say (spec hooks 1.11). Before that the peer is lost; its
        exit says more than the broken pipe does, so wait a moment for that (spec agents 7.13).
        """
        self._broken = error is not None and not self.outbox.ending
        self.outbox.close()
        self.child.close_descriptor(self._write)
        if self._broken:
            log.debug("%s: writing: %s", self.child.who, error)
            self._settle(self.limits.exit_grace)

    # -- the tap ------------------------------------------------------------------------------------------------------------------

    def _record_sent(self, run: bytes) -> None:
        if self._tap is not None:
            self._record("sent", run)

    def _record(self, direction: Literal["sent", "received"], run: bytes) -> None:
        try:
            self._tap.frames(direction, monotonic(), run)  # type: ignore[union-attr]
        except Exception as error:
            self._lose_tap(error)

    def _tell_tap(self, method: Literal["skipped", "ended"], what: Oversize | SeraiError) -> None:
        if self._tap is not None:
            try:
                getattr(self._tap, method)(monotonic(), what)
            except Exception as error:
                self._lose_tap(error)

    def _lose_tap(self, error: Exception) -> None:
        log.error("%s: its tap failed and is not called again", self.child.who, exc_info=error)
        self._tap = None


def _has_many_lines(run: bytes) -> bool:
    """Whether to hand it on in pieces. Its beginning tells, for to count all line ends takes longer than to read the run: who
    begins with long lines and goes on with short ones gets a long turn, of one read at most. (`replace` is quicker than `count`.)
    """
    if run.count(b"\n", 0, _SAMPLE) * len(run) <= _LINES * _SAMPLE:
        return False
    return len(run) - len(run.replace(b"\n", b"")) > _LINES


def _find_line_start(run: bytes, lines: int) -> int:
    """Where the next line begins after so many."""
    at = 0
    for _ in range(lines):
        at = run.find(b"\n", at) + 1
    return at
