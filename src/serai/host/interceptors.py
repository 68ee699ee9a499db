"""Interceptors: those of every stage in their order, guards that must hold, and a final check of the call; and text hooks.

`TextHooks` is what guests add to a typed text, to the system prompt, and to a conversation that has become too long. A guest is
asked once for each, however many handlers it has of that kind, in the place of the first of them (spec piglet FIX-16).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

from serai.errors import GuardDown, NotAllowed, SeraiError
from serai.host.adapter import SupportsCompact, SupportsInject, SupportsTransform
from serai.host.contribution_table import TableBuilder
from serai.host.guest import Guest, GuestState
from serai.model.approvals import Allow, Answer, Decision, Deny
from serai.model.contributions import Compactor, Contributions, InterceptPoint, PromptSection, Refuse, Rewrite, TransformResult
from serai.model.provider import ModelMessage
from serai.model.tools import ToolCall, ToolResult

log = logging.getLogger("serai.host")

_ABSENT = "bring the guard back, or let it go on purpose: `serai guest disable NAME`, or take it out of the settings that name it"
_ROUNDS = 4  # of asking guards again; who still disagrees then never ends
FinalCheck = Callable[[ToolCall], Awaitable[Decision] | Decision]  # who decides on the final call


class InterceptorChain:
    """Asks whoever wants to be asked."""

    def __init__(self, builder: TableBuilder) -> None:
        self._builder = builder

    def guards_down(self) -> str:
        """Why nothing may run, or "": a guard that is not ready yet, failed before it was ever ready, is hidden or not found."""
        missing = self._builder.table.missing
        return self._builder.absent or (f"the guard {missing[0].explain_unheld()}" if missing else "")

    def require_guards(self) -> None:
        """A run does not start before its guards are ready (design rule 8)."""
        if why := self.explain_down():
            raise GuardDown(why, hint=_ABSENT if self._builder.absent else "")

    def explain_down(self) -> str:
        """Why a run must not start, or "": also a guard that was ready and will be back."""
        down = self._builder.table.down
        return self.guards_down() or (f"the guard {down}" if down else "")

    async def decide(self, call: ToolCall, gate: FinalCheck | None) -> ToolCall | ToolResult:
        """The final call, or the result that says why it does not run."""
        verdict = await self.intercept("tool_call", call)
        if isinstance(verdict, Refuse):
            return _to_result(verdict)
        if isinstance(verdict, Rewrite):
            call = verdict.value
        if gate is None:
            return call
        tool = self._builder.table.tools.get(call.name)
        if tool is not None and (problem := tool.check(call.arguments)):  # nobody is asked about what cannot run
            return build_invalid_result(call, problem)
        answer = gate(call)
        decision = await answer if isinstance(answer, Awaitable) else answer
        if not isinstance(decision, Allow | Deny | Answer):
            raise TypeError(f"a gate answers with Allow or Deny, not with {decision!r}")
        if isinstance(decision, Allow):
            return call if not isinstance(decision.arguments, dict) else _replace_arguments(call, decision.arguments)
        why = "" if isinstance(decision, Answer) else decision.why
        return ToolResult.error(why or f"{call.name} was denied", code="DENIED")

    async def intercept(self, stage: InterceptPoint, subject: Any) -> Refuse | Rewrite | None:
        """Ask the interceptors of a stage, one after the other; each sees what the one before made of it.

        None means: unchanged. A guard that is not there is a refusal (design rule 8).
        """
        if down := self.guards_down():
            return Refuse(f"{stage} refused: {down}")
        changed = await self._run_chain(stage, subject)
        if isinstance(changed, Refuse):
            return changed
        return None if changed is subject else Rewrite(changed)

    async def intercept_result(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """What interceptors of results make of one."""
        seen = await self._run_chain("tool_result", (call, result))
        return _to_result(seen) if isinstance(seen, Refuse) else seen[1]

    async def _run_chain(self, stage: InterceptPoint, subject: Any) -> Any:
        """What becomes of it on its way past them all, or the `Refuse` that ends it.

        A guard's yes is for what it saw. Whoever is behind it may change that, and chooses that place by its own number: then the
        guard is asked again about what has come of it, until nobody changes it any more.
        """
        links = self._builder.table.chains[stage]
        seen: dict[int, Any] = {}  # by the place in the chain, what came of it there
        for _ in range(_ROUNDS):
            asked = [
                place for place, link in enumerate(links) if place not in seen or (link.guest.guard and seen[place] is not subject)
            ]
            if not asked:
                return subject
            for place in asked:
                guest, interceptor = links[place]
                verdict = await guest.intercept(interceptor, stage, subject)
                if isinstance(verdict, Refuse):
                    return verdict
                if isinstance(verdict, Rewrite):
                    subject = _replace_value(stage, subject, verdict.value)
                seen[place] = subject
        return Refuse(f"{stage} refused: a guard and another guest change it in turn, again and again")


def build_invalid_result(call: ToolCall, problem: str) -> ToolResult:
    return ToolResult.error(f"{call.name}: {problem}", code="INVALID_ARGS", hint="correct the arguments and call again")


def _replace_value(stage: InterceptPoint, subject: Any, value: Any) -> Any:
    """The subject of that stage with this instead."""
    if stage == "tool_result":
        return (subject[0], value)
    return _replace_arguments(subject, value) if stage == "tool_call" else value


def _replace_arguments(call: ToolCall, arguments: Any) -> ToolCall:
    return ToolCall(call.name, arguments, call.id, call.asker, call.native)


def _to_result(verdict: Refuse) -> ToolResult:
    return ToolResult.error(verdict.reason, code="BLOCKED") if verdict.is_error else ToolResult.of(verdict.reason)


class TextHooks:
    """Asks the guests that are there at this moment."""

    def __init__(self, builder: TableBuilder) -> None:
        self._builder = builder

    async def transform(self, text: str) -> TransformResult:
        """What the input transformers make of it, one after the other. One that fails fails the submission (spec piglet 5.7)."""
        for guest in self._find_offering(lambda offered: offered.input_transformers):
            if guest.running is None:  # passed over
                continue
            try:
                changed = await cast("SupportsTransform", guest.running).transform(text)
            except SeraiError as error:
                hint = "it was not sent; try again, or switch the guest off"
                name = min(guest.contributions.input_transformers, key=lambda one: one.priority).name
                raise NotAllowed(f"input transformer {name}: {guest.describe_cause(error)}", who=guest.id, hint=hint) from error
            if changed.handled:
                return changed
            text = changed.text
        return TransformResult(text)

    async def inject(self, text: str) -> list[str]:
        """What the message hooks add to the system prompt. One that fails adds nothing (spec piglet 5.6, ours)."""
        found = []
        for guest in self._find_offering(lambda offered: offered.message_hooks):
            if guest.running is None:
                continue
            try:
                found.append(await cast("SupportsInject", guest.running).inject(text))
            except SeraiError as error:
                why = guest.describe_cause(error)
                guest.remark(f"its message hook failed: {why}")
                guest.context.notify("warn", f"{guest.manifest.shown} could not add what it wanted to: {why}")
        return [injection for injection in found if injection.strip()]

    def list_sections(self) -> list[PromptSection]:
        """Of the system prompt, in load order."""
        return [section for guest in self._list_present() for section in guest.contributions.prompt_sections]

    @property
    def compactor(self) -> Compactor | None:
        """The one that is used, though its guest may be down just now."""
        owner = self._builder.table.compactor
        return None if owner is None else owner[1]

    async def compact(self, messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        """What it makes of a conversation; nothing when there is none, or its guest is down: it keeps its place (design rule 8)."""
        owner = self._builder.table.compactor
        if owner is None or owner[0].running is None:
            return ()
        return await cast("SupportsCompact", owner[0].running).compact(messages)

    def _list_present(self) -> list[Guest]:
        return [guest for guest in self._builder.guests if guest.state not in (GuestState.FOUND, GuestState.STOPPED)]

    def _find_offering(self, kind: Callable[[Contributions], Iterable[Any]]) -> list[Guest]:
        """Those who offer it, by their smallest priority, then in load order."""
        some = [
            (min(one.priority for one in offered), guest)
            for guest in self._list_present()
            if (offered := tuple(kind(guest.contributions)))
        ]
        return [guest for _, guest in sorted(some, key=lambda pair: pair[0])]
