"""Where a call is decided: by the policy, else by a person, else not at all.

An approval is on disk before a person is asked, and the first answer counts, from the surface or from another process (`serai
policy answer`). Silence, a broken surface and a bad answer are a no, each reported as what it is (design rule 7). Several may wait
at once; one that hangs delays no other. An `ApprovalOutcome` says what was decided, by whom, and which error belongs to it; a
person's no is not an error.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from serai.errors import LimitHit, NoApproval, NotAllowed, NotWritten, PeerTimeout, SeraiError, SurfaceFailed
from serai.limits import PolicyLimits
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question
from serai.model.surface import SelectiveSurface, Surface
from serai.model.tools import ToolCall
from serai.policy.call_facts import CallContext, CallFacts
from serai.policy.decision_store import ApprovalState, DecisionStore, PendingApproval, is_valid_answer
from serai.policy.engine import Policy, PolicyDecision
from serai.policy.suggested_rules import advise, build_rule, remember_decision

_log = logging.getLogger(__name__)

TOO_LONG = "it could not be written down in time: another process holds the file"

DecidedBy = Literal["policy", "person", "nobody", "timeout", "surface failed", "bad answer", "withdrawn", "not written"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalOutcome:
    """What was decided, by whom, and what went wrong on the way if something did."""

    decision: Decision
    by: DecidedBy
    why: str = ""
    judgement: PolicyDecision | None = None
    error: SeraiError | None = None

    @property
    def allowed(self) -> bool:
        return isinstance(self.decision, Allow)


def accept_answer(decision: Decision) -> ApprovalOutcome:
    return ApprovalOutcome(decision=decision, by="person", why=decision.why if isinstance(decision, Deny) else "")


def deny_unwritten(error: SeraiError) -> ApprovalOutcome:
    return ApprovalOutcome(decision=Deny(str(error)), by="not written", why=str(error), error=error)


def deny_withdrawn(request: Approval | Question, reason: str = "") -> ApprovalOutcome:
    why = reason or "Context cancelled"
    error = NotAllowed(why, who=request.agent, id=request.id, hint="nobody waits for it any more")
    return ApprovalOutcome(decision=Deny(why), by="withdrawn", why=why, error=error)


def deny_failed(request: Approval | Question, by: DecidedBy, why: str) -> ApprovalOutcome:
    return ApprovalOutcome(decision=Deny(why), by=by, why=why, error=SurfaceFailed(why, who=request.agent, id=request.id))


def deny_timeout(request: Approval | Question, seconds: float, *, written: bool) -> ApprovalOutcome:
    why = "Request timed out"
    hint = "answer sooner, or raise it" if written else TOO_LONG
    error = PeerTimeout(why, who=request.agent, id=request.id, limit=LimitHit("approval", seconds), hint=hint)
    return ApprovalOutcome(decision=Deny(why), by="timeout", why=why, error=error)


def deny_unattended(request: Approval | Question, hint: str) -> ApprovalOutcome:
    """No surface means no (design rule 7)."""
    why = "there is a question, and nobody is there to answer it"
    if isinstance(request, Approval):
        why = f"{request.tool} needs an approval, and nobody is there to give it"
    return ApprovalOutcome(
        decision=Deny(why), by="nobody", why=why, error=NotAllowed(why, who=request.agent, id=request.id, hint=hint)
    )


def suggest_allow(approval: Approval, situation: CallContext, judged: PolicyDecision) -> str:
    """What would let it through: only what really would."""
    found = advise(approval.call, situation, judged, needs_person=approval.needs_person)
    if found.flag:
        wide = f" (every call of {approval.tool})" if found.wider else ""
        return f"allow it with {found.flag}{wide}, or with a rule in --policy FILE"
    return f"{found.why_not}; or run it where somebody can answer"


_HOUR = 3600.0  # nobody is waited for longer, whatever is configured (spec agents 2.14)
_LOOK = 0.1  # seconds between two looks whether another process has answered
_PATIENCE = 5.0  # seconds for an answer to be on disk, however many wait for the file
_PROMPTLY = 0.5  # seconds of a cancelled caller for that: its row is settled without it
Asked = Callable[[Approval | Question], None]


def _create_future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class _Waiting:
    """One question to a person: `written` down, `answered`, and that `ended` on disk too; what counts is what is there."""

    request: Approval | Question
    tell: Asked | None = None
    pending: PendingApproval | None = None
    written: asyncio.Future[None] = field(default_factory=_create_future)
    answered: asyncio.Future[ApprovalOutcome] = field(default_factory=_create_future)
    ended: asyncio.Future[ApprovalOutcome] = field(default_factory=_create_future)

    def settle(self, ruling: ApprovalOutcome) -> None:
        if not self.answered.done():
            self.answered.set_result(ruling)

    def end(self, ruling: ApprovalOutcome) -> None:
        if not self.ended.done():
            self.ended.set_result(ruling)

    def give_up(self) -> None:
        """Nobody waits for the disk any longer: a no stays one, and a yes that is not written down is none."""
        ruling = self.answered.result()
        self.end(ruling if isinstance(ruling.decision, Deny) else deny_unwritten(NotWritten(TOO_LONG)))

    def announce(self) -> None:
        """Whoever wants to know that it is asked knows it before the person does."""
        if self.tell is not None:
            try:
                self.tell(self.request)
            except Exception as error:
                _log.warning("that something is asked could not be told: %s", error)
                self.settle(deny_unwritten(error if isinstance(error, SeraiError) else NotWritten(_describe_error(error))))

    @property
    def asked(self) -> bool:
        """On disk, and not answered."""
        return self.written.done() and not self.answered.done()


class Approver:
    """Decides for one run. `park`: without a surface that answers, an approval waits for another process to answer it.

    `remembers`: whether what a person wants remembered is.
    """

    def __init__(
        self,
        policy: Policy,
        surface: Surface,
        *,
        decisions: DecisionStore | None = None,
        limits: PolicyLimits | None = None,
        park: bool = False,
        remembers: bool = True,
    ) -> None:
        self.policy = policy
        self.surface = surface
        self._decisions = decisions
        self._limits = limits or PolicyLimits()
        self._park = park
        self._remembers = remembers
        self._closed = asyncio.Event()
        self._turn = asyncio.Lock()  # of those who write: the file takes one at a time, and one thread that waits is enough
        self._waiting: list[_Waiting] = []
        self._looking: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._followers: set[asyncio.Task[None]] = set()

    async def decide(
        self, approval: Approval, situation: CallContext, *, timeout: float | None = None, asked: Asked | None = None
    ) -> ApprovalOutcome:
        """One tool call: deny rules, what is remembered, ask rules, allow rules, the mode, a person, no.

        `asked` is told when a person is about to be, with what they see. When it fails they are not asked (design rule 14).
        """
        try:
            judged = self.policy.judge(approval.call, situation, needs_person=approval.needs_person)
        except NotWritten as unread:  # what is remembered
            return deny_unwritten(unread)
        if judged.decision == "allow":
            return ApprovalOutcome(decision=Allow(), by="policy", why=judged.why, judgement=judged)
        if judged.decision == "deny":
            error = NotAllowed(judged.error or f"{approval.tool} was denied: {judged.why}", who=approval.agent, id=approval.id)
            return ApprovalOutcome(decision=Deny(judged.why), by="policy", why=judged.why, judgement=judged, error=error)
        if not self._can_be_answered(approval):
            return replace(deny_unattended(approval, suggest_allow(approval, situation, judged)), judgement=judged)
        try:
            shown = msgspec.structs.replace(approval, call=_copy_call(approval.call), reason=approval.reason or judged.why)
        except NotWritten as error:
            return replace(deny_unwritten(error), judgement=judged)
        ruling = await self.ask(shown, situation, timeout=timeout, asked=asked)
        return replace(await self._check_answer(ruling, approval, situation), judgement=judged)

    async def ask(
        self, request: Approval | Question, situation: CallContext, *, timeout: float | None = None, asked: Asked | None = None
    ) -> ApprovalOutcome:
        """Put it to a person, whatever the rules say. Whatever happens, there is an answer."""
        if not self._can_be_answered(request):
            return deny_unattended(request, "run it where somebody can answer")
        seconds = min(self._limits.approval if timeout is None else timeout, _HOUR)
        if self._closed.is_set():
            return deny_withdrawn(request)
        return await self._ask_person(_Waiting(request, asked), situation, seconds)

    async def answer(self, id: str, decision: Decision) -> None:
        """Answer what waits here, by the id it was asked with. Who is second is told so."""
        found = [one for one in self._waiting if one.request.id == id and one.asked]
        if not found:
            raise NoApproval(f"nothing of the id {id!r} waits for an answer", id=id)
        if len(found) > 1:  # ids are the agents' own
            raise NoApproval(f"{len(found)} of the id {id!r} wait: nobody can say which is meant", id=id, hint="withdraw them")
        [one] = found
        if not is_valid_answer(decision, one.request):
            raise NoApproval("that is no answer to it", id=id, hint="an approval wants Allow or Deny, a question Answer or Deny")
        if (pending := one.pending) is not None:
            await self._write(lambda kept: kept.answer(pending.id, decision, "person"))  # another process may have been first
        one.settle(accept_answer(decision))

    async def withdraw(self, id: str, reason: str = "") -> bool:
        """Nobody waits for this answer any more; False if nobody did, or if somebody has answered before."""
        found = [one for one in self._waiting if one.request.id == id and not one.answered.done()]
        for one in found:
            one.settle(deny_withdrawn(one.request, reason))
        if ends := [one.ended for one in found if one.written.done()]:
            await asyncio.wait(ends, timeout=_PATIENCE)
        return any(not one.ended.done() or one.ended.result().by == "withdrawn" for one in found)

    @property
    def waiting(self) -> tuple[Approval | Question, ...]:
        """What is asked right now."""
        return tuple(one.request for one in self._waiting if one.asked)

    async def close(self) -> None:
        """What still waits is withdrawn, on disk too. Neither a surface that hangs nor a file that is held is waited for."""
        self._closed.set()
        waiting = list(self._waiting)
        for one in waiting:
            one.settle(deny_withdrawn(one.request))
        asking = {task for task in (*self._asking, self._looking) if task is not None}
        for task in asking:
            task.cancel()
        if tasks := asking | self._followers:
            await asyncio.wait(tasks, timeout=self._limits.exit_grace)
        for one in waiting:
            one.give_up()  # its row is settled without us, when that is possible

    def _can_be_answered(self, request: Approval | Question) -> bool:
        """Whether anybody can answer it."""
        return self._park or self._is_seen(request)

    def _is_seen(self, request: Approval | Question) -> bool:
        return self.surface.interactive and (not isinstance(self.surface, SelectiveSurface) or self.surface.answers(request))

    # -- waiting ------------------------------------------------------------------------------------------------------------------

    async def _ask_person(self, one: _Waiting, situation: CallContext, seconds: float) -> ApprovalOutcome:
        self._waiting.append(one)
        follower = _start(self._follow_request(one, situation, seconds), self._followers, f"follow {one.request.id}")
        try:
            ruling = await self._wait(one, seconds)
            if one.written.done():
                await asyncio.wait([one.ended], timeout=_PATIENCE)
                one.give_up()
                return one.ended.result()
            return ruling
        except asyncio.CancelledError:
            one.settle(deny_withdrawn(one.request))
            await asyncio.wait([follower], timeout=_PROMPTLY)
            raise
        finally:
            self._waiting.remove(one)
            if not self._waiting and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _wait(self, one: _Waiting, seconds: float) -> ApprovalOutcome:
        """The first answer, or none in time."""
        task = None
        try:
            async with asyncio.timeout(seconds):
                known: list[asyncio.Future[Any]] = [one.written, one.answered]
                await asyncio.wait(known, return_when=asyncio.FIRST_COMPLETED)
                if one.asked:
                    one.announce()
                if one.asked:
                    if self._is_seen(one.request):
                        task = _start(self._ask_surface(one), self._asking, f"ask {one.request.id}")
                    if one.pending is not None and self._looking is None:
                        self._looking = asyncio.create_task(self._poll_answers(), name="look for answers")
                    await asyncio.wait([one.answered])
        except TimeoutError:
            one.settle(deny_timeout(one.request, seconds, written=one.written.done()))  # from here on nobody else is first
        finally:
            if task is not None:
                task.cancel()  # and is not waited for: a surface that hangs is its own affair
        return one.answered.result()

    async def _ask_surface(self, one: _Waiting) -> None:
        """To the surface; what it raises is a no with its text."""
        try:
            answer = await self.surface.ask(one.request)
        except asyncio.CancelledError:  # ours, when all is settled; else its own
            one.settle(deny_failed(one.request, "surface failed", "the surface gave up"))
            raise
        except Exception as error:
            _log.warning("a surface failed while it asked", exc_info=True)
            one.settle(deny_failed(one.request, "surface failed", _describe_error(error)))
            return
        if is_valid_answer(answer, one.request):
            one.settle(accept_answer(answer))
        else:
            why = f"the surface gave a bad answer, of the type {type(answer).__name__}"
            one.settle(deny_failed(one.request, "bad answer", why))

    async def _poll_answers(self) -> None:
        """Whether somebody else has answered what is on disk; until nothing waits."""
        assert self._decisions is not None
        seen: object = None
        trouble = ""
        while True:
            rows = {one.pending.id: one for one in self._waiting if one.pending is not None}
            try:
                stamp = (self._decisions.read_stamp(), tuple(rows))
                if stamp != seen:
                    for id in self._decisions.find_answered(tuple(rows)):
                        rows[id].settle(_THEIRS)
                seen, trouble = stamp, ""
            except NotWritten as error:  # it may be better the next time; until then the surface may answer
                if str(error) != trouble:
                    _log.warning("whether somebody has answered cannot be seen: %s", error)
                trouble = str(error)
            await asyncio.sleep(_LOOK)

    # -- on disk ------------------------------------------------------------------------------------------------------------------

    async def _follow_request(self, one: _Waiting, situation: CallContext, seconds: float) -> None:
        """Its row: there before anybody is asked, and settled when nobody is any more, however often that has to be tried."""
        try:
            if self._decisions is not None:
                one.pending = await self._write_request(one, situation, seconds)
                if one.pending is None:
                    return
            one.written.set_result(None)
            await asyncio.wait([one.answered])
            last = False
            while one.pending is not None and not await self._write_outcome(one, one.pending.id) and not last:
                last = self._closed.is_set()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await self._closed.wait()
        finally:
            one.settle(deny_withdrawn(one.request))
            if one.pending is None:
                one.end(one.answered.result())
            else:
                one.give_up()

    async def _write_request(self, one: _Waiting, situation: CallContext, seconds: float) -> PendingApproval | None:
        """None: there is nothing to wait for."""
        try:
            found = await self._write(lambda kept: _store_request(kept, one.request, situation, seconds), unless=one.answered)
        except (NotWritten, NoApproval) as error:  # durable first, or not at all (design rule 14)
            one.settle(deny_unwritten(error))
            return None
        if found is not None and found.decision is not None:  # somebody answered it before the one who asked crashed
            one.settle(accept_answer(found.decision))
            return None
        return found

    async def _write_outcome(self, one: _Waiting, id: str) -> bool:
        """Whether its end is on disk. If another process was first, its answer counts. A yes that cannot be written is a no."""
        ruling = one.ended.result() if one.ended.done() else one.answered.result()
        state = _STATES.get(ruling.by, "used")
        by = ruling.by if ruling.by == "person" else ""
        try:
            found = await self._write(lambda kept: kept.settle(id, state, ruling.decision, by))
        except (NotWritten, NoApproval) as error:
            one.end(ruling if isinstance(ruling.decision, Deny) and ruling is not _THEIRS else deny_unwritten(error))
            return isinstance(error, NoApproval)  # its row is gone
        theirs = found is not None and found.state == "answered" and found.decision
        one.end(accept_answer(theirs) if theirs else ruling)
        return True

    async def _write(
        self, work: Callable[[DecisionStore], PendingApproval], unless: asyncio.Future[Any] | None = None
    ) -> PendingApproval | None:
        """In a thread: others may hold the file. None: when its turn came nobody wanted it any more."""
        async with self._turn:
            if self._decisions is None or (unless is not None and unless.done()):
                return None
            return await asyncio.to_thread(work, self._decisions)

    # -- after an answer ----------------------------------------------------------------------------------------------------------

    async def _check_answer(self, ruling: ApprovalOutcome, approval: Approval, situation: CallContext) -> ApprovalOutcome:
        """What a person changed is judged again by the deny rules, and what they want remembered is."""
        decision = ruling.decision
        if ruling.by != "person" or isinstance(decision, Answer):
            return ruling
        call = approval.call
        if isinstance(decision, Allow) and decision.arguments is not msgspec.UNSET:
            call = msgspec.structs.replace(call, arguments=decision.arguments)
            if (judged := self.policy.find_denial(call, situation)) is not None:
                error = NotAllowed(f"{call.name} was denied as changed: {judged.why}", who=approval.agent, id=approval.id)
                return replace(ruling, decision=Deny(judged.why), by="policy", why=judged.why, error=error)
        scope = "once" if approval.no_always and isinstance(decision, Allow) else decision.remember
        if self._decisions is not None and self._remembers and scope != "once":
            try:
                rule = build_rule(CallFacts(call, situation), decision)
                async with asyncio.timeout(_PATIENCE):
                    await asyncio.to_thread(remember_decision, self._decisions, rule, situation, scope, self._limits)
            except NotWritten as error:  # the answer holds, and the next time they are asked again
                return replace(ruling, error=error)
            except TimeoutError:
                return replace(ruling, error=NotWritten(TOO_LONG))
        return ruling


_THEIRS = deny_unwritten(NotWritten(TOO_LONG))  # another process has answered: what, its row says
_STATES: dict[DecidedBy, ApprovalState] = {
    "timeout": "timed out",
    "withdrawn": "withdrawn",
    "surface failed": "failed",
    "bad answer": "failed",
    "not written": "failed",
}


def _start(work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]], name: str) -> asyncio.Task[None]:
    task = asyncio.create_task(work, name=name)
    among.add(task)
    task.add_done_callback(among.discard)
    return task


def _store_request(kept: DecisionStore, request: Approval | Question, situation: CallContext, seconds: float) -> PendingApproval:
    try:
        digest = _compute_digest(request, situation)
    except (ValueError, TypeError, RecursionError) as error:  # arguments that are no JSON
        raise NotWritten(f"what is asked cannot be written down: {error}", who=request.agent, hint="give JSON alone") from None
    return kept.ask(request, situation, digest, seconds)


def _copy_call(call: ToolCall) -> ToolCall:
    """For whoever is shown it: what they do to it does nothing to the call that was judged and will run."""
    try:
        arguments = msgspec.json.decode(msgspec.json.encode(call.arguments))
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise NotWritten(f"its arguments are no JSON: {error}", who=call.asker, id=call.id, hint="give JSON alone") from None
    return msgspec.structs.replace(call, arguments=arguments)


def _compute_digest(request: Approval | Question, situation: CallContext) -> str:
    if isinstance(request, Approval):
        return f"{request.tool} {CallFacts(request.call, situation).digest}"
    return hashlib.sha256(msgspec.json.encode(request.items)).hexdigest()


def _describe_error(error: Exception) -> str:
    """A surface's error may not even be able to say what it is."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__
