"""The seed's permission types, with its JSON names, and its permission handler on Serai's policy (spec agents 1.16).

There is no second algorithm: the blacklist is a deny rule, the whitelist a remembered allow, the cache our remembered decisions,
the pending table our pending approvals. The default mode is `manual`; the seed's `auto` has to be chosen (design rule 7).
Durations are nanoseconds, as in the seed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from serai.errors import NoApproval, SeraiError
from serai.limits import Limits
from serai.model.approvals import (
    Allow,
    Answer,
    Approval,
    Decision,
    Deny,
    Question,
    QuestionItem,
    QuestionOption,
    Remember,
    parse_questions,
)
from serai.model.surface import HeadlessSurface, Surface
from serai.model.tools import ToolCall
from serai.policy.approver import ApprovalOutcome, Approver
from serai.policy.call_facts import CallContext
from serai.policy.decision_store import DecisionStore
from serai.policy.engine import Policy, RememberedDecision
from serai.policy.patterns import escape_glob
from serai.policy.rules import Rule, Rules

SECOND = 1_000_000_000
_ZERO = "0001-01-01T00:00:00Z"  # what the seed's language writes for a time that was never set


class PermissionConfig(msgspec.Struct, kw_only=True):
    """Every field is written, as the seed does; its empty lists come as null. `timeout` and `decision_duration` are nanoseconds."""

    default_mode: str = "manual"
    timeout: int = 3600 * SECOND
    enable_whitelist: bool = False
    whitelist: list[str] | None = []
    blacklist: list[str] | None = []
    remember_decisions: bool = True
    decision_duration: int = 24 * 3600 * SECOND


class _Wire(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Empty optional fields are left out; those that the seed always writes are required, or have a value of their own."""


class PermissionRequest(_Wire, kw_only=True):
    request_id: str
    agent_type: str
    tool_name: str
    input: dict[str, Any] | None
    timestamp: str = msgspec.field(default_factory=lambda: _ZERO)
    reason: str = ""
    session_id: str = ""
    bot_uuid: str = ""
    chat_id: str = ""
    platform: str = ""


class PermissionResponse(_Wire, kw_only=True):
    request_id: str
    approved: bool
    timestamp: str = msgspec.field(default_factory=lambda: _ZERO)
    reason: str = ""


class PermissionResult(_Wire, kw_only=True):
    """`updated_input` None: as it was asked. An empty one is written: it means other arguments, namely none."""

    approved: bool
    reason: str = ""
    updated_input: dict[str, Any] | None = None
    remember: bool = False


class AskRequest(_Wire, kw_only=True):
    """`type` is permission, question, confirmation or text_input."""

    id: str
    type: str
    agent_type: str
    platform: str
    chat_id: str
    bot_uuid: str
    session_id: str = ""
    tool_name: str = ""
    input: dict[str, Any] = {}
    message: str = ""
    call_id: str = ""
    reason: str = ""
    metadata: dict[str, Any] = {}


class AskResult(_Wire, kw_only=True):
    id: str
    approved: bool = False
    response: str = ""
    selection: dict[str, Any] = {}
    remember: bool = False
    reason: str = ""
    updated_input: dict[str, Any] = {}


_DAY = 86400
_ROUTING = ("bot_uuid", "chat_id", "platform")


