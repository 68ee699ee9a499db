"""What an agent of the seed asks: each request in a task of its own, answered in the words of its transport (spec agents 1.9)."""

from __future__ import annotations

import asyncio
import copy
import logging

import msgspec

from serai.agents.agentboot.codec import Encoder
from serai.agents.agentboot.errors import NotDelivered, ProtocolError, UnknownRequestId
from serai.agents.agentboot.roles import AgentTransport
from serai.agents.agentboot.stream import ApprovalRequestEvent, ApprovalResponse, AskRequestEvent, AskResponse, ControlResponse
from serai.agents.stage import Stage
from serai.errors import Closed, NoApproval
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question, QuestionItem, parse_questions
from serai.model.tools import NativeCall, ToolCall

__all__ = ["Asking", "decision_of", "must_fit", "response_of"]

log = logging.getLogger("serai.agents")

Request = ApprovalRequestEvent | AskRequestEvent


class Asking:
    """The requests of one execution."""

    def __init__(
        self, agent: str, stage: Stage, transport: AgentTransport, encoder: Encoder, session_id: str, routing: dict[str, str]
    ) -> None:
        self._agent = agent
        self._stage = stage
        self._transport = transport
        self._encoder = encoder
        self._stamps = {"agent_type": agent, "session_id": session_id, **routing}
        self._seen: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._responses: dict[str, tuple[ControlResponse, asyncio.Future[None]]] = {}  # given, and not written yet

    async def ask(self, request: Request) -> None:
        """Have it asked, once. It is told before this returns, so that it keeps its place among the messages."""
        if request.id in self._seen:
            log.info("%s: its request %r came again", self._agent, request.id)
            return
        self._seen.add(request.id)
        self._tasks[request.id] = asyncio.create_task(self._put(request), name=f"a request of {self._agent}")
        await asyncio.sleep(0)

    def withdraw(self, id: str, reason: str) -> None:
        self._stage.withdraw(id, reason or "the agent has withdrawn it")

    async def respond(self, id: str, response: ControlResponse) -> None:
        """Returns when the answer is written."""
        asked = self._stage.pending.get(id)
        if asked is None or asked.answered:
            raise UnknownRequestId(who=self._agent, id=str(id))
        must_fit(asked, response)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._responses[id] = response, written
        try:
            await self._stage.answer(id, decision_of(asked, response))
        except (NoApproval, Closed):
            self._responses.pop(id, None)
            raise UnknownRequestId(who=self._agent, id=str(id)) from None
        await asyncio.shield(written)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # -- inside

    async def _put(self, request: Request) -> None:
        error: Exception | None = None
        try:
            decision = await self._stage.ask(self._asked(request))
            given, _ = self._responses.get(request.id, (None, None))
            await self._encoder.encode(self._frame(request, given or response_of(request, decision)))
        except asyncio.CancelledError:
            error = NotDelivered("the run ended before the answer was written", who=self._agent, id=str(request.id))
            raise
        except Exception as failure:  # the run's own end says more than a broken pipe
            log.warning("%s: the answer to %r was not delivered: %s", self._agent, request.id, failure)
            error = NotDelivered(f"the answer was not delivered: {failure}", who=self._agent, id=str(request.id))
            error.__cause__ = failure
        finally:
            self._tasks.pop(request.id, None)
            _, written = self._responses.pop(request.id, (None, None))
            if written is not None and not written.done():
                written.set_exception(error) if error is not None else written.set_result(None)

    def _frame(self, request: Request, response: ControlResponse) -> object:
        frame: object = self._transport.encode_control_response(request.id, response, request.input)
        if frame is None:
            raise ProtocolError("transport produced nil control response", agent=self._agent)
        return frame

    def _asked(self, request: Request) -> Approval | Question:
        """Whoever is shown it may do with its input what they like: what goes back is the agent's own (spec agents 7.20)."""
        missing = {name: stamp for name, stamp in self._stamps.items() if not getattr(request, name)}
        shown = msgspec.structs.replace(request, input=copy.deepcopy(request.input), **missing)
        routing = {name: stamp for name in ("chat_id", "platform", "bot_uuid") if (stamp := getattr(shown, name))}
        if isinstance(shown, AskRequestEvent):
            items = parse_questions(shown.input) or (QuestionItem(shown.message or shown.reason or shown.tool_name),)
            return Question(id=shown.id, items=items, tool=shown.tool_name, call_id=shown.call_id, routing=routing, native=shown)
        call = ToolCall(
            shown.tool_name, shown.input, id=shown.tool_use_id or str(shown.id), asker=self._agent,
            native=NativeCall(shown.tool_name, shown.input),
        )  # fmt: skip
        return Approval(
            id=shown.id,
            call=call,
            title=shown.title,
            display_name=shown.display_name,
            description=shown.description,
            reason=shown.decision_reason or shown.reason,
            reason_type=shown.decision_reason_type,
            blocked_path=shown.blocked_path,
            suggestions=shown.suggestions,
            needs_person=shown.requires_user_interaction,
            default_no=shown.default_to_no,
            no_always=shown.suppress_always_allow,
            routing=routing,
            native=shown,
        )


def must_fit(asked: Approval | Question, response: ControlResponse) -> None:
    """A `TypeError` before anything is used up (spec agents 7.5)."""
    fitting = AskResponse if isinstance(asked, Question) else ApprovalResponse
    if not isinstance(response, fitting):
        raise TypeError(
            f"the answer to {type(asked).__name__.lower()} {asked.id} is {fitting.__name__}, not {type(response).__name__}"
        )


def decision_of(asked: Approval | Question, response: ControlResponse) -> Decision:
    """The same answer in our words."""
    if isinstance(response, ApprovalResponse):
        if not response.approved:
            return Deny(response.reason, interrupt=response.interrupt)
        changed = msgspec.UNSET if response.updated_input is None else response.updated_input
        return Allow(changed, remember="session" if response.remember else "once")
    if not response.approved:
        return Deny(response.reason or response.response)
    assert isinstance(asked, Question)
    answers = response.selection or (response.updated_input or {}).get("answers")
    if not isinstance(answers, dict) or not answers:
        answers = {asked.items[0].text: response.response} if response.response else {}
    return Answer(answers)


def response_of(request: Request, decision: Decision) -> ControlResponse:
    """What was decided elsewhere, or by nobody, in the seed's words."""
    if isinstance(request, AskRequestEvent):
        if isinstance(decision, Answer) and decision.answers:
            first = next(iter(decision.answers.values()))
            return AskResponse(approved=True, selection=decision.answers, response=first if isinstance(first, str) else "")
        return AskResponse(approved=False, reason=decision.why if isinstance(decision, Deny) else "the question was not answered")
    if isinstance(decision, Allow):
        changed = None if decision.arguments is msgspec.UNSET else decision.arguments
        return ApprovalResponse(approved=True, updated_input=changed, remember=decision.remember != "once")
    why, interrupt = (decision.why, decision.interrupt) if isinstance(decision, Deny) else ("", False)
    return ApprovalResponse(approved=False, reason=why, interrupt=interrupt)
