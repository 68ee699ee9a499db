"""The sending half of a channel: frames out, at once when alone, together when many, never blocking.

A frame sent when nothing else is under way is written at once. Frames sent while others are (something was sent since the last
read, or the last read brought several) are collected until the loop has run everybody who is ready, and go out in one write. What
the pipe does not take waits, up to a budget of bytes.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

from serai.errors import FrameTooBig, LimitHit, PeerStalled, SeraiError
from serai.limits import Limits
from serai.wire.pipes import grow

__all__ = ["LONG", "Outbox"]

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
        limits: Limits,
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
            grow(self._descriptor, self._limits.pipe)
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
