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
from serai.agents.models.api_provider import is_deep
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
        compaction: GuestCompaction | None = None,
    ) -> None:
        """`ids` stands before those of its calls, so that they are nobody else's; `compaction` is that of its conversation."""
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
        self._tool_calls: ToolCalls | None = None
        self._model_call: ModelCall | None = None
        self._model = context.model  # of the step that runs
        self._usage = Usage()
        self._step = 0
        self._text = ""
        self._compacting = Compaction(context, output, conversation, compaction)
        self.quiet = False  # the conversation is on disk as it is here: nothing was said that is not settled

    def begin(self, prompt: Prompt) -> None:
        """From here on the prompt is part of the conversation, whatever happens."""
        before = len(self._conversation.messages)
        self._system = self._context.build_prompt(self._tools)
        self._first = self._context.build_prompt(self._tools, prompt.system) if prompt.system else self._system
        self._conversation.add(conversation.build_user_message(prompt.text, prompt.images))
        self._output.emit(TurnPrepared(messages=before, tools=len(self._tools.list_offered()), system=self._first))
        self.quiet = True

    def steer(self, text: str) -> None:
        """Before the next call of the model; tools that may be cancelled are (spec piglet 6.4)."""
        if self._closed or (self._tool_calls is not None and self._tool_calls.denied is not None):
            raise Closed("the turn is about to end", who=self._context.asker, hint="send it as a prompt")
        self._steering.append(text)
        if self._tool_calls is not None:
            self._tool_calls.cancel_interruptible()

    def stop(self) -> None:
        """It is to end: nothing more is begun or steered in."""
        self._closed = True
        self._output.stop()

    def abandon(self) -> None:
        """It does not end, and is left behind: what had come of it stays."""
        self.stop()
        if self._model_call is not None:
            self._keep_partial(self._model_call, "aborted", "")
        self.end()

    async def play(self) -> TurnResult:
        """All of its steps."""
        try:
            while await self._play_step():
                pass
        except asyncio.CancelledError:
            if self._model_call is not None:  # what the model had said stays said
                self._keep_partial(self._model_call, "aborted", "")
            raise
        finally:
            self.end()
        denied = self._tool_calls.denied if self._tool_calls is not None else None
        return self.build_result("success") if denied is None else self.build_result("denied", denied.why)

    def end(self) -> None:
        """Whatever ended it, the conversation is in order afterwards. Any number of times."""
        self._closed, self.quiet = True, False
        self._take_steering()
        self._conversation.repair()

    def build_result(self, status: Status, error: str = "") -> TurnResult:
        """What has come of it so far."""
        return TurnResult(status=status, text=self._text, error=error, steps=self._step, usage=self._usage)

    # -- a step

    async def _play_step(self) -> bool:
        """Ask the model and run its calls; whether it is to be asked again."""
        self._output.raise_if_stopped()
        self._take_steering()
        self._step += 1
        self._tool_calls = None
        self._closed = self._closed or self._step >= self._most  # no later step would take what is steered now
        self._output.emit(StepStarted(step=self._step))
        calls = (await self._ask_model()).message.calls
        await yield_to_loop()  # a step is told and kept at once, which takes a while
        denied = bool(calls) and await self._run_calls(calls)
        self._output.emit(StepSettled(step=self._step))
        self.quiet = True
        await yield_to_loop()
        if denied:
            return False
        await self._compacting.compact_if_needed()
        if not calls and not self._steering:
            return False
        if self._step >= self._most:
            self._output.emit(StepsExhausted(count=self._step, most=self._most))
            limit = LimitHit("steps", self._most)
            raise TurnLimit("the model wanted to go on, and may not", who=self._model.key, limit=limit)
        return True

    def _take_steering(self) -> None:
        for text in self._steering:
            self._conversation.add(conversation.build_user_message(text))
        self._steering.clear()

    async def _ask_model(self) -> Completion:
        """The model's answer, told and kept. Who switches the model in the meantime means the next step."""
        self._model, provider = self._context.model, self._context.provider
        if refusal := await self._find_refusal():
            self._output.emit(StepEnded(step=self._step, stop="error", error=refusal))
            raise NotAllowed(refusal, who=self._model.key)
        hold = self._context.interceptors.hold_text
        self._model_call = model_call = ModelCall(self._output, self._context.limits, hold_text=hold)
        try:
            try:
                completion = await model_call.get(provider, self._build_request())
            except ModelFailed as error:
                if not error.too_long or not await self._compacting.compact():
                    raise
                completion = await model_call.get(provider, self._build_request())
        except ModelFailed as error:
            self._keep_partial(model_call, "error", str(error))
            raise
        completion = _normalise_calls(completion, self._step, self._context.asker, self._ids)
        await self._report_answer(model_call, completion)
        if completion.stop == "error":
            hint = "say it in another way, or to another model"
            raise ModelFailed("it would not go on with this", who=self._model.key, hint=hint)
        return completion

    async def _find_refusal(self) -> str:
        try:
            return await self._context.interceptors.before_step(self._step)
        except asyncio.CancelledError:  # what has begun for all to see has an end
            self._output.emit(StepEnded(step=self._step, stop="aborted"))
            raise
        except Exception as error:  # who cannot say yes has not said it (design rule 7)
            log.exception("an interceptor failed")
            return f"an interceptor failed: {error}"

    def _build_request(self) -> ModelRequest:
        messages = conversation.cap_messages(self._conversation.messages, self._context.limits.history)
        tools = self._tools.list_specs(compact=is_small_model(self._model))
        system = self._first if self._step == 1 else self._system
        return ModelRequest(self._model, tuple(messages), system, tools, self._context.options)

    async def _report_answer(self, model_call: ModelCall, completion: Completion) -> None:
        usage = conversation.with_cost(self._model, completion.usage)
        message = self._add_origin(completion.message, usage, completion.stop)
        said = events.Message(content=message.content, model=self._model.key)
        shown = await self._intercept(said)
        self._model_call, self.quiet = None, False
        self._conversation.add(message)
        self._output.report_answer(message, self._model.key)
        for piece in model_call.held if shown is said else ():
            self._output.emit(piece)
        if shown is not None:
            self._output.emit(shown)
        self._text = shown.text if shown is not None else ""
        for call in message.calls:
            self._output.emit(ToolCalled(call=call))
        self._record_usage(usage)
        self._output.emit(StepEnded(step=self._step, stop=completion.stop))

    async def _intercept(self, said: events.Message) -> events.Message | None:
        """What may be seen of it; a message without text is nobody's to intercept."""
        if not said.text:
            return said
        try:
            return await self._context.interceptors.filter_message(said)
        except Exception as error:  # what might be hidden is (design rule 7)
            log.exception("an interceptor failed")
            self._output.emit(events.NoticeEvent(notice=Notice(f"what the model said is not shown: {error}", "warn", "serai")))
            return None

    def _add_origin(self, message: ModelMessage, usage: Usage, stop: events.Stop, error: str = "") -> ModelMessage:
        made = MessageOrigin(entries.format_time(), self._model.id, self._model.provider, usage, stop, error)
        return msgspec.structs.replace(message, made=made)

    def _record_usage(self, usage: Usage) -> None:
        self._usage = conversation.add_usage(self._usage, usage)
        self._conversation.record_usage(usage)
        self._output.emit(events.UsageReported(usage=usage, total=self._conversation.usage))

    async def _run_calls(self, calls: Sequence[ToolCall]) -> bool:
        """Whether somebody wants the turn to end here."""
        self._tool_calls = tool_calls = ToolCalls(self._output, self._tools, self._context)
        try:
            await tool_calls.run(calls)
        finally:
            for call in calls:
                result = tool_calls.results.get(call.id, OVER)
                message = ModelMessage("tool", result.content, call_id=call.id, is_error=result.is_error)
                self._conversation.add(message)
        return tool_calls.denied is not None

    def _keep_partial(self, model_call: ModelCall, stop: events.Stop, error: str) -> None:
        self._model_call, self.quiet = None, False
        partial = self._add_origin(model_call.partial, Usage(), stop, error)
        if partial.content or partial.thinking:
            self._conversation.add(partial)
            self._output.report_answer(partial, self._model.key)
        if partial.content:
            self._output.emit(events.Message(content=partial.content, model=self._model.key))
        self._output.emit(StepEnded(step=self._step, stop=stop, error=error))


def _normalise_calls(completion: Completion, step: int, asker: str, ids: str) -> Completion:
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
