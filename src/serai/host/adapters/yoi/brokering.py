"""What a guest asks of the host, one thing at a time: asked by its worker, checked and done here (spec yoi 2.4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic

from serai.dialects.yoi.denial import Denied
from serai.errors import SeraiError
from serai.host.adapters.yoi import frames

__all__ = ["Broker", "HostCall"]

log = logging.getLogger("serai.host")

HostCall = Callable[[str, str, Sequence[str | int], float], Awaitable[str]]

_DENIAL = 4096  # characters of a refusal that the guest's trap carries


class Broker:
    """Every question is answered, once, whatever happens to who answers it."""

    def __init__(self, who: str, denied: Mapping[str, str], host: HostCall, send: Callable[[bytes], None]) -> None:
        self._who = who
        self._denied = denied
        self._host = host
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._asked: frames.HostAsked | None = None
        self._task: asyncio.Task[None] | None = None
        self._count = 0  # questions of this life, by their number
        self.denial = ""  # why the guest traps now, in our words

    @property
    def busy(self) -> bool:
        return self._task is not None

    def take(self, frame: frames.HostAsked, deadline: float) -> str:
        """Begin with it; what is wrong with it, or nothing. The worker's word for it is not enough."""
        if self._task is not None or frame.n != self._count + 1:
            return "it asks the host twice, or out of order"
        if not frame.fits():
            return "it asks the host for what there is not"
        self._count = frame.n
        self._asked = frame
        self._task = task = self._loop.create_task(self._serve(frame, deadline), name=f"{frame.api} for {self._who}")
        task.add_done_callback(self._served)
        return ""

    def interrupt(self, why: str) -> bool:
        """End what is under way, if something is; the guest traps with that reason."""
        if self._task is None or self._task.done():
            return False
        self.denial = why
        self._task.cancel()
        return True

    def close(self) -> None:
        """Nobody is there any more to hear an answer."""
        self._asked = None
        if self._task is not None:
            self._task.cancel()

    async def _serve(self, frame: frames.HostAsked, deadline: float) -> None:
        try:
            text = await self._host(frame.api, frame.function, frame.args, self._left(frame, deadline))
            reply = frames.encode(frames.Reply(id=frame.id, n=frame.n, text=text))
        except asyncio.CancelledError:
            self._deny()
            raise
        except Exception as error:
            if not isinstance(error, Denied):
                log.exception("%s: %s.%s failed", self._who, frame.api, frame.function)
            why = str(error) if isinstance(error, Denied | SeraiError) else f"host function failed: {type(error).__name__}"
            self.denial = why.encode(errors="replace").decode()[:_DENIAL]
            self._deny()
        else:
            self._task = None
            self.denial = ""
            if self._asked is not None:
                self._send(reply)

    def _served(self, task: asyncio.Task[None]) -> None:
        """It may be cancelled before it has begun: then nobody has answered yet."""
        if self._task is task:
            self._deny()

    def _deny(self) -> None:
        self._task = None
        asked = self._asked
        if asked is not None:
            self.denial = self.denial or "the host broke off"
            self._send(frames.encode(frames.Reply(id=asked.id, n=asked.n, denied=self.denial)))

    def _left(self, frame: frames.HostAsked, deadline: float) -> float:
        """How much time is left for it; the host's functions have no other clock (spec yoi 21.30)."""
        reason = self._denied.get(frame.api)
        if reason is not None:
            raise Denied(f"plugin host API dispatch denied: {reason}")
        remaining = deadline - monotonic()
        if remaining <= 0:
            raise Denied("the time of its call is over")
        return remaining
