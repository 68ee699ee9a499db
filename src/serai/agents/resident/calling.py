"""The tool calls of one answer: decided, run side by side, their results in the order of the calls (spec piglet 6.4).

A call ends in exactly one result, whatever happens to it: it runs, is denied, is unknown, is cancelled because a sibling failed
hard or somebody steered, hangs, or outlives the turn. What a tool says after its call is over is dropped (FIX-22).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from serai.agents.resident.house import House
from serai.agents.resident.toolset import ToolSet
from serai.agents.stage import Stage
from serai.model.ask import Allow, Approval, Deny
from serai.model.events import ToolEnded, ToolProgress, ToolStarted
from serai.model.tools import Block, TextBlock, ToolCall, ToolResult, ToolSpec
from serai.store.messages import INTERRUPTED

__all__ = ["Calling", "coded"]

log = logging.getLogger("serai.agents")

CANCELLED = ToolResult.error("tool execution cancelled")
OVER = ToolResult.error(INTERRUPTED, code="TOOL_INTERRUPTED")
SKIPPED = "Tool execution skipped by user"
_SKIPPED = Deny(SKIPPED)
_CUT = "\n[… {} characters left out …]\n"


class Calling:
    """Runs the calls of one answer."""

    def __init__(self, stage: Stage, tools: ToolSet, house: House) -> None:
        self._stage = stage
        self._tools = tools
        self._limits = house.limits
        self._decide = house.decide  # without it, whoever reads the turn is asked
        self._step_mode = house.step_mode
        self._approved = house.approved
        self._slots = asyncio.Semaphore(1 if house.step_mode else house.limits.tools_at_once)
        self._tasks: dict[asyncio.Task[None], ToolCall] = {}
        self._running: dict[str, ToolSpec] = {}  # calls that have begun, by id
        self._live = True
        self.results: dict[str, ToolResult] = {}  # by the id of the call
        self.denied: Deny | None = None  # somebody said no and that the turn should end

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Their results, in order. When this is cancelled, so is everything that runs."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._one(call), name=f"call of {call.name}") for call in calls]
        self._tasks = dict(zip(tasks, calls, strict=True))
        unanswered = OVER
        try:
            await asyncio.wait(tasks)
            unanswered = CANCELLED  # before they had begun
        finally:
            self._live = False
            await self._end(tasks)
            for call in calls:
                if call.id not in self.results:
                    self._ended(call, unanswered)
        return [self.results[call.id] for call in calls]

    def steered(self) -> None:
        """A person has said something: what has not begun, and what may be cancelled, is."""
        for task, call in self._tasks.items():
            spec = self._running.get(call.id)
            if spec is None or spec.interrupt == "cancel":
                task.cancel()

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        """Nothing runs on. What does not let itself be cancelled is left to itself, unheard."""
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=self._limits.interrupt)
        for task in left:
            if not task.done():
                log.error("%s does not end although it was cancelled", task.get_name())

    # -- one call

    async def _one(self, call: ToolCall) -> None:
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
            self._approved.discard(call.id)
        if self._live:
            self._ended(call, result)

    def _ended(self, call: ToolCall, result: ToolResult) -> None:
        result = self.results[call.id] = coded(_bounded(result, self._limits.tool_result))
        self._stage.emit(ToolEnded(call=call, result=result))

    async def _judge_and_run(self, call: ToolCall) -> ToolResult:
        if self._tools.find(call.name) is None:
            return _unknown(call)
        if isinstance(call.arguments, str):
            hint = "send them again as one JSON object"
            return ToolResult.error(f"the arguments of {call.name} are no JSON", code="INVALID_ARGS", hint=hint)
        final, decision = await self._decision(call)
        if decision is _SKIPPED:
            return ToolResult.error(SKIPPED)
        if isinstance(decision, Deny):
            if decision.interrupt and self.denied is None:
                self.denied = decision
                self._cancel_siblings(call)
            return ToolResult.error(decision.why or "it was denied", code="PERMISSION_DENIED")
        spec = self._tools.find(call.name)  # again: the tools may be others by now
        if spec is None:
            return _unknown(call)
        self._running[call.id] = spec
        self._stage.emit(ToolStarted(call=final))
        return await self._run(final)

    async def _run(self, call: ToolCall) -> ToolResult:
        def tell(text: str) -> None:
            if self._live and call.id in self._running:
                self._stage.emit(ToolProgress(call=call, text=text))

        deadline = asyncio.timeout(self._limits.tool)
        try:
            async with deadline:
                return await self._tools.box.call(call, tell=tell)
        except TimeoutError:
            if not deadline.expired():
                raise
            return ToolResult.error(f"{call.name} did not end within {self._limits.tool:g} s", code="TIMEOUT")

    async def _decision(self, call: ToolCall) -> tuple[ToolCall, Allow | Deny]:
        """The call as it may run, and whether it may. Who is asked later is asked about what the one before made of it."""
        if self._step_mode:
            call, decision = await self._person(call, reason="step mode", reason_type="step", no_always=True)
            if isinstance(decision, Deny):
                return call, decision if decision.interrupt else _SKIPPED
            if self._decide is None:
                return call, decision
        if self._decide is None:
            return await self._person(call)
        decision = await self._decide(call)
        return _rewritten(call, decision), decision

    async def _person(
        self, call: ToolCall, *, reason: str = "", reason_type: str = "", no_always: bool = False
    ) -> tuple[ToolCall, Allow | Deny]:
        """What whoever reads the turn says; their yes to a call is a yes to where it leads."""
        id = self._stage.new_id("approval")  # the model chooses the ids of its calls, so those tell nothing apart
        answer = await self._stage.ask(Approval(id=id, call=call, reason=reason, reason_type=reason_type, no_always=no_always))
        assert isinstance(answer, Allow | Deny)
        if isinstance(answer, Allow):
            self._approved.add(call.id)
        return _rewritten(call, answer), answer

    def _cancel_siblings(self, call: ToolCall) -> None:
        for task, other in self._tasks.items():
            if other is not call:
                task.cancel()


def _rewritten(call: ToolCall, decision: Allow | Deny) -> ToolCall:
    if isinstance(decision, Deny) or decision.arguments is msgspec.UNSET:
        return call
    return msgspec.structs.replace(call, arguments=decision.arguments)


def _unknown(call: ToolCall) -> ToolResult:
    return ToolResult.error(f"unknown tool: {call.name}")


def coded(result: ToolResult) -> ToolResult:
    """With its code and hint where the model sees them (spec piglet 5.1)."""
    first = result.content[0] if result.content else TextBlock("")
    if not result.code or not isinstance(first, TextBlock) or first.text.startswith("[error:"):
        return result
    text = f"[error:{result.code}] {first.text}" + (f"\nhint: {result.hint}" if result.hint else "")
    return msgspec.structs.replace(result, content=(TextBlock(text), *result.content[1:]))


def _bounded(result: ToolResult, most: int) -> ToolResult:
    """As much of it as a model is told; of a long text the beginning and the end."""
    if sum(len(block.text) for block in result.content if isinstance(block, TextBlock)) <= most:
        return result
    room = most // max(1, sum(isinstance(block, TextBlock) for block in result.content))
    return msgspec.structs.replace(result, content=tuple(_cut(block, room) for block in result.content))


def _cut(block: Block, room: int) -> Block:
    if not isinstance(block, TextBlock) or len(block.text) <= room:
        return block
    half = room // 2
    return TextBlock(block.text[:half] + _CUT.format(len(block.text) - 2 * half) + block.text[len(block.text) - half :])