class PermissionHandler:
    """Decides requests by configuration, else by a surface, else by whoever submits a result.

    `table`: without a surface a request waits for `submit_result`; with neither it is denied at once (design rule 7).
    """

    def __init__(
        self,
        config: PermissionConfig | None = None,
        *,
        surface: Surface | None = None,
        table: bool = False,
        decisions: DecisionStore | None = None,
        cwd: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config or PermissionConfig()
        self._cwd = cwd or os.getcwd()
        self._kept = decisions or DecisionStore.in_memory(clock)
        self._owned = decisions is None
        self._whitelist = set(self.config.whitelist or ())
        self._requests: list[PermissionRequest | AskRequest] = []
        self._submitted: dict[str, AskResult] = {}  # to questions, until whoever asks has it
        rules = Rules(
            rules=tuple(
                Rule(id=f"blacklist.{tool}", decide="deny", tool=(escape_glob(tool),), because=f"Tool '{tool}' is blacklisted")
                for tool in self.config.blacklist or ()
            ),
            mode=self.config.default_mode,
        )
        limits = Limits().but(approval=self.config.timeout / SECOND, remember=self.config.decision_duration / SECOND / _DAY)
        self._policy = Policy(rules, memory=self, clock=clock)
        self._approver = Approver(
            self._policy,
            surface or HeadlessSurface(),
            decisions=self._kept,
            limits=limits,
            park=table,
            remembers=self.config.remember_decisions,
        )

    # -- what is remembered: the engine asks here ---------------------------------------------------------------------------------

    def list_decisions(self) -> tuple[RememberedDecision, ...]:
        """The whitelist, then the cache, if there is to be one. The whitelist beats what is cached."""
        allowed = [_build_whitelist_rule(tool) for tool in sorted(self._whitelist)]
        listed = tuple(RememberedDecision(rule.id, rule, "always") for rule in allowed)
        if not self.config.remember_decisions:
            return listed
        tools = {rule.tool for rule in allowed}
        return listed + tuple(one for one in self._kept.list_decisions() if one.rule.tool not in tools)

    @property
    def whitelist(self) -> frozenset[str]:
        return frozenset(self._whitelist)

    # -- modes --------------------------------------------------------------------------------------------------------------------

    def set_mode(self, scope: str, mode: str | None) -> None:
        self._policy.set_mode(scope, mode)

    def get_mode(self, scope: str) -> str:
        return self._policy.get_mode(scope)

    # -- deciding -----------------------------------------------------------------------------------------------------------------

    async def check(
        self, request: PermissionRequest, *, timeout: float | None = None
    ) -> tuple[PermissionResult, SeraiError | None]:
        """May this call run? A deny that nobody chose comes with the error that says what happened."""
        routing = {name: stamp for name in _ROUTING if (stamp := getattr(request, name))}
        call = ToolCall(request.tool_name, request.input or {}, id=request.request_id, asker=request.agent_type)
        approval = Approval(
            id=request.request_id,
            agent=request.agent_type,
            session=request.session_id,
            call=call,
            reason=request.reason,
            routing=routing,
        )
        with self._track_request(request):
            ruling = await self._approver.decide(
                approval, self._build_context(request.agent_type, request.session_id), timeout=timeout
            )
        return self._build_result(ruling, request.tool_name), ruling.error

    async def ask(self, request: AskRequest, *, timeout: float | None = None) -> tuple[AskResult, SeraiError | None]:
        """A permission like `check`; anything else is put to a person, whatever the mode."""
        if request.type == "permission" and request.tool_name:
            asked = PermissionRequest(
                request_id=request.id,
                agent_type=request.agent_type,
                tool_name=request.tool_name,
                input=request.input,
                reason=request.reason,
                session_id=request.session_id,
                **{name: getattr(request, name) for name in _ROUTING},
            )
            result, error = await self.check(asked, timeout=timeout)
            changed = result.updated_input or {}
            answer = AskResult(id=request.id, approved=result.approved, reason=result.reason, updated_input=changed)
            return msgspec.structs.replace(answer, remember=result.remember), error
        question = Question(
            id=request.id,
            agent=request.agent_type,
            session=request.session_id,
            items=_build_items(request),
            tool=request.tool_name,
            call_id=request.call_id or request.id,
            routing={name: stamp for name in _ROUTING if (stamp := getattr(request, name))},
        )
        try:
            with self._track_request(request):
                ruling = await self._approver.ask(
                    question, self._build_context(request.agent_type, request.session_id), timeout=timeout
                )
        finally:
            said = self._submitted.pop(request.id, None)
        return _build_ask_result(request, ruling, said if ruling.by == "person" else None), ruling.error

    # -- the pending table --------------------------------------------------------------------------------------------------------

    def pending(self) -> list[PermissionRequest | AskRequest]:
        """What waits for `submit_result`."""
        waiting = {asked.id for asked in self._approver.waiting}
        return [request for request in self._requests if _get_id(request) in waiting]

    async def submit_result(self, request_id: str, result: PermissionResult | AskResult) -> None:
        """Answer it. An id that is not known, or was answered, is a `NoApproval`."""
        asked = next((one for one in self._approver.waiting if one.id == request_id), None)
        request = next((one for one in self._requests if _get_id(one) == request_id), None)
        if not isinstance(asked, Question) or not isinstance(request, AskRequest):
            await self._approver.answer(request_id, _build_decision(result, session=asked.session if asked is not None else ""))
            return
        said = result if isinstance(result, AskResult) else AskResult(id=request_id, approved=result.approved, reason=result.reason)
        await self._approver.answer(request_id, _build_answer(request, asked, said))
        self._submitted[request_id] = said  # nothing is waited for in between: it is there before whoever asks goes on

    async def cancel(self, request_id: str) -> bool:
        """Nobody waits for it any more: it is denied with `Context cancelled`."""
        return await self._approver.withdraw(request_id)

    async def close(self) -> None:
        await self._approver.close()
        if self._owned:
            self._kept.close()

    # -- inside -------------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _track_request(self, request: PermissionRequest | AskRequest) -> Iterator[None]:
        """Ids are the agents' own: two may have the same."""
        self._requests.append(request)
        try:
            yield
        finally:
            self._requests = [one for one in self._requests if one is not request]

    def _build_context(self, agent: str, session: str) -> CallContext:
        return CallContext(cwd=self._cwd, session=session, agent=agent)

    def _build_result(self, ruling: ApprovalOutcome, tool: str) -> PermissionResult:
        decision = ruling.decision
        judged = ruling.judgement
        if isinstance(decision, Allow):
            changed = None if decision.arguments is msgspec.UNSET else decision.arguments
            remember = decision.remember != "once"
            if remember and self.config.enable_whitelist:
                self._whitelist.add(tool)
            reason = judged.why if ruling.by == "policy" and judged is not None else ""
            return PermissionResult(approved=True, reason=reason, updated_input=changed, remember=remember)
        rule = judged.rule if judged is not None and judged.decision == "deny" else None
        return PermissionResult(approved=False, reason=rule.because if rule is not None else ruling.why)


def _build_whitelist_rule(tool: str) -> Rule:
    """Wherever it would run: a whitelist is about the tool alone."""
    return Rule(id=f"whitelist.{tool}", decide="allow", tool=(escape_glob(tool),), cwd=("/**",))


def _get_id(request: PermissionRequest | AskRequest) -> str:
    return request.id if isinstance(request, AskRequest) else request.request_id


def _build_decision(result: PermissionResult | AskResult, *, session: str) -> Decision:
    """What is to be remembered is so for the session, or where none has a name, for the folder it runs in."""
    scope: Remember = "once" if not result.remember else "session" if session else "project"
    if not result.approved:
        return Deny(result.reason, remember=scope)
    unchanged = result.updated_input is None or (isinstance(result, AskResult) and not result.updated_input)
    return Allow(msgspec.UNSET if unchanged else result.updated_input, remember=scope)


def _build_answer(request: AskRequest, question: Question, result: AskResult) -> Decision:
    """A response is the answer to the one thing that was asked, a selection has the answer to each."""
    if not result.approved:
        return Deny(result.reason or result.response)
    if result.selection:
        return Answer(result.selection)
    response = "Yes" if _is_yes_or_no(request) else result.response
    if not response:
        raise NoApproval("that is no answer to it", id=request.id, hint="it is a question: say it in `response` or `selection`")
    return Answer({question.items[0].text: response})


def _is_yes_or_no(request: AskRequest) -> bool:
    """A permission without a tool is one too."""
    return request.type in ("confirmation", "permission")


def _build_items(request: AskRequest) -> tuple[QuestionItem, ...]:
    if items := parse_questions(request.input):
        return items
    choices = (QuestionOption("Yes"), QuestionOption("No")) if _is_yes_or_no(request) else ()
    return (QuestionItem(request.message or request.reason, choices=choices),)


def _build_ask_result(request: AskRequest, ruling: ApprovalOutcome, said: AskResult | None) -> AskResult:
    """What was submitted comes back as it is; an answer of a person at a surface is in the words of the question."""
    answers = ruling.decision.answers if isinstance(ruling.decision, Answer) else {}
    first = next(iter(answers.values()), "")
    approved = bool(answers) and (not _is_yes_or_no(request) or str(first).casefold() == "yes")
    response = first if isinstance(first, str) else ""
    result = AskResult(id=request.id, approved=approved, response=response, selection=answers, reason=ruling.why)
    if said is None:
        return result
    selection = said.selection or result.selection
    return msgspec.structs.replace(said, id=request.id, response=said.response or response, selection=selection)
