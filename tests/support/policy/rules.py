"""Rules, calls and situations in few words."""

from __future__ import annotations

from itertools import count
from typing import Any

from serai.model.tools import NativeCall, ToolCall
from serai.policy.call_facts import CallContext, CallFacts
from serai.policy.engine import Policy, PolicyDecision, RememberedDecision, RuleMatch, match_rule
from serai.policy.rules import Decide, Rule, Rules, read_rule

NOW = 1_000_000.0
HERE = CallContext(cwd="/nowhere/project", session="one", agent="claude")
_numbers = count()


def rule(decide: Decide, **keys: Any) -> Rule:
    anything = {"tool": "*"} if decide == "allow" and "owner" not in keys else {}  # what allows has to say so
    return read_rule({"id": f"{decide}-{next(_numbers)}", "decide": decide, **anything, **keys}, "rules.toml")


class Known:
    """A memory that holds just this."""

    def __init__(self, *rules: Rule, scope: Any = "always") -> None:
        self._known = tuple(RememberedDecision(f"memory-{at}", rule, scope, at=NOW - 1) for at, rule in enumerate(rules))

    def list_decisions(self) -> tuple[RememberedDecision, ...]:
        return self._known


def policy(*rules: Rule, mode: str = "", remembered: tuple[Rule, ...] = ()) -> Policy:
    return Policy(Rules(rules=rules, mode=mode), memory=Known(*remembered), clock=lambda: NOW)


def subject(tool: str, arguments: Any, situation: CallContext = HERE, *, native: str = "", asker: str = "") -> CallFacts:
    return CallFacts(ToolCall(tool, arguments, asker=asker, native=NativeCall(native) if native else None), situation)


def check(rule: Rule, tool: str, arguments: Any, situation: CallContext = HERE, *, native: str = "", asker: str = "") -> RuleMatch:
    return match_rule(rule, subject(tool, arguments, situation, native=native, asker=asker))


def judge_call(policy: Policy, tool: str, arguments: Any, situation: CallContext = HERE, **asked: Any) -> PolicyDecision:
    return policy.judge(ToolCall(tool, arguments), situation, **asked)
