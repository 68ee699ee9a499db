"""The one path of every tool call and every approval (docs/design-rules.md, "The path of a call"):

    deny rules → interceptors (block or rewrite, in order) → schema → policy on the final arguments → a person if "ask" → decision

A rewrite never escapes: the rules judge what an interceptor or a person made of a call, and the interceptors see what a person
made of it. What was judged is what runs: a person is shown a copy.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from serai.agents.driver import NeedsApproval
from serai.errors import SeraiError
from serai.host.contribution_table import BuiltInOwner, RegisteredTool
from serai.host.host import Host
from serai.host.interceptors import build_invalid_result
from serai.model.approvals import Allow, Approval, Decision, Deny, Question
from serai.model.contributions import Refuse, Rewrite
from serai.model.tools import ToolCall, ToolResult
from serai.policy.approver import ApprovalOutcome, Approver
from serai.policy.call_facts import CallContext

log = logging.getLogger("serai.app")

# A person may change a call, and a guard what they made of it: how often, until it is a no.
_ROUNDS = 3
_NOBODY = ("withdrawn", "timeout")  # how a request ends that no person has answered
_SEEN = 1000  # calls that guards have seen and a person has not; beyond it the oldest is shown to the guards again


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDecision:
    """What became of a call: the call as it may run, or why it may not."""

    call: ToolCall
    decision: Allow | Deny
    by: str  # `policy`, `person`, `guest`, `schema`, or how nobody could be asked (`ApprovalOutcome.by`)
    instead: ToolResult | None = None  # what the asker is told where that is more than a no
    owner: str = ""  # the guest whose tool it is
    outside: frozenset[str] = frozenset()  # the paths outside the working directory that this very call may lead to

    @property
    def allowed(self) -> bool:
        return isinstance(self.decision, Allow)

    def to_result(self) -> ToolResult:
        """What is told of a call that does not run."""
        if self.instead is not None:
            return self.instead
        assert isinstance(self.decision, Deny)
        return ToolResult.error(self.decision.why or f"{self.call.name} was denied", code="PERMISSION_DENIED")


class ApprovalObserver:
    """Who hears that a person is asked, and what came of it. An error keeps the call from running (design rule 14)."""

    def report_request(self, request: Approval | Question) -> None:
        pass

    def report_decision(self, request: Approval | Question, decision: Decision, *, withdrawn: str = "") -> None:
        pass

    def report_no_person(self, request: Approval, hint: str) -> None:
        """It needed a person, and there was none; the hint says what would allow it."""


class Pipeline:
    """Decides. `situation` says where, for a tool of that owner; `leads_outside` where a built-in tool's call would lead."""

    def __init__(
        self,
        host: Host,
        approver: Approver,
        situation: Callable[[str], CallContext],
        *,
        leads_outside: Callable[[ToolCall], Sequence[str]] = lambda _call: (),
        observer: ApprovalObserver | None = None,
    ) -> None:
        self._host = host
        self._approver = approver
        self._situation = situation
        self._leads_outside = leads_outside
        self._observer = observer or ApprovalObserver()
        self._count = 0
        self._seen: OrderedDict[int, tuple[object, ToolCall]] = OrderedDict()
        self.asking = 0  # people are asked so much, or have just answered: until that is kept

    async def decide(self, wanted: ToolCall | Approval) -> CallDecision:
        """May it run, and with which arguments? Cancelled when nobody wants to know any more."""
        try:
            return await self._decide(wanted)
        except RecursionError:
            call, why = wanted.call if isinstance(wanted, Approval) else wanted, "its arguments are nested too deep"
            return CallDecision(call=call, decision=Deny(why), by="schema", instead=build_invalid_result(call, why))

    async def judge(self, wanted: ToolCall) -> Allow | Deny | NeedsApproval:
        """The same without a person, for a call that an agent runs itself and may have a better way to ask about.

        What comes back to `decide` as an approval of that very call is not shown to the guards again (`NeedsApproval`).
        """
        try:
            return await self._judge(copy_call(wanted))
        except RecursionError:
            return Deny("its arguments are nested too deep")

    async def _judge(self, call: ToolCall) -> Allow | Deny | NeedsApproval:
        situation = self._situation("")
        if (refused := self._refuse_early(call, situation)) is not None:
            return _get_denial(refused)
        verdict = await self._host.intercept("tool_call", call)
        if isinstance(verdict, Refuse):
            return Deny(verdict.reason)
        if isinstance(verdict, Rewrite):
            call = copy_call(verdict.value)
        judged = self._approver.policy.judge(call, situation)
        if judged.decision == "deny":
            return Deny(judged.why)
        if judged.decision == "allow":
            return Allow(call.arguments)
        shown = copy_call(call)
        self._seen[id(shown.arguments)] = (shown.arguments, call)  # it holds the arguments, so nothing else gets their id
        if len(self._seen) > _SEEN:
            self._seen.popitem(last=False)
        return NeedsApproval(shown)

    def _refuse_early(self, call: ToolCall, situation: CallContext) -> CallDecision | None:
        """What needs nobody to look at it."""
        if down := self._host.not_guarded():  # while a guard is down nothing runs, whatever it would have said to this
            return _block(call, Refuse(f"{call.name} refused: {down}"))
        if (forbidden := self._approver.policy.find_denial(call, situation)) is not None:
            return _deny(call, ApprovalOutcome(decision=Deny(forbidden.why), by="policy", why=forbidden.why))
        return None

    async def _decide(self, wanted: ToolCall | Approval) -> CallDecision:
        approval = wanted if isinstance(wanted, Approval) else None
        call = wanted.call if isinstance(wanted, Approval) else wanted
        _, seen = self._seen.pop(id(call.arguments), (None, None))
        call = seen or copy_call(call)
        tool = self._host.table.tools.get(call.name) if call.native is None else None  # an agent's own is nobody's of ours
        situation = self._situation("" if tool is None or isinstance(tool.owner, BuiltInOwner) else tool.owner.id)
        if (refused := self._refuse_early(call, situation)) is not None:
            return refused
        approved: ToolCall | None = None  # what a person has made of it and said yes to
        for _ in range(_ROUNDS):
            verdict = None if call is seen else await self._host.intercept("tool_call", call)
            if isinstance(verdict, Refuse):
                return _block(call, verdict)
            if isinstance(verdict, Rewrite):
                call, approved = copy_call(verdict.value), None
            if tool is not None and (problem := tool.check(call.arguments)):  # nobody is asked about what cannot run
                return CallDecision(call=call, decision=Deny(problem), by="schema", instead=build_invalid_result(call, problem))
            outside = frozenset(self._leads_outside(call)) if _is_builtin(tool) else frozenset()
            if approved is not None:  # the guards have seen it too, and left it as it is
                return CallDecision(call=call, decision=Allow(call.arguments), by="person", owner=situation.owner, outside=outside)
            ruling = await self._apply_policy(approval, call, situation, outside)
            if not isinstance(ruling.decision, Allow):
                return _deny(call, ruling)
            if ruling.decision.arguments is msgspec.UNSET or ruling.decision.arguments == call.arguments:
                allowed = outside if ruling.by == "person" else self._filter_paths(call, situation, outside)
                yes = msgspec.structs.replace(ruling.decision, arguments=call.arguments)
                return CallDecision(call=call, decision=yes, by=ruling.by, owner=situation.owner, outside=allowed)
            call = approved = copy_call(msgspec.structs.replace(call, arguments=ruling.decision.arguments))
        why = f"{call.name} was changed again and again, by a person and by a guest in turn"
        return CallDecision(call=call, decision=Deny(why), by="guest")

    async def ask(self, request: Approval | Question) -> Decision:
        """A question, or an approval that is a person's alone to give. Whoever raised it tells that it is asked."""
        return (await self._approver.ask(request, self._situation(""))).decision

    async def _apply_policy(
        self, approval: Approval | None, call: ToolCall, situation: CallContext, outside: frozenset[str]
    ) -> ApprovalOutcome:
        """What the policy says of the final call, or a person who is asked about it."""
        paths = sorted(outside)
        leads = f"it leads outside the working directory: {', '.join(paths)}" if paths else ""
        if approval is not None:
            ruling = await self._approver.decide(msgspec.structs.replace(approval, call=call), situation)
            self._report_no_person(approval, ruling)
            return ruling
        self._count += 1
        request = Approval(
            id=f"call-{self._count}",  # the model chooses the ids of its calls, so those tell nothing apart
            agent=situation.agent,
            session=situation.session,
            call=call,
            reason=leads,
            reason_type="path" if paths else "",
            blocked_path=paths[0] if paths else "",
        )
        asked: list[Approval | Question] = []

        def tell(request: Approval | Question) -> None:
            self._observer.report_request(request)
            asked.append(request)

        self.asking += 1
        try:
            return await self._ask_person(request, situation, tell, asked)
        finally:
            self.asking -= 1

    async def _ask_person(
        self,
        request: Approval,
        situation: CallContext,
        tell: Callable[[Approval | Question], None],
        asked: list[Approval | Question],
    ) -> ApprovalOutcome:
        try:
            ruling = await self._approver.decide(request, situation, asked=tell)
        except BaseException:
            if asked:
                self._report_decision(asked[0], Deny("nobody waits for it any more"), "nobody waits for it any more")
            raise
        self._report_no_person(request, ruling)
        if asked and (failure := self._report_decision(asked[0], ruling.decision, ruling.why if ruling.by in _NOBODY else "")):
            return ApprovalOutcome(decision=Deny(failure), by="not written", why=failure)
        return ruling

    def _report_no_person(self, request: Approval, ruling: ApprovalOutcome) -> None:
        if ruling.by == "nobody":
            self._observer.report_no_person(request, ruling.error.hint if ruling.error is not None else "")

    def _report_decision(self, request: Approval | Question, decision: Decision, withdrawn: str) -> str:
        """Why its end could not be kept, or ""."""
        try:
            self._observer.report_decision(request, decision, withdrawn=withdrawn)
        except SeraiError as error:
            log.error("what was decided of %s could not be kept: %s", request.id, error)
            return str(error)
        return ""

    def _filter_paths(self, call: ToolCall, situation: CallContext, outside: frozenset[str]) -> frozenset[str]:
        """Those of the paths that the rules let this call reach when they are written out: links may have changed meanwhile."""
        return frozenset(path for path in outside if self._allows_path(call, situation, path))

    def _allows_path(self, call: ToolCall, situation: CallContext, path: str) -> bool:
        spelt = msgspec.structs.replace(call, arguments={**call.arguments, "path": path})
        return self._approver.policy.judge(spelt, situation).decision == "allow"


def copy_call(call: ToolCall) -> ToolCall:
    """With arguments that nobody else holds: what is judged is what runs, whatever others do to theirs meanwhile."""
    return msgspec.structs.replace(call, arguments=_copy_value(call.arguments))


def _copy_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy_value(item) for key, item in value.items()}
    return [_copy_value(item) for item in value] if isinstance(value, list | tuple) else value


def _get_denial(decided: CallDecision) -> Deny:
    assert isinstance(decided.decision, Deny)
    return decided.decision


def _is_builtin(tool: RegisteredTool | None) -> bool:
    return tool is not None and isinstance(tool.owner, BuiltInOwner)


def _deny(call: ToolCall, ruling: ApprovalOutcome) -> CallDecision:
    assert isinstance(ruling.decision, Deny)
    return CallDecision(call=call, decision=ruling.decision, by=ruling.by)


def _block(call: ToolCall, verdict: Refuse) -> CallDecision:
    instead = ToolResult.error(verdict.reason, code="BLOCKED") if verdict.is_error else ToolResult.of(verdict.reason)
    return CallDecision(call=call, decision=Deny(verdict.reason), by="guest", instead=instead)
