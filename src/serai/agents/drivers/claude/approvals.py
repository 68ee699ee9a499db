"""What the agent asks of us, each request in a task of its own, so that several may be open and none delays the reader (spec
agents 2.8).

With a `judge` every call comes by here twice: as a hook callback, where guards and rules decide whatever Claude's own rules would
allow, and as a permission request, because the hook always says "ask": after an "allow" another hook could have changed the call
to one that no guard has seen (seen with 2.1.325). The request is answered with what was judged: yes at once where the judge has
said yes and Claude has no reason of its own to ask, else a person is asked. Without a judge only Claude's own requests come by.
Whatever goes wrong on the way is a no (design rule 7).

`GuardCheck` says whether guards hold, from what the program reports of its hooks and from its version (spec agents 2.7).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Mapping
from copy import deepcopy
from secrets import token_hex
from typing import Any, NamedTuple, Protocol

import msgspec

from serai.agents.driver import JudgeCall, NeedsApproval
from serai.agents.drivers.claude.connection import ClaudeConnection
from serai.agents.drivers.claude.installation import is_newer
from serai.agents.drivers.claude.options import ClaudeOptions
from serai.agents.drivers.claude.turns import EventSequencer
from serai.agents.event_hub import EventHub
from serai.dialects.claude import messages
from serai.dialects.claude.events import CanUseTool, Elicitation, Event, HookCallback, Withdrawn
from serai.dialects.claude.neutral import FrameTranslator
from serai.dialects.claude.tools import ToolMap
from serai.errors import AgentFailed, NoApproval
from serai.model.actions import Notice
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question, parse_questions
from serai.model.events import NoticeEvent
from serai.model.tools import ToolCall
from serai.plain_text import strip_text

log = logging.getLogger("serai.agents")

HOOK = "guard"  # the callback id of our one hook
DENIED = "User denied this request"  # what the model is told where nobody said more (spec agents 2.8)
_QUESTION = "AskUserQuestion"
_MOST = 1000
_LOOKING = frozenset({"read", "grep", "find"})
_PERSONAL = frozenset({_QUESTION, "ExitPlanMode"})  # they come as permission requests whatever the hook says (seen with 2.1.325)


class ApprovalContext(Protocol):
    """What is known of the session. `metadata` of the options is stamped on all that is asked."""

    cwd: str
    judge: JudgeCall | None
    options: ClaudeOptions


class _Judged(NamedTuple):
    """What the judge made of a call, whether it said yes to that, and why a person is to be asked all the same."""

    call: ToolCall
    allowed: bool
    reason: str

    def is_settled(self, *, by_us: bool) -> bool:
        """Nobody else wants it asked."""
        personal = self.call.native is None or self.call.native.name in _PERSONAL
        return self.allowed and by_us and not self.reason and not personal


class ClaudeApprovals:
    """The open requests of one session."""

    def __init__(
        self,
        hub: EventHub,
        connection: ClaudeConnection,
        translator: FrameTranslator,
        tools: ToolMap,
        sequencer: EventSequencer,
        context: ApprovalContext,
    ) -> None:
        self._hub = hub
        self._connection = connection
        self._translator = translator
        self._tools = tools
        self._sequencer = sequencer
        self._judge = context.judge
        self._cwd = context.cwd
        self._routing = dict(context.options.metadata)
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by the id of the request
        self._judged: dict[tuple[str, str], _Judged] = {}  # by id and tool: a model may give two calls one id
        self._mark = f"serai {token_hex(8)}"  # the reason that our hook gives: nobody else's
        self.denied: Deny | None = None  # somebody said no and that the turn should end

    @property
    def has_open_requests(self) -> bool:
        return bool(self._tasks)

    def handle(self, what: Event) -> None:
        match what:
            case CanUseTool(id=id):
                self.start(id, self._handle_permission(what), "an approval")
            case HookCallback(id=id):
                self.start(id, self._handle_hook(what), "a hook callback")
            case Elicitation(id=id):  # nobody is asked on behalf of its servers yet, and it goes on without
                declined = self._send(self._connection.host_side.reply, id, {"action": "decline"}, what="an answer")
                self.start(id, declined, "an elicitation")
            case Withdrawn(id=id):
                self._withdraw(id)

    def start(self, id: str, work: Coroutine[Any, Any, None], what: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"{what} of claude")
        self._tasks[id] = task
        task.add_done_callback(lambda _: self._tasks.pop(id, None))

    def _withdraw(self, id: str) -> None:
        """It wants no answer any more."""
        self._hub.withdraw(id, "the agent has withdrawn it")
        if (task := self._tasks.get(id)) is not None:
            task.cancel()

    def end_turn(self) -> None:
        self.denied = None

    def cancel_all(self) -> None:
        """Whoever asked is gone: nobody is asked on its behalf any more."""
        for task in list(self._tasks.values()):
            task.cancel()

    async def close(self, patience: float) -> None:
        self.cancel_all()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=patience)

    # -- every call, before Claude's own rules: the PreToolUse hook is asked also about calls that those rules would allow

    async def _handle_hook(self, heard: HookCallback) -> None:
        host_side = self._connection.host_side
        try:
            output = await self._judge_hook(heard)
        except (Exception, asyncio.CancelledError) as error:  # who cannot say yes has not said it
            if _is_ending():
                raise
            log.exception("a call of claude could not be judged")
            output = _build_denial(f"it could not be judged: {str(error) or type(error).__name__}")
        await self._send(
            host_side.reply, heard.id, {"hookSpecificOutput": {"hookEventName": "PreToolUse", **output}}, what="a verdict"
        )

    async def _judge_hook(self, heard: HookCallback) -> dict[str, Any]:
        name, given = heard.input.get("tool_name"), heard.input.get("tool_input")
        if heard.callback_id != HOOK or self._judge is None or not isinstance(name, str) or not isinstance(given, dict):
            return _build_denial("it could not be read: the hook's input has no tool")
        call = self._to_call(name, given, heard.tool_use_id)
        if self._is_serai(heard.input.get("mcp_server"), name):
            return {"permissionDecision": "allow"}  # a tool of ours is decided once, where it runs
        await self._sequencer.drain()  # whoever is asked knows what was said before
        verdict = await self._judge(call)
        if isinstance(verdict, Deny):
            return _build_denial(verdict.why or DENIED)
        final = call if isinstance(verdict, Allow) and verdict.arguments is msgspec.UNSET else _apply_verdict(call, verdict)
        given = self._to_native(final)
        self._judged[call.id, name] = _Judged(final, isinstance(verdict, Allow), self._find_ask_reason(heard.input, final))
        if len(self._judged) > _MOST:  # of calls that never came back: what another hook denied
            del self._judged[next(iter(self._judged))]
        return {"permissionDecision": "ask", "permissionDecisionReason": self._mark, "updatedInput": given}

    def _find_ask_reason(self, said: Mapping[str, Any], call: ToolCall) -> str:
        """While it plans our asking hides its own, about all that is not just looking. And rules know no other folder than ours."""
        cwd = said.get("cwd")
        if isinstance(cwd, str) and cwd and os.path.realpath(cwd) != self._cwd:
            return f"it works in another folder by now: {strip_text(cwd)}"
        return "it plans" if said.get("permission_mode") == "plan" and call.name not in _LOOKING else ""

    # -- what Claude asks itself, or our hook has it ask

    async def _handle_permission(self, heard: CanUseTool) -> None:
        try:
            await self._sequencer.drain()
            await (self._handle_question(heard) if heard.request.tool_name == _QUESTION else self._handle_approval(heard))
        except Exception as error:
            log.exception("a request of claude could not be answered")
            await self._deny(heard, Deny(f"it could not be answered: {error}"))

    async def _handle_approval(self, heard: CanUseTool) -> None:
        request = heard.request
        if self._judge is not None and self._is_serai(request.mcp_server, request.tool_name):
            await self._send(self._connection.host_side.allow, heard.id, what="a yes")
            return
        judged = self._judged.pop((request.tool_use_id, request.tool_name), None)
        call = self._to_call(request.tool_name, request.input, request.tool_use_id) if judged is None else judged.call
        by_us = request.decision_reason_type == "hook" and request.decision_reason == self._mark
        if judged is not None and judged.is_settled(by_us=by_us):
            await self._allow(heard, call, Allow())
            return
        kept = _copy_call(call)
        asked = _build_approval(heard, call, judged, by_us=by_us)
        decision = await self._ask(asked, request)
        if isinstance(decision, Allow):
            await self._allow(heard, kept, decision)
        else:
            await self._deny(heard, decision)

    async def _allow(self, heard: CanUseTool, call: ToolCall, decision: Allow) -> None:
        final = call if decision.arguments is msgspec.UNSET else msgspec.structs.replace(call, arguments=decision.arguments)
        try:
            given = self._to_native(final)
        except ValueError as error:
            await self._deny(heard, Deny(f"it cannot be changed like that: {error}"))
            return
        self._sequencer.emit(self._translator.start(final))
        permissions = () if self._judge is not None else _pick_suggestions(heard.request, decision)
        await self._send(self._connection.host_side.allow, heard.id, input=given, permissions=permissions, what="a yes")

    async def _deny(self, heard: CanUseTool, decision: Decision) -> None:
        why = decision.why if isinstance(decision, Deny) else ""
        interrupt = isinstance(decision, Deny) and decision.interrupt
        if interrupt and isinstance(decision, Deny):
            self.denied = self.denied or decision
        await self._send(self._connection.host_side.deny, heard.id, why or DENIED, interrupt=interrupt, what="a no")

    async def _handle_question(self, heard: CanUseTool) -> None:
        """A question has an answer of its own; it goes back by the text of each question (spec agents 2.9)."""
        request = heard.request
        judged = self._judged.get((request.tool_use_id, request.tool_name))
        given = request.input if judged is None else self._to_native(judged.call)
        items = parse_questions(given)
        if not items:
            await self._handle_approval(heard)
            return
        native = msgspec.Raw(heard.line)
        question = Question(id=heard.id, items=items, tool=request.tool_name, call_id=request.tool_use_id, native=native)
        decision = await self._ask(question, request)
        if isinstance(decision, Answer) and decision.answers:
            await self._send(
                self._connection.host_side.allow, heard.id, input={**given, "answers": _format_answers(decision)}, what="an answer"
            )
        else:
            await self._deny(heard, decision if isinstance(decision, Deny) else Deny("the question was not answered"))

    # -- inside

    async def _ask(self, ask: Approval | Question, request: messages.CanUseTool) -> Decision:
        ask = msgspec.structs.replace(ask, lane=self._translator.find_lane(request.tool_use_id), routing=self._routing)
        return await self._hub.ask(ask, outlives=bool(request.agent_id))

    async def _send(self, make: Any, id: str, *given: Any, what: str, **named: Any) -> None:
        try:
            frame: bytes = make(id, *given, **named)
        except NoApproval:  # it was withdrawn in the meantime: nothing is written (spec agents 5.3 Z2)
            return
        if not await self._connection.deliver(frame, what):
            self._sequencer.emit([NoticeEvent(notice=Notice(f"{what} was not delivered: the agent is gone", "warn", "serai"))])

    def _to_call(self, name: str, given: dict[str, Any], id: str) -> ToolCall:
        """What the CLI says now: it has made paths absolute that the model had not."""
        return self._tools.build_call(id, name, given)

    def _to_native(self, call: ToolCall) -> dict[str, Any]:
        assert call.native is not None
        given = self._tools.to_native(call.native, call.arguments)
        assert isinstance(given, dict)
        return given

    def _is_serai(self, server: object, name: str) -> bool:
        """Ours, by the word of the CLI as well: a project may call a server of its own by our name."""
        return isinstance(server, dict) and server.get("source") == "sdk" and self._tools.is_ours(name)


def _is_ending() -> bool:
    """Whether this very task was cancelled, and not somebody whom it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _format_answers(decision: Answer) -> dict[str, str]:
    """By the text of each question; of several labels one text (spec agents 2.9)."""
    lists = {text: value if isinstance(value, list | tuple) else [value] for text, value in decision.answers.items()}
    return {text: ", ".join(map(str, values)) for text, values in lists.items()}


