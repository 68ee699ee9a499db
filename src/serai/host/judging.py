"""Who may say no: interceptors of every stage in their order, guards that must hold, and a gate on the final call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from serai.errors import GuardDown
from serai.host.registry import Registry
from serai.model.ask import Allow, Answer, Decision, Deny
from serai.model.contributions import Refuse, Rewrite, Stage
from serai.model.tools import ToolCall, ToolResult

__all__ = ["Gate", "Judge", "invalid"]

_ABSENT = "bring the guard back, or let it go on purpose: `serai guest disable NAME`, or take it out of the settings that name it"
Gate = Callable[[ToolCall], Awaitable[Decision] | Decision]  # who decides on the final call


class Judge:
    """Asks whoever wants to be asked."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def guards_down(self) -> str:
        """Why nothing may run, or "": a guard that is not ready yet, failed before it was ever ready, is hidden or not found."""
        missing = self._registry.table.missing
        return self._registry.absent or (f"the guard {missing[0].unheld()}" if missing else "")

    def require_guards(self) -> None:
        """A run does not start before its guards are ready (design rule 8)."""
        if why := self.down():
            raise GuardDown(why, hint=_ABSENT if self._registry.absent else "")

    def down(self) -> str:
        """Why a run must not start, or "": also a guard that was ready and will be back."""
        down = self._registry.table.down
        return self.guards_down() or (f"the guard {down}" if down else "")

    async def decide(self, call: ToolCall, gate: Gate | None) -> ToolCall | ToolResult:
        """The final call, or the result that says why it does not run."""
        verdict = await self.intercept("tool_call", call)
        if isinstance(verdict, Refuse):
            return _refused(verdict)
        if isinstance(verdict, Rewrite):
            call = verdict.value
        if gate is None:
            return call
        tool = self._registry.table.tools.get(call.name)
        if tool is not None and (problem := tool.check(call.arguments)):  # nobody is asked about what cannot run
            return invalid(call, problem)
        answer = gate(call)
        decision = await answer if isinstance(answer, Awaitable) else answer
        if not isinstance(decision, Allow | Deny | Answer):
            raise TypeError(f"a gate answers with Allow or Deny, not with {decision!r}")
        if isinstance(decision, Allow):
            return call if not isinstance(decision.arguments, dict) else _with(call, decision.arguments)
        why = "" if isinstance(decision, Answer) else decision.why
        return ToolResult.error(why or f"{call.name} was denied", code="DENIED")

    async def intercept(self, stage: Stage, subject: Any) -> Refuse | Rewrite | None:
        """Ask the interceptors of a stage, one after the other; each sees what the one before made of it.

        None means: unchanged. A guard that is not there is a refusal (design rule 8).
        """
        if down := self.guards_down():
            return Refuse(f"{stage} refused: {down}")
        changed = subject
        for guest, interceptor in self._registry.table.chains[stage]:
            verdict = await guest.intercept(interceptor, stage, changed)
            if isinstance(verdict, Refuse):
                return verdict
            if isinstance(verdict, Rewrite):
                changed = _with(changed, verdict.value) if stage == "tool_call" else verdict.value
        return None if changed is subject else Rewrite(changed)

    async def after(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """What interceptors of results make of one."""
        for guest, interceptor in self._registry.table.chains["tool_result"]:
            verdict = await guest.intercept(interceptor, "tool_result", (call, result))
            if isinstance(verdict, Refuse):
                return _refused(verdict)
            if isinstance(verdict, Rewrite):
                result = verdict.value
        return result


def invalid(call: ToolCall, problem: str) -> ToolResult:
    return ToolResult.error(f"{call.name}: {problem}", code="INVALID_ARGS", hint="correct the arguments and call again")


def _with(call: ToolCall, arguments: Any) -> ToolCall:
    return ToolCall(call.name, arguments, call.id, call.asker, call.native)


def _refused(verdict: Refuse) -> ToolResult:
    return ToolResult.error(verdict.reason, code="BLOCKED") if verdict.is_error else ToolResult.of(verdict.reason)
