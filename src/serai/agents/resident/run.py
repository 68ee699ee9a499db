"""One prompt's work: the model is asked, its calls are run, it is asked again with their results, until it has no more to do.

The events of a run come in the order of spec piglet 6.3:

    turn started, turn prepared, { step started, pieces*, message, tool called*, usage, step ended, (tool started, tool ended)*,
    step settled, [steps exhausted] }+, [compacted], turn ended

However it ends, the conversation is one that a model accepts (`conversation`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Literal

import msgspec

from serai.agents.driver import Prompt
from serai.agents.models.api_mapping import is_deep
from serai.agents.resident import conversation
from serai.agents.resident.compaction import Compaction, GuestCompaction
from serai.agents.resident.conversation import Conversation
from serai.agents.resident.model_call import ModelCall, yield_to_loop
from serai.agents.resident.run_context import RunContext, RunOutput, ToolSet, is_small_model
from serai.agents.resident.tool_calls import OVER, ToolCalls
from serai.errors import Closed, LimitHit, ModelFailed, NotAllowed, TurnLimit
from serai.model import events
from serai.model.actions import Notice
from serai.model.events import StepEnded, StepSettled, StepsExhausted, StepStarted, ToolCalled, TurnPrepared, TurnResult, Usage
from serai.model.provider import Completion, MessageOrigin, ModelMessage, ModelRequest
from serai.model.tools import ToolCall
from serai.store import entries

log = logging.getLogger("serai.agents")

_TOO_DEEP = "[arguments that were nested too deep]"
Status = Literal["success", "error", "denied", "cancelled"]


class Run:
    """One turn of the resident. `begin` it, then `play` it; `end` it in any case."""

    def __init__(
        self,
        context: RunContext,
        output: RunOutput,
        conversation: Conversation,
        tools: ToolSet,
        *,
        most: int,
        ids: str = "",
        shortening: GuestCompaction | None = None,
    ) -> None:
        """`ids` stands before those of its calls, so that they are nobody else's; `shortening` is that of its conversation."""
        self._context = context
        self._output = output
        self._conversation = conversation
        self._tools = tools
        self._most = most
        self._ids = ids
        self._system = ""
        self._first = ""  # the system prompt of the first step, with what is added for it (spec piglet 5.6)
        self._steering: list[str] = []
        self._closed = False  # nothing is steered in any more: no model would see it
        self._calling: ToolCalls | None = None
        self._answering: ModelCall | None = None
        self._model = context.model  # of the step that runs
        self._usage = Usage()
        self._step = 0
        self._text = ""
        self._compacting = Compaction(context, output, conversation, shortening)
        self.quiet = False  # the conversation is on disk as it is here: nothing was said that is not settled

    def begin(self, prompt: Prompt) -> None:
        """From here on the prompt is part of the conversation, whatever happens."""
        before = len(self._conversation.messages)
        self._system = self._context.system(self._tools)
        self._first = self._context.system(self._tools, prompt.system) if prompt.system else self._system
        self._conversation.add(conversation.user(prompt.text, prompt.images))
        self._output.emit(TurnPrepared(messages=before, tools=len(self._tools.offered()), system=self._first))
        self.quiet = True

    def steer(self, text: str) -> None:
        """Before the next call of the model; tools that may be cancelled are (spec piglet 6.4)."""
        if self._closed or (self._calling is not None and self._calling.denied is not None):
            raise Closed("the turn is about to end", who=self._context.asker, hint="send it as a prompt")
        self._steering.append(text)
        if self._calling is not None:
            self._calling.steered()

    def stop(self) -> None:
        """It is to end: nothing more is begun or steered in."""
        self._closed = True
        self._output.stop()

    def abandon(self) -> None:
        """It does not end, and is left behind: what had come of it stays."""
        self.stop()
        if self._answering is not None:
            self._keep_partial(self._answering, "aborted", "")
        self.end()

    async def play(self) -> TurnResult:
        """All of its steps."""
        try:
            while await self._one_step():
                pass
        except asyncio.CancelledError:
            if self._answering is not None:  # what the model had said stays said
                self._keep_partial(self._answering, "aborted", "")
            raise
        finally:
            self.end()
        denied = self._calling.denied if self._calling is not None else None
        return self.result("success") if denied is None else self.result("denied", denied.why)

    def end(self) -> None:
        """Whatever ended it, the conversation is in order afterwards. Any number of times."""
        self._closed, self.quiet = True, False
        self._take_steering()
        self._conversation.repair()

    def result(self, status: Status, error: str = "") -> TurnResult:
        """What has come of it so far."""
        return TurnResult(status=status, text=self._text, error=error, steps=self._step, usage=self._usage)

    # -- a step

    async def _one_step(self) -> bool:
        """Ask the model and run its calls; whether it is to be asked again."""
        self._output.check()
        self._take_steering()
        self._step += 1
        self._calling = None
        self._closed = self._closed or self._step >= self._most  # no later step would take what is steered now
        self._output.emit(StepStarted(step=self._step))
        calls = (await self._answer()).message.calls
        await yield_to_loop()  # a step is told and kept at once, which takes a while
        denied = bool(calls) and await self._call(calls)
        self._output.emit(StepSettled(step=self._step))
        self.quiet = True
        await yield_to_loop()
        if denied:
            return False
        await self._compacting.when_needed()
        if not calls and not self._steering:
            return False
        if self._step >= self._most:
            self._output.emit(StepsExhausted(count=self._step, most=self._most))
            limit = LimitHit("steps", self._most)
            raise TurnLimit("the model wanted to go on, and may not", who=self._model.key, limit=limit)
        return True

    def _take_steering(self) -> None:
        for text in self._steering:
            self._conversation.add(conversation.user(text))
        self._steering.clear()

    async def _answer(self) -> Completion:
        """The model's answer, told and kept. Who switches the model in the meantime means the next step."""
        self._model, provider = self._context.model, self._context.provider
        if refusal := await self._refusal():
            self._output.emit(StepEnded(step=self._step, stop="error", error=refusal))
            raise NotAllowed(refusal, who=self._model.key)
        self._answering = answering = ModelCall(self._output, self._context.limits, hold_text=self._context.interceptors.hold_text)
        try:
            try:
                completion = await answering.get(provider, self._request())
            except ModelFailed as error:
                if not error.too_long or not await self._compacting.now():
                    raise
                completion = await answering.get(provider, self._request())
        except ModelFailed as error:
            self._keep_partial(answering, "error", str(error))
            raise
        completion = _sound(completion, self._step, self._context.asker, self._ids)
        await self._tell(answering, completion)
        if completion.stop == "error":
            hint = "say it in another way, or to another model"
            raise ModelFailed("it would not go on with this", who=self._model.key, hint=hint)
        return completion

    async def _refusal(self) -> str:
        try:
            return await self._context.interceptors.before_step(self._step)
        except asyncio.CancelledError:  # what has begun for all to see has an end
            self._output.emit(StepEnded(step=self._step, stop="aborted"))
            raise
        except Exception as error:  # who cannot say yes has not said it (design rule 7)
            log.exception("an interceptor failed")
            return f"an interceptor failed: {error}"

    def _request(self) -> ModelRequest:
        messages = conversation.cap_messages(self._conversation.messages, self._context.limits.history)
        tools = self._tools.told(compact=is_small_model(self._model))
        system = self._first if self._step == 1 else self._system
        return ModelRequest(self._model, tuple(messages), system, tools, self._context.options)

    async def _tell(self, answering: ModelCall, completion: Completion) -> None:
        usage = conversation.with_cost(self._model, completion.usage)
        message = self._made(completion.message, usage, completion.stop)
        said = events.Message(content=message.content, model=self._model.key)
        shown = await self._shown(said)
        self._answering, self.quiet = None, False
        self._conversation.add(message)
        self._output.answered(message, self._model.key)
        for piece in answering.held if shown is said else ():
            self._output.emit(piece)
        if shown is not None:
            self._output.emit(shown)
        self._text = shown.text if shown is not None else ""
        for call in message.calls:
            self._output.emit(ToolCalled(call=call))
        self._spend(usage)
        self._output.emit(StepEnded(step=self._step, stop=completion.stop))

    async def _shown(self, said: events.Message) -> events.Message | None:
        """What may be seen of it; a message without text is nobody's to intercept."""
        if not said.text:
            return said
        try:
            return await self._context.interceptors.message(said)
        except Exception as error:  # what might be hidden is (design rule 7)
            log.exception("an interceptor failed")
            self._output.emit(events.NoticeEvent(notice=Notice(f"what the model said is not shown: {error}", "warn", "serai")))
            return None

    def _made(self, message: ModelMessage, usage: Usage, stop: events.Stop, error: str = "") -> ModelMessage:
        made = MessageOrigin(entries.format_time(), self._model.id, self._model.provider, usage, stop, error)
        return msgspec.structs.replace(message, made=made)

    def _spend(self, usage: Usage) -> None:
        self._usage = conversation.add_usage(self._usage, usage)
        self._conversation.spend(usage)
        self._output.emit(events.UsageReported(usage=usage, total=self._conversation.usage))

    async def _call(self, calls: Sequence[ToolCall]) -> bool:
        """Whether somebody wants the turn to end here."""
        self._calling = calling = ToolCalls(self._output, self._tools, self._context)
        try:
            await calling.run(calls)
        finally:
            for call in calls:
                result = calling.results.get(call.id, OVER)
                message = ModelMessage("tool", result.content, call_id=call.id, is_error=result.is_error)
                self._conversation.add(message)
        return calling.denied is not None

    def _keep_partial(self, answering: ModelCall, stop: events.Stop, error: str) -> None:
        self._answering, self.quiet = None, False
        partial = self._made(answering.partial, Usage(), stop, error)
        if partial.content or partial.thinking:
            self._conversation.add(partial)
            self._output.answered(partial, self._model.key)
        if partial.content:
            self._output.emit(events.Message(content=partial.content, model=self._model.key))
        self._output.emit(StepEnded(step=self._step, stop=stop, error=error))


def _sound(completion: Completion, step: int, asker: str, ids: str) -> Completion:
    """With an id of its own for every call: results are told apart by them. A model that will not go on calls nothing."""
    seen: set[str] = set()
    calls: list[ToolCall] = []
    for place, call in enumerate(completion.message.calls if completion.stop != "error" else ()):
        id = ids + (call.id or f"call-{step}-{place}")
        while id in seen:
            id = f"{id}-{place}"
        seen.add(id)
        arguments = _TOO_DEEP if is_deep(call.arguments) else call.arguments
        if isinstance(arguments, dict):  # of its own: a decision is for this very object
            arguments = dict(arguments)
        calls.append(msgspec.structs.replace(call, id=id, asker=asker, arguments=arguments))
    message: ModelMessage = msgspec.structs.replace(completion.message, calls=tuple(calls))
    return msgspec.structs.replace(completion, message=message)
