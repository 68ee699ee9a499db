"""The mock agent: plays a script in this process, as an agent that is driven would. For tests and demonstrations."""

from __future__ import annotations

import asyncio
import itertools
import uuid

from serai.agents.driver import Capabilities, Driver, Prompt, Unfinished
from serai.agents.drivers.mock.messages import AGENT
from serai.agents.drivers.mock.playing import Playing
from serai.agents.drivers.mock.script import Background, Script, Step
from serai.agents.stage import Stage
from serai.agents.turn import Turn
from serai.errors import AgentFailed, Closed, SeraiError
from serai.model.events import SessionStarted, TurnResult

__all__ = ["Mock"]


class Mock(Driver):
    """Plays its script. It asks for what the script says it asks for, so a guard sees those calls and no others."""

    name = AGENT
    capabilities = Capabilities(
        deltas=True, approvals=True, questions=True, interrupt=True, multi_turn=True, choose_id=True, background=True,
        guards="asked-calls", rewrite=True,
    )  # fmt: skip

    def __init__(self, script: Script, *, session_id: str = "", before: int = 0) -> None:
        """`before` is how many messages the session has already."""
        self.script = script
        self.session_id = session_id or str(uuid.uuid4())
        self._before = before
        self._turns = 0
        self._ids = itertools.count(1)
        self._stage: Stage | None = None
        self._playing: asyncio.Task[TurnResult] | None = None
        self._later: list[Background] = []  # turns that it begins by itself, not begun yet
        self._own: asyncio.Task[None] | None = None  # begins them

    @property
    def stage(self) -> Stage:
        if self._stage is None:
            raise Closed("the mock agent is not open", who=self.name)
        return self._stage

    async def open(self, stage: Stage) -> None:
        if self.script.fail_with:
            raise AgentFailed(self.script.fail_with, kind="exited", who=self.name)
        self._stage = stage
        stage.emit(SessionStarted(session=self.session_id, messages=self._before))

    async def run(self, prompt: Prompt) -> TurnResult:
        steps = self.script.turn(self._turns)
        self._turns += 1
        return await self._play(prompt, steps)

    async def _play(self, prompt: Prompt, steps: tuple[Step, ...]) -> TurnResult:
        play = Playing(self.stage, prompt, steps, number=lambda: next(self._ids), later=self._begin_later)
        turn = self.stage.turn
        if turn is not None and turn.reason:  # interrupted before it began
            return play.cancelled(turn.reason)
        self._playing = playing = asyncio.get_running_loop().create_task(play.play(), name="script of the mock agent")
        try:
            return await asyncio.shield(playing)
        except asyncio.CancelledError:
            if not playing.cancelled():  # not the script was ended, but we
                playing.cancel()
                await asyncio.wait([playing])
                raise
            return play.cancelled((turn.reason if turn is not None else "") or "interrupted")
        finally:
            self._playing = None

    async def interrupt(self, reason: str) -> None:  # noqa: ARG002
        if self._playing is not None:
            self._playing.cancel()

    # -- turns that it begins by itself

    def _begin_later(self, step: Background) -> None:
        self._later.append(step)
        if self._own is None or self._own.done():
            self._own = asyncio.get_running_loop().create_task(self._begin(), name="the mock agent's own turns")

    async def _begin(self) -> None:
        while self._later:
            while (running := self.stage.turn) is not None:
                await running.over()
            step = self._later.pop(0)
            turn = Turn(Prompt(step.prompt), self.stage, stop=self._stop)
            self.stage.announce(turn)
            error: BaseException | None = None
            try:
                result = await self._play(turn.prompt, step.steps)
            except asyncio.CancelledError:
                self.stage.end(turn, TurnResult(status="cancelled", error=turn.reason or "the session was closed"))
                raise
            except Unfinished as failure:
                error, result = failure.error, failure.result
            except SeraiError as failure:  # what could not be told, such as a full disk
                error, result = failure, TurnResult(status="error", error=str(failure))
            self.stage.end(turn, result, error)

    async def _stop(self, turn: Turn, reason: str) -> None:
        await self.interrupt(reason)
        await turn.over()

    async def idle(self) -> None:
        while self._own is not None and not self._own.done():
            await asyncio.wait([self._own])

    async def close(self) -> None:
        for task in (self._own, self._playing):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
