"""One engine for every tool call and every approval: whether a rule matches, and which rule decides.

The order, each step only when the one before said nothing:

    deny rules -> a remembered decision -> ask rules -> allow rules -> the session's mode -> a person -> deny

A rule matches with yes, no, or maybe, and a reason. An allow rule has to be certain of everything in the call. A deny or ask rule
must not be got around: it looks at every command in a text, at each path as written and as resolved, and where something cannot be
known it says "maybe", which becomes a question to a person. So does a command that does not parse: neither an allow rule nor a
mode gets it past a person. Nothing here waits or asks; `serai.policy.approver` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from serai.model.approvals import Remember
from serai.model.tools import ToolCall
from serai.policy.call_facts import BESIDE, BESIDE_COMMAND, CWD, GLOBS, PATHS, URLS, CallContext, CallFacts, to_text
from serai.policy.rules import MODES, Decide, Mode, Rule, Rules

KINDS = ("agent", "guest", "person", "built-in")  # words of `who` and `owner` that mean many


class RuleMatch(NamedTuple):
    """`why` says what did not match, or what cannot be known; `near`: the tool did match, so a person may wonder."""

    answer: Literal["yes", "no", "maybe"]
    why: str = ""
    near: bool = False


_YES = RuleMatch("yes")


def match_rule(rule: Rule, facts: CallFacts) -> RuleMatch:
    """The first key that does not match decides; a maybe only when all the others do."""
    if not _matches_tool(rule, facts):
        return RuleMatch("no", f"it is about the tool {_join_patterns(rule.tool)}")
    if not _matches_who(rule, facts):
        return RuleMatch("no", f"it is about what {_join_patterns(rule.who)} asks for")
    if not _matches_owner(rule, facts):
        return RuleMatch("no", f"it is about tools of {_join_patterns(rule.owner)}")
    allows = rule.decide == "allow"
    parts = [part(rule, facts) for part in (_ALLOWS if allows else _FINDS)]
    if refused := next((why for answer, why in parts if answer == "no"), ""):
        return RuleMatch("no", refused, near=True)
    doubt = next((why for answer, why in parts if answer == "maybe"), "")
    return RuleMatch("maybe", doubt, near=True) if doubt else _YES


# -- who, whose, what -------------------------------------------------------------------------------------------------------------


def _matches_tool(rule: Rule, facts: CallFacts) -> bool:
    """By its neutral name; what denies or asks means an agent's own name for it too."""
    names = [facts.call.name]
    if rule.decide != "allow" and facts.call.native is not None:
        names.append(facts.call.native.name)
    return not rule.tool or any(_matches_any(rule.patterns["tool"], name) for name in names)


def _matches_who(rule: Rule, facts: CallFacts) -> bool:
    kind = "guest" if facts.is_guest else "person" if facts.who == "person" else "agent"
    return not rule.who or kind in rule.who or _matches_any(rule.patterns["who"], facts.who)


def _matches_owner(rule: Rule, facts: CallFacts) -> bool:
    owner = facts.situation.owner
    if not rule.owner or ("guest" if owner else "built-in") in rule.owner:
        return True
    return bool(owner) and _matches_any(rule.patterns["owner"], owner)


# -- what it says: certain, for rules that allow ----------------------------------------------------------------------------------

_Part = tuple[Literal["yes", "no", "maybe"], str]
_FINE: _Part = ("yes", "")


def _allows_command(rule: Rule, facts: CallFacts) -> _Part:
    if not rule.command:
        return _FINE
    reading = facts.reading
    if reading is None:
        return "no", "the call has no command"
    if reading.simple is None:
        return "no", f"the command is not one simple command{f' ({reading.unread})' if reading.unread else ''}"
    if any(pattern.allows(reading.simple) for pattern in rule.patterns["command"]):
        return _FINE
    return "no", f"the command is not {_join_patterns(rule.command)}"


