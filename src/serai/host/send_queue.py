"""What goes to one guest, in order, without anybody waiting for it (spec zot 4.3, ours).

As long as the guest reads, frames go straight to its wire. When it is behind, they wait here: pieces of one stream are joined,
beyond the limits (so many events, so many bytes of them) the oldest *events* go, never a request. A request that nobody waits for
any more is not sent at all: zot could not take it back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from serai.errors import FrameTooBig, LimitHit, PeerStalled, SeraiError
from serai.limits import HostLimits
from serai.model.events import is_fragment, merge_fragments
from serai.wire.channel import Channel
from serai.wire.stream import PendingCall

# A guest that left so many bytes unread is behind. A pipe holds as many again.
_BEHIND = 65536


class _Request(NamedTuple):
    frame: bytes
    call: PendingCall[Any] | None


class _Notice(NamedTuple):
    """Of what may be joined with a later one, the event is kept too; once it was, the frame is made when it is sent."""

    event: Any
    frame: bytes | None
    size: int


class SendQueue:
    """The way to one guest.

    `encode` makes the frame of what is told, an event or other news, or None when the guest's dialect has no word
    for it; `wanted` says whether a call still waits.
    """

    __slots__ = (
        "_channel",
        "_encode",
        "_events",
        "_limits",
        "_loop",
        "_mover",
        "_outbox",
        "_put",
        "_queue",
        "_queued",
        "_told",
        "_wanted",
        "dropped",
    )

    def __init__(
        self,
        channel: Channel,
        encode: Callable[[Any], bytes | None],
        wanted: Callable[[PendingCall[Any]], bool],
        limits: HostLimits,
    ) -> None:
        self._channel = channel
        self._outbox = channel.outbox  # looked at for every frame
        self._put = channel.send
        self._encode = encode
        self._wanted = wanted
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Request | _Notice] = deque()
        self._events = 0  # how many of the queue are events
        self._queued = 0  # bytes of its requests
        self._told = 0  # bytes of its events
        self._mover: asyncio.Task[None] | None = None
        self.dropped = 0  # events that an idle guest would have got

    def request(self, frame: bytes, call: PendingCall[Any] | None = None) -> None:
        """A frame that must not be dropped; not sent after all when its call has ended meanwhile.

        Raises when the wire is lost, or when more than the backlog waits for a guest that does not read.
        """
        if not self._queue and self._outbox.queued < _BEHIND:
            self._put(frame)
            return
        channel = self._channel
        if channel.cause is not None:
            raise channel.cause.for_call("")
        if len(frame) > self._limits.send:  # said now: once it has waited, nobody is there to hear it
            raise FrameTooBig(
                f"a frame of {len(frame)} bytes is not sent", who=channel.child.who, limit=LimitHit("send", self._limits.send)
            )
        if self._queued and self._queued + len(frame) > self._limits.backlog:
            limit = LimitHit("backlog", self._limits.backlog)
            raise PeerStalled(f"{self._queued} bytes wait for it to read", who=channel.child.who, limit=limit)
        self._queue.append(_Request(frame, call))
        self._queued += len(frame)
        self._start_mover()

    def tell(self, event: Any) -> None:
        """Never waits and never raises: an event is news, and who does not read it has missed it."""
        frame = self._encode(event)
        if frame is None or (not self._queue and self._outbox.queued < _BEHIND):
            self._send(frame)
            return
        size, last = len(frame), self._queue[-1] if self._queue else None
        self._told += size
        if (
            isinstance(last, _Notice)
            and last.size + size <= self._limits.send
            and (both := merge_fragments(last.event, event)) is not None
        ):
            self._queue[-1] = _Notice(both, None, last.size + size)
        else:
            self._queue.append(_Notice(event if is_fragment(event) else None, frame, size))
            self._events += 1
        while self._events > self._limits.events or (self._told > self._limits.backlog and self._events > 1):
            self._drop_oldest()
        self._start_mover()

    async def flush(self) -> None:
        """Wait until everything is on the wire: before a farewell. Raises when the wire is lost."""
        while self._queue or self._outbox.queued:
            if self._mover is not None:
                await asyncio.shield(self._mover)
            await self._channel.drain()

    def close(self) -> None:
        """The wire is over, which the mover has heard from it too. Idempotent."""
        self._queue.clear()
        self._events = self._queued = self._told = 0

    # -- inside -----------------------------------------------------------------------------------------------------------------

    def _start_mover(self) -> None:
        if self._mover is None or self._mover.done():
            self._mover = self._loop.create_task(self._send_waiting(), name=f"catch up {self._channel.child.who}")

    async def _send_waiting(self) -> None:
        """Only while the guest is behind: what waits goes out whenever it has read what went before."""
        try:
            while self._queue:
                await self._channel.drain()
                while self._queue and self._has_room(self._queue[0]):
                    self._send_next()
        except SeraiError:  # the wire is lost: whoever waits is told by it
            self.close()

    def _has_room(self, item: _Request | _Notice) -> bool:
        """Whether the wire takes it now: what its budget refused would be lost."""
        queued = self._outbox.queued
        size = len(item.frame) if isinstance(item, _Request) else item.size
        return not queued or (queued < _BEHIND and queued + size <= self._limits.backlog)

    def _send_next(self) -> None:
        item = self._queue.popleft()
        if isinstance(item, _Request):
            self._queued -= len(item.frame)
            if item.call is None or self._wanted(item.call):
                self._put(item.frame)
        else:
            self._events -= 1
            self._told -= item.size
            self._send(self._encode(item.event) if item.frame is None else item.frame)

    def _send(self, frame: bytes | None) -> None:
        if frame is not None:
            try:
                self._put(frame)
            except SeraiError:  # lost, or longer than its protocol allows: an event is only news
                self.dropped += 1

    def _drop_oldest(self) -> None:
        for at, item in enumerate(self._queue):
            if isinstance(item, _Notice):
                del self._queue[at]
                self._events -= 1
                self._told -= item.size
                self.dropped += 1
                return
