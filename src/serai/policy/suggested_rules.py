"""What a remembered decision is about: as narrow as it can be and still of use.

A bare tool name would be too wide (spec agents 1.16): a command is remembered by its words, a file by where it is, a URL by its
host, and anything else by its very arguments; and always for the one who asked.
"""

from __future__ import annotations

import os
import secrets
import shlex
from dataclasses import dataclass, replace
from typing import Any

from serai.errors import BadSettings
from serai.limits import PolicyLimits
from serai.model.approvals import Allow, Deny, Remember
from serai.model.tools import ToolCall
from serai.plain_text import escape_surrogates
from serai.policy.call_facts import BESIDE, BESIDE_COMMAND, CallContext, CallFacts
from serai.policy.decision_store import DecisionStore
from serai.policy.engine import KINDS, PolicyDecision, match_rule
from serai.policy.patterns import escape_glob
from serai.policy.rules import Decide, Rule, parse_rule_flag

_FILES = frozenset({"read", "write", "edit", "grep", "find"})


def remember_decision(decisions: DecisionStore, rule: Rule, situation: CallContext, scope: Remember, limits: PolicyLimits) -> bool:
    """Keep it for this scope; whether there is one: a session without a name cannot be known again.

    A command that is not for everywhere is about this folder: in another one another Makefile lies.
    """
    key = situation.get_scope_key(scope)
    if scope == "once" or (scope != "always" and not key):
        return False
    if scope != "always" and rule.command and not rule.cwd:
        folder = escape_glob(os.path.realpath(situation.cwd))
        if folder != escape_surrogates(folder):  # a name that is no text cannot be kept
            return False
        rule = replace(rule, cwd=(folder,))
    decisions.remember(rule, scope, key, None if scope == "always" else limits.remember * 86400.0)
    return True


def build_wider_rule(flag: str, decision: Allow | Deny, facts: CallFacts) -> Rule:
    """A wider rule than the call itself, in the words of `--allow`; for whoever asked, like any other answer."""
    rule = parse_rule_flag(flag, "allow" if isinstance(decision, Allow) else "deny", "--as")
    return replace(rule, source="", **_describe_asker(facts, decision))


def build_rule(facts: CallFacts, decision: Allow | Deny) -> Rule:
    """The rule that says the same again."""
    decide: Decide = "allow" if isinstance(decision, Allow) else "deny"
    rule = Rule(decide=decide, tool=(_escape_name(facts.call.name),), **_describe_asker(facts, decision), **_make_keys(facts))
    if rule.exactly or match_rule(rule, facts).answer == "yes":
        return rule
    # It says more than such a rule speaks of.
    return Rule(decide=decide, tool=rule.tool, exactly=facts.digest, **_describe_asker(facts, decision))


def _describe_asker(facts: CallFacts, decision: Allow | Deny) -> dict[str, Any]:
    owner = facts.situation.owner
    return {
        "id": f"remembered-{secrets.token_hex(4)}",
        "who": (_escape_name(facts.who),),
        "owner": (_escape_name(owner) if owner else "built-in",),
        "because": "" if isinstance(decision, Allow) else escape_surrogates(decision.why),
    }


def _make_keys(facts: CallFacts) -> dict[str, Any]:
    keys = _build_command(facts) or _build_paths(facts) or _build_hosts(facts)
    if not keys or facts.cwds.odd:
        return {"exactly": facts.digest}
    if facts.cwds.values != (facts.cwd,):  # it names its own: then it is about that too
        keys["cwd"] = facts.cwds.values
    for name in ("path", "cwd"):
        if name in keys:
            keys[name] = tuple(map(escape_glob, keys[name]))
            if any(text != escape_surrogates(text) for text in keys[name]):  # a name that is no text cannot be kept
                return {"exactly": facts.digest}
    return keys


def _build_command(facts: CallFacts) -> dict[str, Any]:
    reading = facts.reading
    if reading is None or reading.simple is None or not facts.arguments.keys() <= BESIDE_COMMAND:
        return {}
    from serai.policy.commands.reader import CommandPattern

    pattern = " ".join(map(_quote, reading.simple))
    try:
        CommandPattern(pattern)
    except ValueError:  # longer than a pattern may be, or with characters that cannot be seen
        return {}
    return {"command": (pattern,)}