def _apply_verdict(call: ToolCall, verdict: Allow | NeedsApproval) -> ToolCall:
    return verdict.call if isinstance(verdict, NeedsApproval) else msgspec.structs.replace(call, arguments=verdict.arguments)


def _build_denial(why: str) -> dict[str, Any]:
    return {"permissionDecision": "deny", "permissionDecisionReason": why}


def _copy_call(call: ToolCall) -> ToolCall:
    """What runs is what was asked about, whatever somebody does with the arguments that they are shown (spec agents 7.20)."""
    assert call.native is not None
    native = msgspec.structs.replace(call.native, arguments=deepcopy(call.native.arguments))
    return msgspec.structs.replace(call, arguments=deepcopy(call.arguments), native=native)


def _build_approval(heard: CanUseTool, call: ToolCall, judged: _Judged | None, *, by_us: bool) -> Approval:
    request = heard.request
    own = judged.reason if judged is not None else ""
    return Approval(
        id=heard.id,
        call=call,
        title=strip_text(request.title),
        display_name=strip_text(request.display_name),
        description=strip_text(request.description),
        reason=own if by_us else strip_text(request.decision_reason),
        reason_type=("mode" if own else "") if by_us else request.decision_reason_type,
        blocked_path=request.blocked_path,
        suggestions=tuple(request.permission_suggestions),
        needs_person=_is_personal(request, judged),
        default_no=request.default_to_no,
        no_always=request.suppress_always_allow_rule,
        native=msgspec.Raw(heard.line),
    )


