"""A driver's side of a session: events are stamped, passed to the listeners and to the turn that runs.

Nothing here waits for the reader of the turn, so that a driver never stops reading its agent (spec agents 7.1); a driver that can
wait awaits `wait_for_room`. A request is registered before anybody sees it, so that an immediate answer finds it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic, time
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from serai.agents.turn import Turn
from serai.errors import Closed, NoApproval
from serai.limits import AgentLimits
from serai.model.approvals import Answer, Approval, Decision, Deny, Question
from serai.model.events import Event, RequestCancelled, TurnEnded, TurnResult, TurnStarted
from serai.model.provider import ModelMessage

log = logging.getLogger("serai.agents")

Listener = Callable[[Event], None]


class EventHub:
    """Where one agent plays."""

    def __init__(self, agent: str, session: str, limits: AgentLimits) -> None:
        self.agent = agent
        self.session = session
        self.limits = limits
        self.listeners: list[Listener] = []
        self.pending: dict[str, Approval | Question] = {}  # asked, and not answered yet
        self.turn: Turn | None = None  # that runs
        self.on_turn: list[Callable[[Turn], None]] = []
        self.on_decided: list[Callable[[str, Decision], None]] = []
        self.on_answer: list[Callable[[ModelMessage, str], None]] = []
        self.on_compact: list[Callable[[tuple[ModelMessage, ...], int], None]] = []
        self._answers: dict[str, asyncio.Future[Decision]] = {}
        self._outliving: set[str] = set()  # requests that do not end with the turn in which they came
        self._seq = 0
        self._requests = 0
        self._closed = False

    # -- what happens

    def emit(self, event: Event) -> None:
        """Tell everybody. Then raises what a listener raised: one that cannot keep what happened must be able to stop it."""
        if self._closed:
            return
        self._stamp(event)
        failure: Exception | None = None
        for listener in tuple(self.listeners):  # one may leave while it is told
            try:
                listener(event)
            except Exception as error:
                failure = failure or error
        if self.turn is not None:
            self.turn.put(event)
        if failure is not None:
            raise failure

    def _stamp(self, event: Event) -> None:
        """Nobody has seen it yet, so it is no other value than before."""
        self._seq += 1
        force_setattr(event, "seq", self._seq)
        if not event.at:
            force_setattr(event, "at", time())
        force_setattr(event, "agent", event.agent or self.agent)
        force_setattr(event, "session", event.session or self.session)

    async def wait_for_room(self) -> None:
        """Wait while whoever reads the turn is far behind."""
        if self.turn is not None and self.turn.crowded:
            await self.turn.room()

    # -- what is asked

    def new_id(self, kind: str) -> str:
        """For a request of ours: nobody else has it in this session."""
        self._requests += 1
        return f"{kind}-{self._requests}"

    async def ask(self, request: Approval | Question, *, timeout: float | None = None, outlives: bool = False) -> Decision:
        """Put it to whoever reads the turn, and wait. Silence is no (design rule 7); cancelled, it is withdrawn.

        `outlives`: it is about work on the side, and still open when the turn in which it came is over (spec agents 5.3 Z4).
        """
        if self._closed or (self.turn is not None and self.turn.unheard):
            return _make_refusal(request)
        if request.id in self.pending:  # a frame that came twice is presented once (spec agents 7.19)
            return await asyncio.shield(self._answers[request.id])
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()

        async def respond(decision: Decision) -> None:
            if answer.done():  # it timed out in this very moment
                raise Closed("it was withdrawn already", who=self.agent, id=request.id)
            answer.set_result(decision)

        request.answer_with(respond)
        self.pending[request.id] = request
        if outlives:
            self._outliving.add(request.id)
        self._answers[request.id] = answer
        patience = min(timeout or self.limits.approval, self.limits.approval)
        try:
            self.emit(request)
            async with asyncio.timeout(patience):
                decision = await answer
            for keep in self.on_decided:  # on the disk before it has an effect (design rule 14)
                keep(request.id, decision)
            return decision
        except TimeoutError:
            self.withdraw(request.id, f"nobody answered within {patience:g} s")
            return _make_refusal(request, f"nobody answered within {patience:g} s")
        finally:
            self.withdraw(request.id, "the turn went on without it")

    def report_request(self, request: Approval | Question) -> None:
        """It is asked elsewhere, by whoever decides for the agent; here it is known and kept, and nobody here can answer it."""
        self.emit(request)

    def report_decision(self, request: Approval | Question, decision: Decision, *, withdrawn: str = "") -> None:
        """What came of that; on the disk before it has an effect (design rule 14)."""
        if withdrawn:
            self.emit(RequestCancelled(id=request.id, reason=withdrawn, lane=request.lane))
        for keep in self.on_decided:
            keep(request.id, decision)

    def withdraw(self, id: str, reason: str) -> None:
        """Nobody waits for its answer any more. Nothing happens when it has one, or never was."""
        request = self.pending.pop(id, None)
        answer = self._answers.pop(id, None)
        self._outliving.discard(id)
        if request is None or answer is None:
            return
        if request.withdraw():
            answer.cancel()
            try:
                self.emit(RequestCancelled(id=id, reason=reason, lane=request.lane))
            except Exception:  # whoever withdraws is on the way out, and must get there
                log.exception("that request %s was withdrawn could not be told to everybody", id)

    def refuse(self, request: Approval | Question) -> None:
        """Nobody is there to answer it."""
        answer = self._answers.get(request.id)
        if answer is not None and request.withdraw():
            answer.set_result(_make_refusal(request))

    async def answer(self, id: str, decision: Decision) -> None:
        """From whichever task."""
        if self._closed:
            raise Closed("the session is closed", who=self.agent, id=id)
        request = self.pending.get(id)
        if request is None or request.answered:
            raise NoApproval("nothing of that id waits for an answer", who=self.agent, id=id, hint="it was answered or withdrawn")
        await request.decide(decision)

    # -- turns

    def begin(self, turn: Turn) -> None:
        """From now on this one hears what happens."""
        self.turn = turn
        turn.began = monotonic()
        self.emit(TurnStarted(prompt=turn.prompt.text, images=turn.prompt.images))

    def announce(self, turn: Turn) -> None:
        """A turn that the agent has begun by itself. Without anybody to take it, it is played unheard."""
        for handler in tuple(self.on_turn):
            try:
                handler(turn)
            except Exception:  # its own affair: the agent is read on
                log.exception("a turn that %s began could not be told to everybody", self.agent)
        if not turn.taken:
            turn.ignore()
        self.begin(turn)

    def end(self, turn: Turn, result: TurnResult, error: BaseException | None = None) -> None:
        """It is over, once: what still waited is withdrawn, then the last event, then the error."""
        if turn.outcome is not None or self.turn is not turn:
            return
        for id in self.pending.keys() - self._outliving:
            self.withdraw(id, "the turn is over")
        stamps = {"session": result.session or self.session, "seconds": result.seconds or monotonic() - turn.began}
        result = msgspec.structs.replace(result, **stamps)
        try:
            self.emit(TurnEnded(result=result))
        except Exception as failure:  # a listener's, such as a full disk: the turn's error, if it has none
            log.error("the end of a turn could not be told to everybody: %s", failure)
            error = error or failure
        self.turn = None
        turn.end(result, error)

    def report_answer(self, message: ModelMessage, model: str) -> None:
        """All that the model said in this step: for who keeps it. Told before what is shown of it."""
        if not self._closed:
            for keep in self.on_answer:
                keep(message, model)

    def report_compaction(self, messages: tuple[ModelMessage, ...], tokens: int) -> None:
        """The conversation is these messages from now on: for who keeps it."""
        if not self._closed:
            for keep in self.on_compact:
                keep(messages, tokens)

    def close(self) -> None:
        for id in list(self.pending):
            self.withdraw(id, "the session was closed")
        self._closed = True


def _make_refusal(request: Approval | Question, why: str = "") -> Decision:
    if isinstance(request, Question):
        return Answer({})
    return Deny(why or "nobody is there to approve it")


def ignore_outcome(left: asyncio.Future[Any]) -> None:
    """How something ends that was left behind: nobody wants to know any more."""
    if not left.cancelled():
        left.exception()
