"""What a guest asks of the host, one thing at a time: asked by its worker, checked and done here (spec yoi 2.4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import monotonic

import msgspec

from serai.dialects.yoi.host_api import HostCallDenied
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
        self._asked: frames.HostAsked | None = None
        self._work: asyncio.Future[str] | None = None
        self._count = 0  # questions of this life, by their number
        self.denial = ""  # why the guest traps now, in our words

    @property
    def busy(self) -> bool:
        return self._work is not None

    def take(self, frame: frames.HostAsked, deadline: float) -> str:
        """Begin with it; what is wrong with it, or nothing. The worker's word for it is not enough."""
        if self._work is not None or frame.n != self._count + 1:
            return "it asks the host twice, or out of order"
        if not frame.fits():
            return "it asks the host for what there is not"
        self._count = frame.n
        self._asked = frame
        try:  # a future needs no task: of the quick functions most give one
            self._work = work = asyncio.ensure_future(
                self._host(frame.api, frame.function, frame.args, self._left(frame, deadline))
            )
        except Exception as error:
            self._failed(frame, error)
        else:
            work.add_done_callback(partial(self._served, frame))
        return ""

    def interrupt(self, why: str) -> bool:
        """End what is under way, if something is; the guest traps with that reason."""
        if self._work is None or self._work.done():
            return False
        self.denial = why
        self._work.cancel()
        return True

    def close(self) -> None:
        """Nobody is there any more to hear an answer."""
        self._asked = None
        if self._work is not None:
            self._work.cancel()

    def _served(self, frame: frames.HostAsked, work: asyncio.Future[str]) -> None:
        """It may be cancelled before it has begun, and is answered then, too."""
        self._work = None
        if work.cancelled():
            self._deny()
        elif (failure := work.exception()) is not None:
            self._failed(frame, failure)
        else:
            try:
                reply = frames.encode(frames.Reply(id=frame.id, n=frame.n, text=work.result()))
            except (UnicodeEncodeError, msgspec.MsgspecError) as error:
                self._failed(frame, error)
                return
            self.denial = ""
            if self._asked is not None:
                self._send(reply)

    def _failed(self, frame: frames.HostAsked, error: BaseException) -> None:
        if not isinstance(error, HostCallDenied):
            log.error("%s: %s.%s failed", self._who, frame.api, frame.function, exc_info=error)
        why = str(error) if isinstance(error, HostCallDenied | SeraiError) else f"host function failed: {type(error).__name__}"
        # on one line: what a guest has asked for may be in it, and is no line of ours in a report or a log (spec yoi 21.36)
        self.denial = " ".join(why.splitlines()).encode(errors="replace").decode()[:_DENIAL]
        self._deny()

    def _deny(self) -> None:
        asked = self._asked
        if asked is not None:
            self.denial = self.denial or "the host broke off"
            self._send(frames.encode(frames.Reply(id=asked.id, n=asked.n, denied=self.denial)))

    def _left(self, frame: frames.HostAsked, deadline: float) -> float:
        """How much time is left for it; the host's functions have no other clock (spec yoi 21.30)."""
        reason = self._denied.get(frame.api)
        if reason is not None:
            raise HostCallDenied(f"plugin host API dispatch denied: {reason}")
        remaining = deadline - monotonic()
        if remaining <= 0:
            raise HostCallDenied("the time of its call is over")
        return remaining
