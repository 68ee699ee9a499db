"""Rules, calls and situations in few words."""

from __future__ import annotations

from itertools import count
from typing import Any

from serai.model.tools import NativeCall, ToolCall
from serai.policy.engine import Judgement, Policy, Remembered
from serai.policy.matching import Match, match
from serai.policy.rules import Decide, Rule, Rules, read_rule
from serai.policy.subject import Situation, Subject

NOW = 1_000_000.0
HERE = Situation(cwd="/nowhere/project", session="one", agent="claude")
_numbers = count()


def rule(decide: Decide, **keys: Any) -> Rule:
    anything = {"tool": "*"} if decide == "allow" and "owner" not in keys else {}  # what allows has to say so
    return read_rule({"id": f"{decide}-{next(_numbers)}", "decide": decide, **anything, **keys}, "rules.toml")


class Known:
    """A memory that holds just this."""

    def __init__(self, *rules: Rule, scope: Any = "always") -> None:
        self._known = tuple(Remembered(f"memory-{at}", rule, scope, at=NOW - 1) for at, rule in enumerate(rules))

    def decisions(self) -> tuple[Remembered, ...]:
        return self._known


def policy(*rules: Rule, mode: str = "", remembered: tuple[Rule, ...] = ()) -> Policy:
    return Policy(Rules(rules=rules, mode=mode), memory=Known(*remembered), clock=lambda: NOW)


def subject(tool: str, arguments: Any, situation: Situation = HERE, *, native: str = "", asker: str = "") -> Subject:
    return Subject(ToolCall(tool, arguments, asker=asker, native=NativeCall(native) if native else None), situation)


def matched(rule: Rule, tool: str, arguments: Any, situation: Situation = HERE, *, native: str = "", asker: str = "") -> Match:
    return match(rule, subject(tool, arguments, situation, native=native, asker=asker))


def judged(policy: Policy, tool: str, arguments: Any, situation: Situation = HERE, **asked: Any) -> Judgement:
    return policy.judge(ToolCall(tool, arguments), situation, **asked)
