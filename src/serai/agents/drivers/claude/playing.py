"""A turn as the driver sees it: one that a prompt of ours began, or one that the agent began by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal
from uuid import uuid4

import msgspec

from serai.agents.driver import Prompt, Unfinished
from serai.agents.drivers.claude.telling import Telling
from serai.agents.stage import Stage
from serai.agents.turn import Turn
from serai.dialects.claude.neutral import ClaudeTurnOutcome
from serai.errors import SeraiError
from serai.model.approvals import Deny
from serai.model.events import TurnResult

__all__ = ["Background", "Costs", "Play"]

Status = Literal["success", "error", "denied", "cancelled"]


class Play:
    """From our prompt to the result that answers it."""

    def __init__(self) -> None:
        self.uuid = str(uuid4())  # which the result names again
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.interrupted = ""  # why we ended it
        self.answered = False  # its result has come, whether or not all before it is told
        self.error: SeraiError | None = None
        self._how: ClaudeTurnOutcome | None = None
        self._denied: Deny | None = None

    def ends(self, how: ClaudeTurnOutcome, denied: Deny | None) -> None:
        self._how, self._denied = how, denied
        self._done()

    def fails(self, error: SeraiError) -> None:
        if not self.answered:
            self.error = self.error or error
            self._done()

    def withdrawn(self) -> None:
        """It never began, because we ended it."""
        if not self.answered:
            self._done()

    def _done(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def result(self, telling: Telling) -> TurnResult:
        """What came of it, or `Unfinished`. What ended it on purpose counts before what that looks like to the agent."""
        how, text = self._how, telling.end_turn()
        if (failure := telling.failed()) is not None:
            raise failure
        if self.error is not None:
            raise Unfinished(self.error, _result("error", how, text, str(self.error)))
        if self.interrupted:
            return _result("cancelled", how, text, self.interrupted)
        if self._denied is not None:
            return _result("denied", how, text, self._denied.why)
        assert how is not None
        if how.error is not None:
            raise Unfinished(how.error, _result("error", how, text, str(how.error)))
        return _result("success", how, text)


class Costs:
    """What it tells is what its process has cost so far; a turn has cost what is new (spec agents 1.15)."""

    def __init__(self) -> None:
        self._so_far = 0.0  # US dollars

    def of_turn(self, how: ClaudeTurnOutcome) -> ClaudeTurnOutcome:
        if (total := how.usage.cost_usd) is None:
            return how
        new, self._so_far = max(total - self._so_far, 0.0), total
        return msgspec.structs.replace(how, usage=msgspec.structs.replace(how.usage, cost_usd=new))


class Background:
    """A turn that the agent began: announced, so that somebody may read it and answer what it asks."""

    def __init__(self, stage: Stage, stop: Callable[[str, asyncio.Future[None]], Awaitable[None]]) -> None:
        self._stage = stage
        self._interrupt = stop
        self.interrupted = ""
        self._turn = Turn(Prompt(""), stage, stop=self._stop)

    def begins(self) -> None:
        """Unless a prompt of ours was quicker: then what comes of it is told in that turn."""
        if self._stage.turn is None:
            self._stage.announce(self._turn)

    async def _stop(self, turn: Turn, reason: str) -> None:
        """As `Session` does with a turn of its own."""
        self.interrupted = reason
        over = asyncio.ensure_future(turn.over())
        await self._interrupt(reason, over)
        await over

    def ends(self, how: ClaudeTurnOutcome, telling: Telling) -> None:
        if self._stage.turn is not self._turn:
            return
        text = telling.end_turn()
        if (failure := telling.failed()) is not None:
            self._stage.end(self._turn, _result("error", how, text, str(failure)), failure)
        elif self.interrupted:
            self._stage.end(self._turn, _result("cancelled", how, text, self.interrupted))
        elif how.error is not None:
            self._stage.end(self._turn, _result("error", how, text, str(how.error)), how.error)
        else:
            self._stage.end(self._turn, _result("success", how, text))

    def fails(self, error: SeraiError, telling: Telling) -> None:
        if self._stage.turn is self._turn:
            self._stage.end(self._turn, _result("error", None, telling.end_turn(), str(error)), error)


def _result(status: Status, how: ClaudeTurnOutcome | None, text: str | None, error: str = "") -> TurnResult:
    """`text` is what may be seen, where that is not what was said; then its own form is not to be seen either.

    How long it took is measured here, by a clock that nobody sets (spec agents 7.28).
    """
    result = TurnResult(status=status) if how is None else how.result()
    changes: dict[str, Any] = {"status": status, "error": error, "seconds": 0.0}
    if text is not None:
        changes |= {"text": text, "native": None}
    return msgspec.structs.replace(result, **changes)