def _allows_path(rule: Rule, facts: CallFacts) -> _Part:
    if not rule.path:
        return _FINE
    found = facts.places
    if found.odd:
        return "no", f"it has {found.odd}"
    if not found.values:
        return "no", "the call has no path"
    for place in found.values:
        if not any(pattern.allows(place, facts.cwd) for pattern in rule.patterns["path"]):
            return "no", f"{place} is not within {_join_patterns(rule.path)}"
    return _FINE


def _allows_host(rule: Rule, facts: CallFacts) -> _Part:
    if not rule.host:
        return _FINE
    found = facts.hosts
    if found.odd or not found.values:
        return "no", f"it has {found.odd or 'no URL'}"
    for host, port in found.values:
        if not any(pattern.matches(host, port) for pattern in rule.patterns["host"]):
            return "no", f"the host {host} is not {_join_patterns(rule.host)}"
    return _FINE


def _allows_input(rule: Rule, facts: CallFacts) -> _Part:
    for name, patterns in rule.patterns["input"].items():
        if name == "*":
            continue  # whatever else the call says: `_allows_rest`
        texts, odd = facts.get_field(name)
        if odd:
            return "no", f"it has {odd}"
        if not texts or not all(_matches_any(patterns, text) for text in texts):
            return "no", f"`{name}` is not {_join_patterns(rule.input[name])}"
    if rule.exactly and rule.exactly != facts.digest:
        return "no", "it was about other arguments"
    return _FINE


def _allows_cwd(rule: Rule, facts: CallFacts) -> _Part:
    """A rule that names no folder is about the session's: the same command is another one where another Makefile lies."""
    if not rule.cwd and not facts.names_cwd and not facts.odd:  # it is the session's, wherever that really lies
        return _FINE
    if facts.cwds.odd:
        return "no", f"it has {facts.cwds.odd}"
    for cwd in facts.cwds.values:
        if rule.cwd:
            if not any(pattern.allows(cwd, facts.cwd) for pattern in rule.patterns["cwd"]):
                return "no", f"it would run in {cwd}, not in {_join_patterns(rule.cwd)}"
        elif cwd != facts.cwd and not rule.exactly:
            return "no", f"it would run in {cwd}, and the rule names no `cwd`"
    return _FINE


def _allows_rest(rule: Rule, facts: CallFacts) -> _Part:
    """A rule that speaks of arguments has to speak of all of them, but for those that are known to change nothing."""
    if rule.exactly or not (rule.command or rule.path or rule.host or rule.input):
        return _FINE
    if facts.leaves.odd:
        return "no", f"it has {facts.leaves.odd}"
    others = rule.patterns["input"].get("*", ())
    for name, value in facts.leaves.values:
        if not _covers_field(rule, facts.call.name, name) and not (others and _matches_any(others, to_text(value))):
            return "no", f"the call also says `{name}`, of which the rule says nothing"
    return _FINE


def _covers_field(rule: Rule, tool: str, name: str) -> bool:
    top, _, below = name.partition(".")
    beside = BESIDE.get(tool, frozenset())
    if top in beside and all(part in beside for part in below.split(".") if part):  # such as each of the `edits` of a file
        return True
    keys = {*CWD, *(PATHS if rule.path else ()), *(URLS if rule.host else ()), *(("command",) if rule.command else ())}
    keys |= set(GLOBS.get(tool, ())) if rule.path else set()
    return name in keys or any(name == key or name.startswith(f"{key}.") for key in rule.input if key != "*")


# -- what it says: anywhere, for rules that deny or ask ---------------------------------------------------------------------------


def _finds_command(rule: Rule, facts: CallFacts) -> _Part:
    if not rule.command:
        return _FINE
    answers = {pattern.finds(reading) for pattern in rule.patterns["command"] for reading in facts.readings}
    if "yes" in answers:
        return _FINE
    if "maybe" in answers:
        said = [reading.unread or "; ".join(reading.hidden) for reading in facts.readings]
        return "maybe", next(filter(None, said), "part of the command is known only when it runs")
    if facts.odd:
        return "maybe", f"it has {facts.odd}"
    if facts.reading is None and facts.call.name == "bash":
        return "maybe", "it has no `command` that could be looked at"
    if facts.readings and (extra := sorted(facts.arguments.keys() - BESIDE_COMMAND)):
        return "maybe", f"it also says `{extra[0]}`, which may change what runs"
    return "no", f"the command does not run {_join_patterns(rule.command)}" if facts.readings else "the call has no command"


