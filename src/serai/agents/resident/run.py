"""One prompt's work: the model is asked, its calls are run, it is asked again with their results, until it has no more to do.

The events of a run come in the order of spec piglet 6.3:

    turn started, turn prepared, { step started, pieces*, message, tool called*, usage, step ended, (tool started, tool ended)*,
    step settled, [steps exhausted] }+, [compacted], turn ended

However it ends, the conversation is one that a model will take (`history`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from serai.agents.driver import Prompt
from serai.agents.resident import history, spending
from serai.agents.resident.asking import Answering
from serai.agents.resident.calling import Calling
from serai.agents.resident.compacting import Compacting
from serai.agents.resident.house import House
from serai.agents.resident.toolset import ToolSet, is_compact
from serai.agents.stage import Stage
from serai.errors import Closed, LimitHit, ModelFailed, NotAllowed, TurnLimit
from serai.model import events
from serai.model.events import StepEnded, StepSettled, StepsExhausted, StepStarted, ToolCalled, TurnPrepared, TurnResult, Usage
from serai.model.provider import Completion, ModelMessage, ModelRequest
from serai.model.tools import TextBlock, ToolCall

__all__ = ["Conversation", "Run"]

ASKER = "resident"
Status = Literal["success", "error", "denied", "cancelled"]


@dataclass(slots=True)
class Conversation:
    """What was said so far, and what it took."""

    messages: list[ModelMessage] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    size: int = 0  # tokens of the newest call, as the model counted them
    counted: int = 0  # messages that are in it

    def tokens(self) -> int:
        """How long it is: as the model counted, and a guess of what came since."""
        return self.size + history.tokens(self.messages[self.counted :])


class Run:
    """One turn of the resident."""

    def __init__(self, house: House, stage: Stage, conversation: Conversation, tools: ToolSet, *, most: int) -> None:
        self._house = house
        self._stage = stage
        self._conversation = conversation
        self._tools = tools
        self._most = most
        self._steering: list[str] = []
        self._over = False  # nobody reads what is steered any more
        self._calling: Calling | None = None
        self._answering: Answering | None = None
        self._usage = Usage()
        self._step = 0
        self._text = ""
        self._compacting = Compacting(house, stage, conversation)

    def steer(self, text: str) -> None:
        """Before the next call of the model; tools that may be cancelled are (spec piglet 6.4)."""
        if self._over:
            raise Closed("the turn is over", who=ASKER, hint="send it as a prompt")
        self._steering.append(text)
        if self._calling is not None:
            self._calling.steered()

    async def play(self, prompt: Prompt) -> TurnResult:
        """The turn. Whatever ends it, the conversation is in order afterwards."""
        messages = self._conversation.messages
        system = self._house.system(self._tools, prompt.system)
        before = len(messages)
        messages.append(history.user(prompt.text, prompt.images))
        self._stage.emit(TurnPrepared(messages=before, tools=len(self._tools.offered()), system=system))
        try:
            while await self._one_step(system):
                pass
        except asyncio.CancelledError:
            self._broken_off()
            raise
        finally:
            self._settle()
        denied = self._calling.denied if self._calling is not None else None
        return self.result("success") if denied is None else self.result("denied", denied.why)

    def result(self, status: Status, error: str = "") -> TurnResult:
        """What has come of it so far."""
        return TurnResult(status=status, text=self._text, error=error, steps=self._step, usage=self._usage)

    # -- a step

    async def _one_step(self, system: str) -> bool:
        """Ask the model and run its calls; whether it is to be asked again."""
        self._take_steering()
        self._step += 1
        self._stage.emit(StepStarted(step=self._step))
        completion = await self._answer(system)
        calls = completion.message.calls
        if calls:
            await self._call(calls)
        self._stage.emit(StepSettled(step=self._step))
        if self._calling is not None and self._calling.denied is not None:
            return False
        await self._compacting.when_needed()
        if not calls and not self._steering:
            return False
        if self._step >= self._most:
            self._stage.emit(StepsExhausted(count=self._step, most=self._most))
            limit = LimitHit("steps", self._most)
            raise TurnLimit("the model wanted to go on, and may not", who=self._house.model.key, limit=limit)
        return True

    def _take_steering(self) -> None:
        for text in self._steering:
            self._conversation.messages.append(history.user(text))
        self._steering.clear()

    async def _answer(self, system: str) -> Completion:
        """The model's answer, told and kept."""
        if refusal := await self._house.interceptors.before_step(self._step):
            self._stage.emit(StepEnded(step=self._step, stop="error", error=refusal))
            raise NotAllowed(refusal, who=self._house.model.key)
        self._answering = answering = Answering(self._stage, self._house.limits, hold_text=self._house.interceptors.hold_text)
        try:
            completion = await self._ask(answering, system)
        except ModelFailed as error:
            self._keep_partial(answering, "error", str(error))
            raise
        completion = _sound(completion, self._step)
        await self._tell(answering, completion)
        self._answering = None
        if completion.stop == "error":
            hint = "say it in another way, or to another model"
            raise ModelFailed("it would not go on with this", who=self._house.model.key, hint=hint)
        return completion

    async def _ask(self, answering: Answering, system: str) -> Completion:
        try:
            return await answering.get(self._house.provider, self._request(system))
        except ModelFailed as error:
            if not error.too_long or not await self._compacting.now():
                raise
        return await answering.get(self._house.provider, self._request(system))

    def _request(self, system: str) -> ModelRequest:
        house = self._house
        messages = history.capped(self._conversation.messages, house.limits.history)
        tools = self._tools.told(compact=is_compact(house.model))
        return ModelRequest(house.model, tuple(messages), system, tools, house.options)

    async def _tell(self, answering: Answering, completion: Completion) -> None:
        message, model = completion.message, self._house.model
        said = events.Message(content=message.content, model=model.key)
        shown = await self._house.interceptors.message(said) if said.text else said
        if shown is said:
            for piece in answering.held:
                self._stage.emit(piece)
        self._conversation.messages.append(message)
        if shown is not None:
            self._stage.emit(shown)
            self._text = shown.text
        else:
            self._text = ""
        for call in message.calls:
            self._stage.emit(ToolCalled(call=call))
        self._spend(completion.usage)
        self._stage.emit(StepEnded(step=self._step, stop=completion.stop))

    def _spend(self, usage: Usage) -> None:
        usage = spending.priced(self._house.model, usage)
        conversation = self._conversation
        conversation.size = usage.input + usage.output + usage.cache_read + usage.cache_write
        conversation.counted = len(conversation.messages) if conversation.size else 0
        conversation.usage = spending.together(conversation.usage, usage)
        self._usage = spending.together(self._usage, usage)
        self._stage.emit(events.UsageReported(usage=usage, total=conversation.usage))

    async def _call(self, calls: Sequence[ToolCall]) -> None:
        self._calling = calling = Calling(self._stage, self._tools, self._house)
        try:
            await calling.run(calls)
        finally:
            for call in calls:
                result = calling.results[call.id]
                content = result.content or (TextBlock("(no output)"),)
                self._conversation.messages.append(ModelMessage("tool", content, call_id=call.id, is_error=result.is_error))

    # -- its end

    def _broken_off(self) -> None:
        """It was cancelled: what the model had said stays said."""
        if self._answering is not None:
            self._keep_partial(self._answering, "aborted", "")

    def _keep_partial(self, answering: Answering, stop: events.Stop, error: str) -> None:
        self._answering = None
        content = (TextBlock(answering.text),) if answering.text and not self._house.interceptors.hold_text else ()
        if content:
            self._conversation.messages.append(ModelMessage("assistant", content))
            self._stage.emit(events.Message(content=content, model=self._house.model.key))
        self._stage.emit(StepEnded(step=self._step, stop=stop, error=error))

    def _settle(self) -> None:
        self._over = True
        self._take_steering()
        self._conversation.messages[:] = history.repaired(self._conversation.messages)


def _sound(completion: Completion, step: int) -> Completion:
    """With an id of its own for every call: results are told apart by them."""
    seen: set[str] = set()
    calls: list[ToolCall] = []
    for place, call in enumerate(completion.message.calls):
        id = call.id or f"call-{step}-{place}"
        while id in seen:
            id = f"{id}-{place}"
        seen.add(id)
        calls.append(msgspec.structs.replace(call, id=id, asker=call.asker or ASKER))
    message = msgspec.structs.replace(completion.message, calls=tuple(calls))
    return msgspec.structs.replace(completion, message=message)
