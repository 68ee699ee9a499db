"""One engine for every tool call and every approval.

The order, each step only when the one before said nothing:

    deny rules -> a remembered decision -> ask rules -> allow rules -> the session's mode -> a person -> deny

What a rule against something cannot see is asked, and so is a command that does not parse: neither a rule that allows nor a mode
gets it past a person. Nothing here waits or asks; `serai.policy.desk` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from serai.model.approvals import Remember
from serai.model.tools import ToolCall
from serai.policy.matching import Match, match
from serai.policy.rules import MODES, Decide, Mode, Rule, Rules
from serai.policy.subject import Situation, Subject

__all__ = ["AGENT_MODES", "Judgement", "Memory", "NoMemory", "Policy", "Remembered", "Stage", "Step", "mode_of_agent"]

Stage = Literal["deny rules", "remembered", "ask rules", "allow rules", "mode"]

# What an agent's own permission mode means here (spec agents 5.2 B8). All but this one are about what the agent itself lets
# through before it asks, so whatever it does ask is put to a person: also in its `auto`, which is not ours.
AGENT_MODES: Mapping[str, Mode] = {"bypassPermissions": "skip"}
_MOST_NEAR = 3  # rules that an explanation of one stage names


def mode_of_agent(native: str) -> Mode:
    """Our mode for a session that runs in this mode of its agent. Questions are asked in every mode."""
    return AGENT_MODES.get(native, "manual")


@dataclass(frozen=True, slots=True)
class Remembered:
    """A decision that a person made before: a rule, for whom it holds, and until when."""

    id: str
    rule: Rule
    scope: Remember
    key: str = ""  # the session or the project
    at: float = 0.0
    expires: float | None = None

    def holds(self, situation: Situation, now: float) -> bool:
        """Whether it is of this scope, and of this time: a clock that was set back makes no allow valid again, loses no deny."""
        early = now < self.at and self.rule.decide == "allow"
        if early or (self.expires is not None and now >= self.expires):
            return False
        if self.scope == "always":
            return True
        return self.scope != "once" and bool(self.key) and self.key == situation.key(self.scope)


class Memory(Protocol):
    """Where decisions are remembered."""

    def decisions(self) -> tuple[Remembered, ...]: ...


class NoMemory:
    """Nothing is remembered."""

    def decisions(self) -> tuple[Remembered, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Step:
    """What one stage said, for the explanation."""

    stage: Stage
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the policy says, which stage said it and why. `ask` goes to a person, and without one it is a deny."""

    decision: Decide
    stage: Stage
    why: str
    rule: Rule | None = None
    remembered: Remembered | None = None
    steps: tuple[Step, ...] = ()
    error: str = ""  # the policy itself is at fault: an unknown mode

    def to_json(self) -> dict[str, Any]:
        form: dict[str, Any] = {"decision": self.decision, "stage": self.stage, "why": self.why}
        if self.rule is not None:
            form["rule"] = self.rule.id
            form["source"] = self.rule.source
        if self.remembered is not None:
            form["remembered"] = self.remembered.id
        if self.error:
            form["error"] = self.error
        return form | {"steps": [{"stage": step.stage, "said": step.said} for step in self.steps]}


class Policy:
    """Rules, what is remembered, and the modes of sessions."""

    def __init__(self, rules: Rules, *, memory: Memory | None = None, clock: Callable[[], float] = time.time) -> None:
        self.rules = rules
        self.memory: Memory = memory or NoMemory()
        self._clock = clock
        self._by: Mapping[Decide, tuple[Rule, ...]] = {decide: rules.by(decide) for decide in ("deny", "ask", "allow")}
        self._modes: dict[str, str] = {}

    # -- modes (spec agents 1.16): never on disk, so that `auto` is always somebody's choice of today --------------------------

    def set_mode(self, session: str, mode: str | None) -> None:
        """A mode for one session; None: it has none of its own any more. An unknown mode denies when it is used."""
        if mode is None:
            self._modes.pop(session, None)
        else:
            self._modes[session] = mode

    def get_mode(self, session: str, profile: str = "") -> str:
        """Its own, else its profile's, else the default."""
        return self._modes.get(session) or self.rules.profiles.get(profile) or self.rules.mode or "manual"

    # -- judging ------------------------------------------------------------------------------------------------------------------

    def forbids(self, call: ToolCall, situation: Situation) -> Judgement | None:
        """Deny rules alone, for whoever wants to know early; None: they say nothing."""
        verdict = _Judging(self, Subject(call, situation), self._clock()).deny()
        return verdict if verdict is not None and verdict.decision == "deny" else None

    def judge(self, call: ToolCall, situation: Situation, *, needs_person: bool = False) -> Judgement:
        """`needs_person`: only a person can answer it, such as the end of a plan; then nothing but a deny decides here."""
        judging = _Judging(self, Subject(call, situation), self._clock())
        verdict = judging.deny() or judging.remembered() or judging.ask() or judging.allow() or judging.mode()
        if needs_person and verdict.decision == "allow":
            return judging.says("ask", verdict.stage, "only a person can answer this")
        return verdict

    def rules_by(self, decide: Decide) -> tuple[Rule, ...]:
        return self._by[decide]


