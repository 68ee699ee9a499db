"""Where a call is decided: by the policy, else by a person, else not at all.

What is asked of a person is on disk first, and the first answer counts, whether it comes from the surface or from another process
(`serai policy answer`). Silence, a broken surface and a bad answer are a no, each told apart (design rule 7). Several may wait at
once; one that hangs holds up nobody else.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from serai.errors import LimitHit, NoApproval, NotAllowed, NotWritten, PeerTimeout, SeraiError, SurfaceFailed
from serai.limits import Limits
from serai.model.ask import Allow, Answer, Approval, Decision, Deny, Question
from serai.model.surface import Surface
from serai.policy.engine import Judgement, Policy
from serai.policy.memory import Decisions, Pending, State, fits
from serai.policy.remembering import flag_for, remember, rule_for
from serai.policy.subject import Situation, Subject

__all__ = ["Desk", "Ruling"]

_log = logging.getLogger(__name__)
_HOUR = 3600.0  # nobody is waited for longer, whatever is configured (spec agents 2.14)
_LOOK = 0.1  # seconds between two looks whether another process has answered

By = Literal["policy", "person", "nobody", "timeout", "surface failed", "bad answer", "withdrawn", "not written"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What was decided, by whom, and what went wrong on the way if something did."""

    decision: Decision
    by: By
    why: str = ""
    judgement: Judgement | None = None
    error: SeraiError | None = None

    @property
    def allowed(self) -> bool:
        return isinstance(self.decision, Allow)