def _finds_path(rule: Rule, facts: CallFacts) -> _Part:
    if not rule.path:
        return _FINE
    found = facts.places
    for place in (*found.values, *facts.named):
        if any(pattern.finds(place, facts.cwd) for pattern in rule.patterns["path"]):
            return _FINE
    if found.odd:
        return "maybe", f"it has {found.odd}"
    for folder in facts.searched:
        for pattern in rule.patterns["path"]:
            if pattern.may_be_below(folder, facts.cwd):
                return "maybe", f"it looks through all of {folder}, and `{pattern.text}` may be in there"
    others = facts.texts
    for place in others.values:
        if any(pattern.finds(place, facts.cwd) for pattern in rule.patterns["path"]):
            return "maybe", f"it says {place} in a place where a path is not looked for"
    return ("maybe", f"it has {others.odd}") if others.odd else ("no", f"no path is within {_join_patterns(rule.path)}")


def _finds_host(rule: Rule, facts: CallFacts) -> _Part:
    if not rule.host:
        return _FINE
    found = facts.hosts
    if any(pattern.matches(host, port) for host, port in found.values for pattern in rule.patterns["host"]):
        return _FINE
    return ("maybe", f"it has {found.odd}") if found.odd else ("no", f"no host is {_join_patterns(rule.host)}")


def _finds_input(rule: Rule, facts: CallFacts) -> _Part:
    doubt = ""
    for name, patterns in rule.patterns["input"].items():
        texts, odd = facts.get_field(name)
        if any(_matches_any(patterns, text) for text in texts):
            continue
        if not odd:
            return "no", f"`{name}` is not {_join_patterns(rule.input[name])}"
        doubt = odd
    if rule.exactly and rule.exactly != facts.digest:
        return "no", "it was about other arguments"
    return ("maybe", f"it has {doubt}") if doubt else _FINE


def _finds_cwd(rule: Rule, facts: CallFacts) -> _Part:
    if not rule.cwd:
        return _FINE
    found = facts.cwds
    if any(pattern.finds(cwd, facts.cwd) for cwd in (*found.values, facts.cwd) for pattern in rule.patterns["cwd"]):
        return _FINE
    return ("maybe", f"it has {found.odd}") if found.odd else ("no", f"it would not run in {_join_patterns(rule.cwd)}")


_ALLOWS: tuple[Callable[[Rule, CallFacts], _Part], ...] = (
    *(_allows_command, _allows_path, _allows_host, _allows_input),
    *(_allows_cwd, _allows_rest),
)
_FINDS: tuple[Callable[[Rule, CallFacts], _Part], ...] = (_finds_command, _finds_path, _finds_host, _finds_input, _finds_cwd)


def _matches_any(patterns: Iterable[Any], text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in patterns)


def _join_patterns(texts: tuple[str, ...]) -> str:
    return " or ".join(f"`{text}`" for text in texts)


RulePhase = Literal["deny rules", "remembered", "ask rules", "allow rules", "mode"]

# What an agent's own permission mode means here (spec agents 5.2 B8). All but this one are about what the agent itself lets
# through before it asks, so whatever it does ask is put to a person: also in its `auto`, which is not ours.
AGENT_MODES: Mapping[str, Mode] = {"bypassPermissions": "skip"}
_MOST_NEAR = 3  # rules that an explanation of one stage names


def map_agent_mode(native: str) -> Mode:
    """Our mode for a session that runs in this mode of its agent. Questions are asked in every mode."""
    return AGENT_MODES.get(native, "manual")