class _Judging:
    """One call on its way through the stages; each says what it thought."""

    def __init__(self, policy: Policy, subject: Subject, now: float) -> None:
        self._policy = policy
        self._subject = subject
        self._now = now
        self._steps: list[Step] = []
        self._doubt: tuple[Rule, str] | None = None

    def deny(self) -> Judgement | None:
        seen: list[tuple[Rule, Match]] = []
        for rule in self._policy.rules_by("deny"):
            found = match(rule, self._subject)
            if found.answer == "yes":
                return self.says("deny", "deny rules", _because(rule, "denies it"), rule=rule)
            if found.answer == "maybe" and self._doubt is None:
                self._doubt = rule, found.why
            seen.append((rule, found))
        if self._doubt is None:
            self._passed("deny rules", seen)
        else:
            self._note("deny rules", f"`{self._doubt[0].id}` may mean this call: {self._doubt[1]}")
        return None

    def remembered(self) -> Judgement | None:
        """A deny before an allow. What may be forbidden is allowed only by who saw exactly this."""
        known = [one for one in self._policy.memory.decisions() if one.holds(self._subject.situation, self._now)]
        for one in sorted(known, key=lambda one: one.rule.decide != "deny"):
            found = match(one.rule, self._subject).answer
            if found != "yes" or (one.rule.decide == "allow" and self._doubt is not None and not one.rule.exactly):
                continue
            verb = "allowed" if one.rule.decide == "allow" else "denied"
            why = f"a person {verb} this before, {_SCOPES[one.scope]}" + (f": {one.rule.because}" if one.rule.because else "")
            return self.says(one.rule.decide, "remembered", why, remembered=one)
        self._note("remembered", "no person has decided this call before")
        return None

    def ask(self) -> Judgement | None:
        if self._doubt is not None:
            rule, why = self._doubt
            return self.says("ask", "ask rules", f"the rule `{rule.id}` may deny it: {why}", rule=rule)
        if (reading := self._subject.reading) is not None and reading.unread:
            return self.says("ask", "ask rules", reading.unread)
        seen: list[tuple[Rule, Match]] = []
        for rule in self._policy.rules_by("ask"):
            found = match(rule, self._subject)
            if found.answer == "maybe":
                return self.says("ask", "ask rules", f"{_because(rule, 'may ask a person')} ({found.why})", rule=rule)
            if found.answer == "yes":
                return self.says("ask", "ask rules", _because(rule, "asks a person"), rule=rule)
            seen.append((rule, found))
        self._passed("ask rules", seen)
        return None

    def allow(self) -> Judgement | None:
        seen: list[tuple[Rule, Match]] = []
        for rule in self._policy.rules_by("allow"):
            found = match(rule, self._subject)
            if found.answer == "yes":
                return self.says("allow", "allow rules", _because(rule, "allows it"), rule=rule)
            seen.append((rule, found))
        self._passed("allow rules", seen)
        return None

    def mode(self) -> Judgement:
        situation = self._subject.situation
        mode = self._policy.get_mode(situation.session, situation.profile)
        if mode not in MODES:
            error = f"unknown mode {mode!r}: there are {', '.join(MODES)}"
            return self.says("deny", "mode", error, error=error)
        if mode == "manual":
            return self.says("ask", "mode", "no rule decides it, and in the mode `manual` a person is asked")
        return self.says("allow", "mode", f"no rule decides it, and the mode `{mode}`, which somebody chose, allows the rest")

    def says(
        self,
        decision: Decide,
        stage: Stage,
        why: str,
        *,
        rule: Rule | None = None,
        remembered: Remembered | None = None,
        error: str = "",
    ) -> Judgement:
        self._note(stage, why)
        return Judgement(
            decision=decision, stage=stage, why=why, rule=rule, remembered=remembered, steps=tuple(self._steps), error=error
        )

    def _passed(self, stage: Stage, seen: list[tuple[Rule, Match]]) -> None:
        """No rule of this stage decides; of those that are about this tool a person may wonder why."""
        if len(seen) == 1:
            [(rule, found)] = seen
            self._note(stage, f"the only one, `{rule.id}`, does not match: {found.why}")
            return
        near = [f"`{rule.id}` does not: {found.why}" for rule, found in seen if found.near]
        if len(near) > _MOST_NEAR:
            near[_MOST_NEAR:] = [f"nor do {len(near) - _MOST_NEAR} more for this tool"]
        self._note(stage, "; ".join([f"none of {len(seen)} matches" if seen else "there are none", *near]))

    def _note(self, stage: Stage, said: str) -> None:
        self._steps.append(Step(stage, said))


_SCOPES: dict[str, str] = {"session": "for this session", "project": "for this project", "always": "for always"}


def _because(rule: Rule, does: str) -> str:
    return f"the rule `{rule.id}` {does}" + (f": {rule.because}" if rule.because else "")