@dataclass(slots=True, eq=False)
class _Waiting:
    """One question to a person, until it is settled; `over` when that is on disk too."""

    request: Approval | Question
    pending: Pending | None = None
    answered: asyncio.Future[tuple[By, Decision]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    over: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def settle(self, by: By, decision: Decision) -> None:
        if not self.answered.done():
            self.answered.set_result((by, decision))


class Desk:
    """Decides for one run. `park`: without a surface that answers, an approval waits for another process to answer it.

    `remembers`: whether what a person wants remembered is.
    """

    def __init__(
        self,
        policy: Policy,
        surface: Surface,
        *,
        decisions: Decisions | None = None,
        limits: Limits | None = None,
        park: bool = False,
        remembers: bool = True,
    ) -> None:
        self.policy = policy
        self.surface = surface
        self._decisions = decisions
        self._limits = limits or Limits()
        self._park = park
        self._remembers = remembers
        self._closed = False
        self._waiting: list[_Waiting] = []
        self._looking: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()

    async def decide(self, approval: Approval, situation: Situation, *, timeout: float | None = None) -> Ruling:
        """One tool call: deny rules, what is remembered, ask rules, allow rules, the mode, a person, no."""
        try:
            judged = self.policy.judge(approval.call, situation, needs_person=approval.needs_person)
        except NotWritten as unread:  # what is remembered
            return _not_written(unread)
        if judged.decision == "allow":
            return Ruling(decision=Allow(), by="policy", why=judged.why, judgement=judged)
        if judged.decision == "deny":
            error = NotAllowed(judged.error or f"{approval.tool} was denied: {judged.why}", who=approval.agent, id=approval.id)
            return Ruling(decision=Deny(judged.why), by="policy", why=judged.why, judgement=judged, error=error)
        asked = approval if approval.reason else msgspec.structs.replace(approval, reason=judged.why)
        ruling = await self.ask(asked, situation, timeout=timeout)
        return replace(await self._checked(ruling, approval, situation), judgement=judged)

    async def ask(self, request: Approval | Question, situation: Situation, *, timeout: float | None = None) -> Ruling:
        """Put it to a person, whatever the rules say. Whatever happens, there is an answer."""
        if not self.surface.interactive and not self._park:
            return _nobody(request, situation)
        seconds = min(self._limits.approval if timeout is None else timeout, _HOUR)
        if self._closed:
            return _ruling("withdrawn", _CANCELLED, request, seconds)
        try:
            return await self._asked(request, situation, seconds)
        except (NotWritten, NoApproval) as error:  # durable first, or not at all (design rule 14); or its row is gone
            return _not_written(error)

    def answer(self, id: str, decision: Decision) -> None:
        """Answer what waits here, by the id it was asked with. Who is second is told so."""
        found = [one for one in self._waiting if one.request.id == id and self._is_asked(one)]
        if not found:
            raise NoApproval(f"nothing of the id {id!r} waits for an answer", id=id)
        if len(found) > 1:  # ids are the agents' own
            raise NoApproval(f"{len(found)} of the id {id!r} wait: nobody can say which is meant", id=id, hint="withdraw them")
        [one] = found
        if not fits(decision, one.request):
            raise NoApproval("that is no answer to it", id=id, hint="an approval wants Allow or Deny, a question Answer or Deny")
        if self._decisions is not None and one.pending is not None:
            self._decisions.answer(one.pending.id, decision, "person")  # another process may have been first
        one.settle("person", decision)

    def withdraw(self, id: str, reason: str = "") -> bool:
        """Nobody waits for this answer any more; whether somebody did."""
        found = [one for one in self._waiting if one.request.id == id and not one.answered.done()]
        for one in found:
            one.settle("withdrawn", Deny(reason) if reason else _CANCELLED)
        return bool(found)

    @property
    def waiting(self) -> tuple[Approval | Question, ...]:
        """What is asked right now."""
        return tuple(one.request for one in self._waiting if self._is_asked(one))

    def _is_asked(self, one: _Waiting) -> bool:
        """On disk, and not answered."""
        return not one.answered.done() and (self._decisions is None or one.pending is not None)

    async def close(self) -> None:
        """What still waits is withdrawn, on disk too. A surface that does not let itself be cancelled is left behind."""
        self._closed = True
        waiting = list(self._waiting)
        for one in waiting:
            one.settle("withdrawn", _CANCELLED)
        tasks = {task for task in (*self._asking, self._looking) if task is not None}
        for task in tasks:
            task.cancel()
        if ends := [*tasks, *(one.over for one in waiting)]:
            await asyncio.wait(ends, timeout=self._limits.exit_grace)

    # -- waiting ------------------------------------------------------------------------------------------------------------------

    async def _asked(self, request: Approval | Question, situation: Situation, seconds: float) -> Ruling:
        waiting = _Waiting(request)
        self._waiting.append(waiting)
        try:
            by, decision = await self._answered(waiting, situation, seconds)
        finally:
            self._waiting.remove(waiting)
            waiting.over.set_result(None)
            if not self._waiting and self._looking is not None:
                self._looking.cancel()
                self._looking = None
        return _ruling(by, decision, request, seconds)

    async def _answered(self, waiting: _Waiting, situation: Situation, seconds: float) -> tuple[By, Decision]:
        """The answer, on disk like the question. Whoever leaves early leaves no question behind."""
        writing = asyncio.ensure_future(self._write(lambda kept: _put_down(kept, waiting.request, situation, seconds)))
        try:
            waiting.pending = await asyncio.shield(writing)
            if waiting.pending is not None and waiting.pending.decision is not None:
                return "person", waiting.pending.decision  # somebody answered it before the one who asked crashed
            by, decision = await self._wait(waiting, seconds)
            return await self._settled(waiting, by, decision)
        except asyncio.CancelledError:
            waiting.settle("withdrawn", _CANCELLED)
            await asyncio.shield(self._take_back(waiting, writing))
            raise

    async def _take_back(self, waiting: _Waiting, writing: asyncio.Future[Pending | None]) -> None:
        with suppress(NotWritten, NoApproval):
            waiting.pending = await writing
            await self._settled(waiting, "withdrawn", _CANCELLED)

    async def _wait(self, waiting: _Waiting, seconds: float) -> tuple[By, Decision]:
        """The first answer, or none in time."""
        if waiting.answered.done():  # withdrawn while it was written down
            return waiting.answered.result()
        task = None
        if self.surface.interactive:
            task = asyncio.create_task(self._put(waiting), name=f"ask {waiting.request.id}")
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        if waiting.pending is not None and self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="look for answers")
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(waiting.answered)
        except TimeoutError:
            waiting.settle("timeout", Deny("Request timed out"))  # from here on nobody else is first
            return waiting.answered.result()
        finally:
            if task is not None:
                task.cancel()  # and is not waited for: a surface that hangs is its own affair

    async def _put(self, waiting: _Waiting) -> None:
        """To the surface; what it raises is a no with its text."""
        try:
            answer = await self.surface.ask(waiting.request)
        except asyncio.CancelledError:  # ours, when all is settled; else its own
            waiting.settle("surface failed", Deny("the surface gave up"))
            raise
        except Exception as error:
            _log.warning("a surface failed while it asked", exc_info=True)
            waiting.settle("surface failed", Deny(_text_of(error)))
            return
        if fits(answer, waiting.request):
            waiting.settle("person", answer)
        else:
            waiting.settle("bad answer", Deny(f"the surface gave a bad answer, of the type {type(answer).__name__}"))

    async def _look(self) -> None:
        """Whether somebody else has answered what is on disk; until nothing waits."""
        assert self._decisions is not None
        seen: object = None
        while True:
            rows = {one.pending.id: one for one in self._waiting if one.pending is not None}
            try:
                stamp = (await asyncio.to_thread(self._decisions.stamp), tuple(rows))
                if stamp != seen:
                    for id in await asyncio.to_thread(self._decisions.answered, tuple(rows)):
                        rows[id].settle("person", Deny())  # `_settled` takes the answer from the row
                seen = stamp
            except NotWritten as error:  # it may be better the next time; until then the surface may answer
                _log.warning("whether somebody has answered cannot be seen: %s", error)
            await asyncio.sleep(_LOOK)

    async def _settled(self, waiting: _Waiting, by: By, decision: Decision) -> tuple[By, Decision]:
        """On disk too. If another process was first, its answer counts, unless nobody waits for one any more."""
        if (pending := waiting.pending) is None:
            return by, decision
        state = _STATES.get(by, "used")
        found = await self._write(lambda kept: kept.settle(pending.id, state, decision, by if by == "person" else ""))
        if found is not None and found.state == "answered" and found.decision is not None and by != "withdrawn":
            return "person", found.decision
        return by, decision

    async def _write(self, work: Callable[[Decisions], Pending]) -> Pending | None:
        """In a thread: the disk may take its time."""
        return None if self._decisions is None else await asyncio.to_thread(work, self._decisions)

    # -- after an answer ----------------------------------------------------------------------------------------------------------

    async def _checked(self, ruling: Ruling, approval: Approval, situation: Situation) -> Ruling:
        """What a person changed is judged again by the deny rules, and what they want remembered is."""
        decision = ruling.decision
        if ruling.by != "person" or isinstance(decision, Answer):
            return ruling
        call = approval.call
        if isinstance(decision, Allow) and decision.arguments is not msgspec.UNSET:
            call = msgspec.structs.replace(call, arguments=decision.arguments)
            if (judged := self.policy.forbids(call, situation)) is not None:
                error = NotAllowed(f"{call.name} was denied as changed: {judged.why}", who=approval.agent, id=approval.id)
                return replace(ruling, decision=Deny(judged.why), by="policy", why=judged.why, error=error)
        scope = "once" if approval.no_always and isinstance(decision, Allow) else decision.remember
        if self._decisions is not None and self._remembers and scope != "once":
            try:
                rule = rule_for(Subject(call, situation), decision)
                await asyncio.to_thread(remember, self._decisions, rule, situation, scope, self._limits)
            except NotWritten as error:  # the answer holds, and the next time they are asked again
                return replace(ruling, error=error)
        return ruling