def _quote(word: str) -> str:
    """Like `shlex.quote`, which takes letters beyond ASCII for special."""
    return word if word and all(char.isalnum() or char in "@%+=:,./-_" for char in word) else shlex.quote(word)


def _build_paths(facts: CallFacts) -> dict[str, Any]:
    known = facts.call.name in _FILES and facts.places.values and not facts.places.odd
    return {"path": facts.places.values} if known else {}


def _build_hosts(facts: CallFacts) -> dict[str, Any]:
    known = facts.call.name == "fetch" and facts.hosts.values and not facts.hosts.odd
    if not known or not facts.arguments.keys() <= BESIDE["fetch"] | {"url"}:
        return {}
    return {"host": tuple(dict.fromkeys(_format_address(host, port) for host, port in facts.hosts.values))}


def _escape_name(name: str) -> str:
    """A pattern of this name alone. After a backslash `agent` is that name, and not any agent; one alone matches no name."""
    text = escape_glob(escape_surrogates(name))
    return f"\\{text}" if text in ("", *KINDS) else text


def _format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# -- what would let a call through ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleAdvice:
    """What would let a call through that the policy does not.

    `flag` is the `--allow` that really does, `wider` that it lets every other call of the tool through too. Without a flag
    `why_not` says what stands in the way and what to change. `remember`: a person's answer can also be kept for the next time.
    """

    flag: str = ""
    wider: bool = False
    why_not: str = ""
    remember: bool = False


def advise(call: ToolCall, situation: CallContext, judged: PolicyDecision, *, needs_person: bool = False) -> RuleAdvice:
    """`judged` is what the policy says of the call; `needs_person` as it was for that."""
    if judged.decision == "allow":
        return RuleAdvice()
    if needs_person:
        return RuleAdvice(why_not="only a person can answer it")
    remember = judged.decision == "ask" and _can_be_remembered(call, situation, judged)
    if judged.stage != "mode":  # which is asked after the rules that allow: no other stage would be changed by one
        return RuleAdvice(why_not=_explain_obstacle(judged), remember=remember)
    facts = CallFacts(call, situation)
    if _lets_through(flag := build_flag(facts), facts):
        return RuleAdvice(flag=flag, wider=flag == f"--allow {shlex.quote(escape_glob(call.name))}", remember=remember)
    return RuleAdvice(why_not="no flag can say it: allow it with a rule in --policy FILE", remember=remember)


def _explain_obstacle(judged: PolicyDecision) -> str:
    if judged.remembered is not None:
        return f"a person said no for the next time too: serai policy forget {judged.remembered.id}"
    if judged.rule is None:
        return "a command that cannot be read is always asked, whatever rule allows it: write it more plainly"
    rule = f"the rule `{judged.rule.id}`" + (f" of {judged.rule.source}" if judged.rule.source else "")
    if judged.decision == "deny":
        return f"change {rule}: nothing else gets past a rule that denies"
    if judged.rule.decide == "deny":
        return f"write the call more plainly, or change {rule}: what it cannot see is always asked"
    return f"change {rule}: rules that ask come before those that allow"


def _can_be_remembered(call: ToolCall, situation: CallContext, judged: PolicyDecision) -> bool:
    """Whether a yes of a person would hold the next time: where a rule may deny it, only for exactly the same."""
    rule = build_rule(CallFacts(call, situation), Allow())
    doubt = judged.rule is not None and judged.rule.decide == "deny"
    return (bool(rule.exactly) or not doubt) and match_rule(rule, CallFacts(call, situation)).answer == "yes"


def build_flag(facts: CallFacts) -> str:
    """The `--allow` that says what this call is; whether that lets it through, `advise` knows."""
    about = _make_keys(facts)
    pattern = next((texts[0] for key, texts in about.items() if key not in ("exactly", "cwd") and len(texts) == 1), "")
    tool = escape_glob(facts.call.name)
    return f"--allow {shlex.quote(f'{tool}:{pattern}' if pattern else tool)}"


def _lets_through(flag: str, facts: CallFacts) -> bool:
    try:
        rule = parse_rule_flag(shlex.split(flag)[1])
    except BadSettings:  # the tool's name has a colon, the command a hundred words
        return False
    return match_rule(rule, facts).answer == "yes"