def _is_personal(request: messages.CanUseTool, judged: _Judged | None) -> bool:
    """What rules allowed and Claude asks about all the same, such as a change while it plans, is not theirs to wave through."""
    allowed = judged is not None and (judged.allowed or bool(judged.reason))
    return allowed or request.requires_user_interaction or request.decision_reason_type == "mode"


# Where Claude keeps what it is to remember, by how long we are told to.
_DESTINATIONS = {"session": "session", "project": "localSettings", "always": "userSettings"}


def _pick_suggestions(request: messages.CanUseTool, decision: Allow) -> list[dict[str, Any]]:
    """Its own suggestions, for as long as we were told and no longer. Under a policy of ours that remembers, not Claude."""
    destination = _DESTINATIONS.get(decision.remember)
    if destination is None or request.suppress_always_allow_rule:
        return []
    known = (one for one in request.permission_suggestions if isinstance(one, dict))
    return [{**one, "destination": destination} for one in known if one.get("behavior", "allow") == "allow"]


GUARDED = "2.1.197"  # the oldest that was seen to ask about every call; newer ones tell so themselves


class GuardCheck:
    """Of one process. `needed`: somebody must be asked about every call. Nothing may run otherwise (design rule 8)."""

    def __init__(self, needed: bool) -> None:
        self.needed = needed
        self.version = ""
        self._told = False  # that our hook is there

    def check_reply(self, reply: Mapping[str, Any]) -> AgentFailed | None:
        """What it answered to `initialize`; why guards would not hold, if it tells."""
        self.version = str(reply.get("claude_code_version", ""))
        self._told = reply.get("hooks_applied") is True
        return self._make_error("it does not take our hook") if reply.get("hooks_applied") is False else None

    def check_refusal(self, why: str) -> AgentFailed | None:
        """It would have nothing of `initialize`."""
        return self._make_error(why)

    def check_version(self, version: str) -> AgentFailed | None:
        """It is about to ask its model, and tells its version."""
        self.version = version or self.version
        if self._told or not is_newer(GUARDED, self.version):
            return None
        return self._make_error(f"its version {self.version or 'unknown'} does not ask before each call")

    def _make_error(self, why: str) -> AgentFailed | None:
        if not self.needed:
            return None
        hint = f"update Claude Code: {GUARDED} or newer"
        return AgentFailed(f"guards would not hold: {why}", kind="not_guarded", who="claude", hint=hint)