_CANCELLED = Deny("Context cancelled")
_STATES: dict[By, State] = {"timeout": "timed out", "withdrawn": "withdrawn", "surface failed": "failed", "bad answer": "failed"}


def _put_down(kept: Decisions, request: Approval | Question, situation: Situation, seconds: float) -> Pending:
    try:
        digest = _digest(request, situation)
    except (ValueError, TypeError, RecursionError) as error:  # arguments that are no JSON
        raise NotWritten(f"what is asked cannot be written down: {error}", who=request.agent, hint="give JSON alone") from None
    return kept.ask(request, situation, digest, seconds)


def _digest(request: Approval | Question, situation: Situation) -> str:
    if isinstance(request, Approval):
        return f"{request.tool} {Subject(request.call, situation).digest}"
    return hashlib.sha256(msgspec.json.encode(request.items)).hexdigest()


def _text_of(error: Exception) -> str:
    """A surface's error may not even be able to say what it is."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _not_written(error: SeraiError) -> Ruling:
    return Ruling(decision=Deny(str(error)), by="not written", why=str(error), error=error)


def _ruling(by: By, decision: Decision, request: Approval | Question, seconds: float) -> Ruling:
    """With the error that belongs to it: a person's no is none."""
    why = decision.why if isinstance(decision, Deny) else ""
    known: dict[str, Any] = {"who": request.agent, "id": request.id}
    error: SeraiError | None = None
    match by:
        case "timeout":
            error = PeerTimeout(
                "Request timed out", limit=LimitHit("approval", seconds), hint="answer sooner, or raise it", **known
            )
        case "surface failed" | "bad answer":
            error = SurfaceFailed(why, **known)
        case "withdrawn":
            error = NotAllowed(why or "Context cancelled", hint="nobody waits for it any more", **known)
    return Ruling(decision=decision, by=by, why=why, error=error)


def _nobody(request: Approval | Question, situation: Situation) -> Ruling:
    """No surface means no (design rule 7), and the error names what would allow it."""
    if isinstance(request, Question):
        why = "there is a question, and nobody is there to answer it"
        error = NotAllowed(why, who=request.agent, id=request.id, hint="run it where somebody can answer")
    else:
        why = f"{request.tool} needs an approval, and nobody is there to give it"
        hint = f"allow it with {flag_for(Subject(request.call, situation))}, or with a rule in --policy FILE"
        error = NotAllowed(why, who=request.agent, id=request.id, hint=hint)
    return Ruling(decision=Deny(why), by="nobody", why=why, error=error)
