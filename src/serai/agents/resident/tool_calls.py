"""The tool calls of one answer: decided, run side by side, their results in the order of the calls (spec piglet 6.4).

A call ends in exactly one result, whatever happens to it: it runs, is denied, is unknown, is cancelled because a sibling failed
hard or somebody steered, hangs, or outlives the turn. What a tool says after its call is over is dropped (FIX-22).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from serai.agents.event_hub import ignore_outcome
from serai.agents.resident.run_context import RunContext, RunOutput, ToolSet
from serai.agents.tool_results import fit_for_model
from serai.model.approvals import Allow, Approval, Deny
from serai.model.events import ToolEnded, ToolProgress, ToolStarted
from serai.model.tools import ToolCall, ToolResult, ToolSpec
from serai.store.messages import INTERRUPTED

log = logging.getLogger("serai.agents")

CANCELLED = ToolResult.error("tool execution cancelled")
OVER = ToolResult.error(INTERRUPTED, code="TOOL_INTERRUPTED")
SKIPPED = "Tool execution skipped by user"
_SKIPPED = Deny(SKIPPED)
# What a tool that is cancelled has of the time that an interrupted turn has to end: `bash` may need two seconds of five. And what
# all of them have, which is more.
_ONE, _ALL = 0.6, 0.8


class ToolCalls:
    """Runs the calls of one answer."""

    def __init__(self, output: RunOutput, tools: ToolSet, context: RunContext) -> None:
        self._output = output
        self._tools = tools
        self._limits = context.limits
        self._decide = context.decide  # without it, whoever reads the turn is asked
        self._step_mode = context.step_mode
        self._approved = context.approved
        self._leads_outside = context.leads_outside
        self._slots = asyncio.Semaphore(1 if context.step_mode else context.limits.tools_at_once)
        self._tasks: dict[asyncio.Task[None], ToolCall] = {}
        self._running: dict[str, ToolSpec] = {}  # calls that have begun, by id
        self._yes: dict[str, ToolCall] = {}  # what a person allowed, by the id of the call as the model made it
        self._live = True
        self._failure: Exception | None = None  # somebody must know of the results, and could not be told
        self.results: dict[str, ToolResult] = {}  # by the id of the call
        self.denied: Deny | None = None  # somebody said no and that the turn should end

    async def run(self, calls: Sequence[ToolCall]) -> None:
        """When it returns or raises, every call has its result. When it is cancelled, so is everything that runs."""
        loop = asyncio.get_running_loop()
        self._tasks = {loop.create_task(self._run_one(call), name=f"call of {call.name}"): call for call in calls}
        unanswered = OVER
        try:
            await asyncio.wait(self._tasks)
            unanswered = CANCELLED  # before they had begun
        finally:
            self._live = False
            try:
                await self._cancel_all()
            finally:
                missing = [call for call in calls if call.id not in self.results]
                self.results |= {call.id: unanswered for call in missing}
                for call in missing:
                    self._emit_end(call)
        if self._failure is not None:
            raise self._failure

    def cancel_interruptible(self) -> None:
        """A person has said something: what has not begun, and what may be cancelled, is."""
        for task, call in self._tasks.items():
            spec = self._running.get(call.id)
            if spec is None or spec.interrupt == "cancel":
                task.cancel()

    async def _cancel_all(self) -> None:
        """Nothing runs on. It takes less time than the one who interrupts the turn has patience for."""
        left = [task for task in self._tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=self._limits.interrupt * _ALL)

    # -- one call

    async def _run_one(self, call: ToolCall) -> None:
        try:
            async with self._slots:
                result = await self._judge_and_run(call)
        except asyncio.CancelledError:
            if not self._live:
                raise
            result = CANCELLED
        except Exception as error:  # a hard failure: what its siblings do may rest on it
            if not self._live:
                raise
            log.exception("the tool %s failed hard", call.name)
            result = ToolResult.error(f"{call.name} failed: {type(error).__name__}: {error}", code="INTERNAL")
            self._cancel_siblings(call)
        finally:
            self._running.pop(call.id, None)
            if (final := self._yes.pop(call.id, None)) is not None:
                self._approved.pop(id(final), None)
        if self._live:
            self.results[call.id] = fit_for_model(result, self._limits.tool_result)
            self._emit_end(call)

    def _emit_end(self, call: ToolCall) -> None:
        try:
            self._output.emit(ToolEnded(call=call, result=self.results[call.id]))
        except Exception as error:  # such as a full disk: told when every call has its result
            self._failure = self._failure or error

    async def _judge_and_run(self, call: ToolCall) -> ToolResult:
        if self._tools.find(call.name) is None:
            return _make_unknown_result(call)
        if isinstance(call.arguments, str):
            hint = "send them again as one JSON object"
            return ToolResult.error(f"the arguments of {call.name} are no JSON", code="INVALID_ARGS", hint=hint)
        final, decision = await self._decide_call(call)
        if isinstance(decision, ToolResult):
            return decision
        if decision is _SKIPPED:
            return ToolResult.error(SKIPPED)
        if isinstance(decision, Deny):
            if decision.interrupt and self.denied is None:
                self.denied = decision
                self._cancel_siblings(call)
            return ToolResult.error(decision.why or "it was denied", code="PERMISSION_DENIED")
        spec = self._tools.find(call.name)  # again: the tools may be others by now
        if spec is None:
            return _make_unknown_result(call)
        self._output.raise_if_stopped()  # who decided may have taken so long that nobody wants it any more
        self._running[call.id] = spec
        self._output.emit(ToolStarted(call=final))
        return await self._run(final)

    async def _run(self, call: ToolCall) -> ToolResult:
        """In a task of its own: one that does not let itself be cancelled is left to itself, unheard."""

        def tell(text: str) -> None:
            if self._live and self._running.get(call.id) is not None:
                self._output.emit(ToolProgress(call=call, text=text))

        working = asyncio.ensure_future(self._tools.box.call(call, tell=tell))
        try:
            done, _ = await asyncio.wait([working], timeout=self._limits.tool)
        finally:
            if not working.done():
                self._running.pop(call.id, None)
                working.cancel()
                await asyncio.wait([working], timeout=self._limits.interrupt * _ONE)
            if not working.done():
                log.error("%s does not end although it was cancelled", call.name)
                working.add_done_callback(ignore_outcome)
        if not done:
            return ToolResult.error(f"{call.name} did not end within {self._limits.tool:g} s", code="TIMEOUT")
        return working.result()

    # -- who decides

    async def _decide_call(self, call: ToolCall) -> tuple[ToolCall, Allow | Deny | ToolResult]:
        """The call as it may run, and whether it may. Who is asked later is asked about what the one before made of it."""
        if self._step_mode:
            call, decision = await self._ask_person(call, "step mode", "step")
            if isinstance(decision, Deny):
                return call, decision if decision.interrupt else _SKIPPED
            if self._decide is None:
                return call, decision
        if self._decide is None:
            return await self._ask_person(call)
        decided = await self._decide(call)
        return call if isinstance(decided, ToolResult) else _apply_decision(call, decided), decided

    async def _ask_person(self, call: ToolCall, reason: str = "", reason_type: str = "") -> tuple[ToolCall, Allow | Deny]:
        """What whoever reads the turn says. They are told where it leads, and their yes is a yes to that and nothing else."""
        paths = self._leads_outside(call)
        told = f"it leads outside the working directory: {', '.join(paths)}" if paths else ""
        approval = Approval(
            id=self._output.new_id("approval"),  # the model chooses the ids of its calls, so those tell nothing apart
            call=call,
            reason="; ".join(filter(None, (reason, told))),
            reason_type=reason_type or ("path" if paths else ""),
            blocked_path=paths[0] if paths else "",
            no_always=reason_type == "step",
        )
        answer = await self._output.ask(approval)
        assert isinstance(answer, Allow | Deny)
        final = _apply_decision(call, answer)
        if isinstance(answer, Allow):
            # what they saw; a link that leads elsewhere by now leads nowhere. For this very call: ids are the model's to choose
            self._approved[id(final)] = frozenset(paths if final is call else self._leads_outside(final))
            self._yes[call.id] = final
        return final, answer

    def _cancel_siblings(self, call: ToolCall) -> None:
        for task, other in self._tasks.items():
            if other is not call:
                task.cancel()


def _apply_decision(call: ToolCall, decision: Allow | Deny) -> ToolCall:
    if isinstance(decision, Deny) or decision.arguments is msgspec.UNSET:
        return call
    return msgspec.structs.replace(call, arguments=decision.arguments)


def _make_unknown_result(call: ToolCall) -> ToolResult:
    return ToolResult.error(f"unknown tool: {call.name}")
