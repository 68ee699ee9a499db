"""The resident: our own agent loop over a model. It takes its tools from a `ToolBox` and its decisions from a callable."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable

from serai.agents.driver import Capabilities, Driver, Prompt, Unfinished
from serai.agents.resident import history
from serai.agents.resident.background import Backgrounds
from serai.agents.resident.compacting import Compacting
from serai.agents.resident.house import House
from serai.agents.resident.run import Conversation, Run
from serai.agents.resident.toolset import ToolSet
from serai.agents.stage import Stage
from serai.errors import Closed, SeraiError
from serai.model.actions import Notice
from serai.model.events import Noticed, SessionStarted, TurnResult
from serai.model.provider import Model, ModelMessage, ModelProvider
from serai.model.tools import ToolBox

__all__ = ["Resident", "Switch"]

# Finds the model that a query means, and who streams it.
Switch = Callable[[str], tuple[Model, ModelProvider]]


class Resident(Driver):
    """Drives a model. `house` is what it works with; `before` what was said in the session until now."""

    name = "resident"
    capabilities = Capabilities(
        deltas=True, approvals=True, interrupt=True, multi_turn=True, fork=True, choose_id=True, steer=True, switch_model=True,
        compact=True, background=True, images=True, guards="every-call", rewrite=True,
    )  # fmt: skip

    def __init__(
        self,
        house: House,
        tools: ToolBox,
        *,
        before: Iterable[ModelMessage] = (),
        session_id: str = "",
        switch: Switch | None = None,
        notice: str = "",
        on_model: Callable[[str], None] = lambda _key: None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`notice` is told at the first turn, `on_model` which model it is; `close` ends what belongs to the resident alone."""
        self.house = house
        self.tools = ToolSet(tools)
        self.conversation = Conversation(history.repaired(before))
        self.session_id = session_id or str(uuid.uuid4())
        self.backgrounds = Backgrounds(house, tools, self._tell)
        self._switch = switch
        self._notice = notice
        self._on_model = on_model
        self._close = close
        self._stage: Stage | None = None
        self._run: Run | None = None
        self._playing: asyncio.Task[TurnResult] | None = None

    @property
    def stage(self) -> Stage:
        if self._stage is None:
            raise Closed("the resident is not open", who=self.name)
        return self._stage

    async def open(self, stage: Stage) -> None:
        self._stage = stage
        self._on_model(self.house.model.key)
        stage.emit(SessionStarted(session=self.session_id, messages=len(self.conversation.messages)))

    async def run(self, prompt: Prompt) -> TurnResult:
        if self._notice:
            self._tell(self._notice)
            self._notice = ""
        self._run = run = Run(self.house, self.stage, self.conversation, self.tools, most=self.house.limits.steps)
        self._playing = playing = asyncio.get_running_loop().create_task(run.play(prompt), name="run of the resident")
        try:
            return await asyncio.shield(playing)
        except asyncio.CancelledError:
            if not playing.cancelled():  # we are the ones who are cancelled
                playing.cancel()
                raise
            reason = playing_reason(self.stage)
            self.conversation.messages.append(history.mark(reason))
            return run.result("cancelled", reason)
        except SeraiError as error:
            raise Unfinished(error, run.result("error", str(error))) from error
        finally:
            self._run = self._playing = None

    async def interrupt(self, reason: str) -> None:  # noqa: ARG002
        if self._playing is not None:
            self._playing.cancel()

    def steer(self, text: str) -> None:
        if self._run is None:
            raise Closed("no turn runs that could be steered", who=self.name)
        self._run.steer(text)

    async def set_model(self, query: str) -> str:
        if self._switch is None:
            raise self.lacks("switch_model")
        self.house.model, self.house.provider = self._switch(query)
        self._on_model(self.house.model.key)
        return self.house.model.key

    async def compact(self) -> None:
        await Compacting(self.house, self.stage, self.conversation).now()

    def fork(self) -> Resident:
        return Resident(self.house, self.tools.box, before=self.conversation.messages, switch=self._switch)

    async def close(self) -> None:
        await self.backgrounds.close()
        if self._close is not None:
            await self._close()

    def _tell(self, text: str) -> None:
        self.stage.emit(Noticed(notice=Notice(text, "info", "serai")))


def playing_reason(stage: Stage) -> str:
    return (stage.turn.reason if stage.turn is not None else "") or "interrupted"
