"""Services that steer the run: what is said to the agent, when it stops, how long its conversation is (spec piglet 7.1, 7.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from serai.agents.resident.driver import Resident
from serai.agents.session import Session
from serai.app.services.group import Data, NoArguments, Operation
from serai.errors import BadRequest, NotCapable, TurnInFlight

__all__ = ["Abort", "Control"]


class Abort(Protocol):
    """Ends the turn that runs; `mark`: the conversation says so, also when none runs."""

    def __call__(self, reason: str, *, mark: bool) -> Awaitable[object]: ...


class Content(msgspec.Struct, frozen=True):
    content: str


class Reason(msgspec.Struct, frozen=True):
    reason: str = ""


class How(msgspec.Struct, frozen=True):
    registered: bool = False  # by the compactor of a guest alone: Serai's own summary is not wanted


class Control:
    """`queue` takes a text as if a person had typed it, `steer` one for the turn that runs; `idle` waits until all is done.

    `running` is what that guest does for the run: calls of its tools, judgements; `registered`: a guest offers a compactor.
    """

    def __init__(
        self,
        session: Session,
        resident: Callable[[], Resident],
        *,
        queue: Callable[[str], object],
        steer: Callable[[str], object],
        idle: Callable[[str], Awaitable[object]],
        running: Callable[[str], frozenset[object]] = lambda _guest: frozenset(),
        patience: float = 5.0,
        registered: Callable[[], bool] = lambda: False,
        abort: Abort,
        quit: Callable[[], object],
    ) -> None:
        self._session = session
        self._resident = resident
        self._queue = queue
        self._steer = steer
        self._idle = idle
        self._running = running
        self._patience = patience  # seconds
        self._registered = registered
        self._abort = abort
        self._quit = quit
        self.operations: Mapping[str, Operation[Any]] = {
            "wait_idle": Operation(NoArguments, self.wait_idle),
            "step_mode": Operation(NoArguments, self.step_mode),
            "quit": Operation(NoArguments, self.quit),
            "abort": Operation(NoArguments, self.abort),
            "abort_with_marker": Operation(Reason, self.abort_with_marker),
            "has_compactor": Operation(NoArguments, self.has_compactor),
            "compact": Operation(How, self.compact),
            "send": Operation(Content, self.send),
            "steer": Operation(Content, self.steer),
        }

    async def wait_idle(self, guest: str, _arguments: NoArguments) -> Data:
        """Until nothing runs or waits, also on the side; before the first turn that is at once (FIX-27).

        A tool may want to know when its run is over, and end meanwhile. One that goes on waits for itself, as does one that judges,
        and is told so.
        """
        before = self._running(guest)
        idle = asyncio.ensure_future(self._idle(guest))
        try:
            await asyncio.wait([idle], timeout=self._patience if before else None)
            if not idle.done() and before & self._running(guest):
                raise TurnInFlight("it still works for the turn itself, and would wait for its own end", who=guest)
            await idle
        finally:
            idle.cancel()
        return {}

    async def step_mode(self, _guest: str, _arguments: NoArguments) -> Data:
        """Have the person asked before every call, or no longer; which of the two it is now."""
        house = self._resident().house
        house.step_mode = not house.step_mode
        return {"on": house.step_mode}

    async def quit(self, _guest: str, _arguments: NoArguments) -> Data:
        """Have the run ended, once nothing works on the side any more (spec piglet 7.1)."""
        with suppress(NotCapable):
            await self._resident().backgrounds.cancel()
        self._quit()
        return {}

    async def abort(self, _guest: str, _arguments: NoArguments) -> Data:
        """End the turn that runs, if one does."""
        await self._abort("", mark=False)
        return {}

    async def abort_with_marker(self, guest: str, wanted: Reason) -> Data:
        """The same, and the model finds `[Request interrupted: …]` where it was, in memory and on disk (FIX-33)."""
        await self._abort(wanted.reason or f"by {guest}", mark=True)
        return {}

    async def has_compactor(self, _guest: str, _arguments: NoArguments) -> Data:
        """`present`: whether `compact` can do something; the resident has a summary of its own. `registered`: a guest has one."""
        return {"present": self._session.capabilities.compact, "registered": self._registered()}

    async def compact(self, guest: str, wanted: How) -> Data:
        """Shorten the conversation now, on disk too (FIX-30); how many messages it was, and is."""
        if wanted.registered:
            if not self._registered():
                raise NotCapable("no compactor registered", who=guest, hint="a guest offers one with register/compactor")
            return (await self._resident().shortening.now())._asdict()
        before = self._length()
        await self._session.compact()
        return {"before": before, "after": self._length()}

    async def send(self, guest: str, wanted: Content) -> Data:
        self._queue(_said(wanted, "send", guest))
        return {}

    async def steer(self, guest: str, wanted: Content) -> Data:
        self._steer(_said(wanted, "steer", guest))
        return {}

    def _length(self) -> int:
        try:
            return len(self._resident().conversation.messages)
        except NotCapable:  # a driven agent's conversation is its own
            return 0


def _said(wanted: Content, what: str, guest: str) -> str:
    if not wanted.content.strip():
        raise BadRequest(f"{what}: the content is empty", who=guest)
    return wanted.content