@dataclass(frozen=True, slots=True)
class RememberedDecision:
    """A decision that a person made before: a rule, for whom it holds, and until when."""

    id: str
    rule: Rule
    scope: Remember
    key: str = ""  # the session or the project
    at: float = 0.0
    expires: float | None = None

    def holds(self, situation: CallContext, now: float) -> bool:
        """Whether it is of this scope, and of this time: a clock that was set back makes no allow valid again, loses no deny."""
        early = now < self.at and self.rule.decide == "allow"
        if early or (self.expires is not None and now >= self.expires):
            return False
        if self.scope == "always":
            return True
        return self.scope != "once" and bool(self.key) and self.key == situation.get_scope_key(self.scope)


class DecisionMemory(Protocol):
    """Where decisions are remembered."""

    def list_decisions(self) -> tuple[RememberedDecision, ...]: ...


class EmptyDecisionMemory:
    """Nothing is remembered."""

    def list_decisions(self) -> tuple[RememberedDecision, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """What one stage said, for the explanation."""

    stage: RulePhase
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDecision:
    """What the policy says, which stage said it and why. `ask` goes to a person, and without one it is a deny."""

    decision: Decide
    stage: RulePhase
    why: str
    rule: Rule | None = None
    remembered: RememberedDecision | None = None
    steps: tuple[PhaseResult, ...] = ()
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

    def __init__(self, rules: Rules, *, memory: DecisionMemory | None = None, clock: Callable[[], float] = time.time) -> None:
        self.rules = rules
        self.memory: DecisionMemory = memory or EmptyDecisionMemory()
        self._clock = clock
        self._by: Mapping[Decide, tuple[Rule, ...]] = {decide: rules.select(decide) for decide in ("deny", "ask", "allow")}
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

    def find_denial(self, call: ToolCall, situation: CallContext) -> PolicyDecision | None:
        """Deny rules alone, for whoever wants to know early; None: they say nothing."""
        verdict = _Judgement(self, CallFacts(call, situation), self._clock()).deny()
        return verdict if verdict is not None and verdict.decision == "deny" else None

    def judge(self, call: ToolCall, situation: CallContext, *, needs_person: bool = False) -> PolicyDecision:
        """`needs_person`: only a person can answer it, such as the end of a plan; then nothing but a deny decides here."""
        judgement = _Judgement(self, CallFacts(call, situation), self._clock())
        verdict = judgement.deny() or judgement.recall() or judgement.ask() or judgement.allow() or judgement.apply_mode()
        if needs_person and verdict.decision == "allow":
            return judgement.conclude("ask", verdict.stage, "only a person can answer this")
        return verdict

    def get_rules(self, decide: Decide) -> tuple[Rule, ...]:
        return self._by[decide]


class _Judgement:
    """One call on its way through the stages; each says what it thought."""

    def __init__(self, policy: Policy, facts: CallFacts, now: float) -> None:
        self._policy = policy
        self._facts = facts
        self._now = now
        self._steps: list[PhaseResult] = []
        self._doubt: tuple[Rule, str] | None = None

    def deny(self) -> PolicyDecision | None:
        seen: list[tuple[Rule, RuleMatch]] = []
        for rule in self._policy.get_rules("deny"):
            found = match_rule(rule, self._facts)
            if found.answer == "yes":
                return self.conclude("deny", "deny rules", _explain_rule(rule, "denies it"), rule=rule)
            if found.answer == "maybe" and self._doubt is None:
                self._doubt = rule, found.why
            seen.append((rule, found))
        if self._doubt is None:
            self._note_misses("deny rules", seen)
        else:
            self._note("deny rules", f"`{self._doubt[0].id}` may mean this call: {self._doubt[1]}")
        return None

    def recall(self) -> PolicyDecision | None:
        """A deny before an allow. What may be forbidden is allowed only by who saw exactly this."""
        known = [one for one in self._policy.memory.list_decisions() if one.holds(self._facts.situation, self._now)]
        for one in sorted(known, key=lambda one: one.rule.decide != "deny"):
            found = match_rule(one.rule, self._facts).answer
            if found != "yes" or (one.rule.decide == "allow" and self._doubt is not None and not one.rule.exactly):
                continue
            verb = "allowed" if one.rule.decide == "allow" else "denied"
            why = f"a person {verb} this before, {_SCOPES[one.scope]}" + (f": {one.rule.because}" if one.rule.because else "")
            return self.conclude(one.rule.decide, "remembered", why, remembered=one)
        self._note("remembered", "no person has decided this call before")
        return None

    def ask(self) -> PolicyDecision | None:
        if self._doubt is not None:
            rule, why = self._doubt
            return self.conclude("ask", "ask rules", f"the rule `{rule.id}` may deny it: {why}", rule=rule)
        if (reading := self._facts.reading) is not None and reading.unread:
            return self.conclude("ask", "ask rules", reading.unread)
        seen: list[tuple[Rule, RuleMatch]] = []
        for rule in self._policy.get_rules("ask"):
            found = match_rule(rule, self._facts)
            if found.answer == "maybe":
                return self.conclude("ask", "ask rules", f"{_explain_rule(rule, 'may ask a person')} ({found.why})", rule=rule)
            if found.answer == "yes":
                return self.conclude("ask", "ask rules", _explain_rule(rule, "asks a person"), rule=rule)
            seen.append((rule, found))
        self._note_misses("ask rules", seen)
        return None

    def allow(self) -> PolicyDecision | None:
        seen: list[tuple[Rule, RuleMatch]] = []
        for rule in self._policy.get_rules("allow"):
            found = match_rule(rule, self._facts)
            if found.answer == "yes":
                return self.conclude("allow", "allow rules", _explain_rule(rule, "allows it"), rule=rule)
            seen.append((rule, found))
        self._note_misses("allow rules", seen)
        return None

    def apply_mode(self) -> PolicyDecision:
        situation = self._facts.situation
        mode = self._policy.get_mode(situation.session, situation.profile)
        if mode not in MODES:
            error = f"unknown mode {mode!r}: there are {', '.join(MODES)}"
            return self.conclude("deny", "mode", error, error=error)
        if mode == "manual":
            return self.conclude("ask", "mode", "no rule decides it, and in the mode `manual` a person is asked")
        return self.conclude("allow", "mode", f"no rule decides it, and the mode `{mode}`, which somebody chose, allows the rest")

    def conclude(
        self,
        decision: Decide,
        stage: RulePhase,
        why: str,
        *,
        rule: Rule | None = None,
        remembered: RememberedDecision | None = None,
        error: str = "",
    ) -> PolicyDecision:
        self._note(stage, why)
        return PolicyDecision(
            decision=decision, stage=stage, why=why, rule=rule, remembered=remembered, steps=tuple(self._steps), error=error
        )

    def _note_misses(self, stage: RulePhase, seen: list[tuple[Rule, RuleMatch]]) -> None:
        """No rule of this stage decides; of those that are about this tool a person may wonder why."""
        if len(seen) == 1:
            [(rule, found)] = seen
            self._note(stage, f"the only one, `{rule.id}`, does not match: {found.why}")
            return
        near = [f"`{rule.id}` does not: {found.why}" for rule, found in seen if found.near]
        if len(near) > _MOST_NEAR:
            near[_MOST_NEAR:] = [f"nor do {len(near) - _MOST_NEAR} more for this tool"]
        self._note(stage, "; ".join([f"none of {len(seen)} matches" if seen else "there are none", *near]))

    def _note(self, stage: RulePhase, said: str) -> None:
        self._steps.append(PhaseResult(stage, said))


_SCOPES: dict[str, str] = {"session": "for this session", "project": "for this project", "always": "for always"}


def _explain_rule(rule: Rule, does: str) -> str:
    return f"the rule `{rule.id}` {does}" + (f": {rule.because}" if rule.because else "")
