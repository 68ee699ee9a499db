"""What was decided at the desk, by whom, and the error that belongs to it: a person's no is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from serai.errors import LimitHit, NotAllowed, PeerTimeout, SeraiError, SurfaceFailed
from serai.model.approvals import Allow, Approval, Decision, Deny, Question
from serai.policy.engine import Judgement
from serai.policy.remembering import advice
from serai.policy.subject import Situation

__all__ = [
    "TOO_LONG",
    "By",
    "Ruling",
    "by_person",
    "failed",
    "nobody",
    "not_written",
    "out_of_time",
    "withdrawn",
    "without_a_person",
]

TOO_LONG = "it could not be written down in time: another process holds the file"

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


def by_person(decision: Decision) -> Ruling:
    return Ruling(decision=decision, by="person", why=decision.why if isinstance(decision, Deny) else "")


def not_written(error: SeraiError) -> Ruling:
    return Ruling(decision=Deny(str(error)), by="not written", why=str(error), error=error)


def withdrawn(request: Approval | Question, reason: str = "") -> Ruling:
    why = reason or "Context cancelled"
    error = NotAllowed(why, who=request.agent, id=request.id, hint="nobody waits for it any more")
    return Ruling(decision=Deny(why), by="withdrawn", why=why, error=error)


def failed(request: Approval | Question, by: By, why: str) -> Ruling:
    return Ruling(decision=Deny(why), by=by, why=why, error=SurfaceFailed(why, who=request.agent, id=request.id))


def out_of_time(request: Approval | Question, seconds: float, *, written: bool) -> Ruling:
    why = "Request timed out"
    hint = "answer sooner, or raise it" if written else TOO_LONG
    error = PeerTimeout(why, who=request.agent, id=request.id, limit=LimitHit("approval", seconds), hint=hint)
    return Ruling(decision=Deny(why), by="timeout", why=why, error=error)


def nobody(request: Approval | Question, hint: str) -> Ruling:
    """No surface means no (design rule 7)."""
    why = "there is a question, and nobody is there to answer it"
    if isinstance(request, Approval):
        why = f"{request.tool} needs an approval, and nobody is there to give it"
    return Ruling(decision=Deny(why), by="nobody", why=why, error=NotAllowed(why, who=request.agent, id=request.id, hint=hint))


def without_a_person(approval: Approval, situation: Situation, judged: Judgement) -> str:
    """What would let it through: only what really would."""
    found = advice(approval.call, situation, judged, needs_person=approval.needs_person)
    if found.flag:
        wide = f" (every call of {approval.tool})" if found.wider else ""
        return f"allow it with {found.flag}{wide}, or with a rule in --policy FILE"
    return f"{found.why_not}; or run it where somebody can answer"
