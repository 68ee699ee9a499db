"""The wire to one Claude process: what it says goes to its owner in order, our requests have answers or an end.

Nothing here waits for anybody, so that the process is always read (spec agents 7.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Any, Protocol

from msgspec import Raw

from serai.dialects.claude.events import Answered, Event, Failed, Told, Unsupported
from serai.dialects.claude.host_side import HostSide
from serai.dialects.claude.messages import FromCli
from serai.errors import AgentFailed, LimitHit, OversizeFrame, PeerTimeout, SeraiError
from serai.limits import Limits
from serai.wire.channel import Channel, Tap
from serai.wire.codec import Noise, Unknown
from serai.wire.event_loop import Deadlines
from serai.wire.process import Child
from serai.wire.stream import Oversize

__all__ = ["Connection", "Owner"]

log = logging.getLogger("serai.agents")

Frame = tuple[FromCli | Unknown | Noise, bytes]  # with its line


class Owner(Protocol):
    """Whose wire it is. Called from the loop; must not block."""

    def pieces(self, frames: Iterator[Frame]) -> Frame | None:
        """Takes frames as long as they are but pieces of text; gives back the first that is not."""
        ...

    def heard(self, what: Event) -> None: ...
    def skipped(self, frame: Oversize) -> None: ...
    def gone(self, cause: SeraiError) -> None:
        """Once and last."""
        ...

    def look(self, now: float) -> float | None:
        """What the passing of time has brought; the next time to look."""
        ...


class Connection:
    """One process's standard streams, in the words of its dialect."""

    def __init__(self, child: Child, owner: Owner, *, deadlines: Deadlines, limits: Limits, tap: Tap | None = None) -> None:
        self.ours = HostSide()
        self.child = child
        self.cause: SeraiError | None = None
        self._owner = owner
        self._limits = limits
        self.channel = Channel(child, self, deadlines=deadlines, limits=limits, tap=tap)
        self.wake_by = self.channel.wake_by

    # -- what we say

    def send(self, frame: bytes) -> None:
        """Raises what ended the wire."""
        self.channel.send(frame)

    def try_send(self, frame: bytes, what: str) -> bool:
        """For an answer: whoever asked may be gone by now, and then its own end says more (spec agents 7.6)."""
        try:
            self.channel.send(frame)
        except SeraiError as error:
            log.info("claude: %s was not delivered: %s", what, error)
            return False
        return True

    async def deliver(self, frame: bytes, what: str) -> bool:
        """The same, and whether the pipe has taken it."""
        if not self.try_send(frame, what):
            return False
        try:
            await self.channel.drain()
        except SeraiError as error:
            log.info("claude: %s was not delivered: %s", what, error)
            return False
        return True

    async def request(self, subtype: str, fields: Mapping[str, Any] | None = None) -> Raw:
        """Ask the process something of the control protocol, and wait for its answer."""
        return await self.asked(subtype, fields)

    def asked(self, subtype: str, fields: Mapping[str, Any] | None = None) -> asyncio.Future[Raw]:
        """The same, sent at once, with a future for the answer."""
        if self.cause is not None:
            raise self.cause.for_call("")
        waiter: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        timeout = self._limits.agent_control
        call, frame = self.ours.request(subtype, fields or {}, now=monotonic(), timeout=timeout, waiter=waiter)
        try:
            self.channel.send(frame)
        except BaseException:
            self.ours.forget(call)
            raise
        self.channel.wake_by(call.deadline)
        waiter.add_done_callback(lambda done: self.ours.forget(call) if done.cancelled() else None)
        return waiter

    # -- the channel's receiver

    def received(self, run: bytes) -> None:
        frames = self.ours.frames(run)
        while (frame := self._owner.pieces(frames)) is not None:
            what = self.ours.take(*frame)
            if type(what) is Told:
                self._owner.heard(what)
            else:
                self._control(what)

    def _control(self, what: Event) -> None:
        if isinstance(what, Answered):
            if not what.call.waiter.done():
                what.call.waiter.set_result(what.response)
        elif isinstance(what, Failed):
            text = f"it refused {what.call.what}: {what.error}"
            _fail(what.call.waiter, AgentFailed(text, kind=what.code or "refused", who=self.child.who))
        else:
            if isinstance(what, Unsupported) and what.reply is not None:
                self.try_send(what.reply, f"the refusal of {what.subtype}")
            self._owner.heard(what)

    def oversize(self, frame: Oversize) -> None:
        limit = LimitHit("frame", frame.limit)
        for call in self.ours.oversize(frame):
            error = OversizeFrame(f"its answer to {call.what} had {frame.size} bytes", who=self.child.who, id=call.id, limit=limit)
            _fail(call.waiter, error)
        if (excuse := self.ours.excuse(frame)) is not None:
            self.try_send(excuse, "the refusal of an oversize request")
        self._owner.skipped(frame)

    def tick(self, now: float) -> float | None:
        for call in self.ours.expire(now):
            limit = LimitHit("agent_control", call.timeout or 0)
            error = PeerTimeout(f"no answer to {call.what}", who=self.child.who, id=call.id, limit=limit)
            _fail(call.waiter, error)
        times = (self.ours.next_deadline(), self._owner.look(now))
        return min((at for at in times if at is not None), default=None)

    def lost(self, cause: SeraiError) -> None:
        self.cause = cause
        for call in self.ours.lose():
            error = cause.for_call(call.id)
            _fail(call.waiter, error)
        self._owner.gone(cause)


def _fail(waiter: asyncio.Future[Raw], error: SeraiError) -> None:
    if not waiter.done():
        waiter.set_exception(error)
