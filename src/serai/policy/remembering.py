"""What a remembered decision is about: as narrow as it can be and still of use.

A bare tool name would be too wide (spec agents 1.16): a command is remembered by its words, a file by where it is, a URL by its
host, and anything else by its very arguments; and always for the one who asked.
"""

from __future__ import annotations

import secrets
import shlex
from dataclasses import replace
from typing import Any

from serai.limits import Limits
from serai.model.ask import Allow, Deny, Remember
from serai.policy.commands import Pattern
from serai.policy.globs import escaped
from serai.policy.matching import KINDS
from serai.policy.memory import Decisions
from serai.policy.rules import Rule, read_flag
from serai.policy.subject import BESIDE_COMMAND, Situation, Subject

__all__ = ["flag_for", "remember", "rule_as", "rule_for"]

_FILES = frozenset({"read", "write", "edit", "grep", "find"})
_BESIDE_URL = frozenset({"url", "prompt", "timeout", "format", "max_length"})


def remember(decisions: Decisions, rule: Rule, situation: Situation, scope: Remember, limits: Limits) -> bool:
    """Keep it for this scope; whether there is one: a session without a name cannot be known again."""
    key = situation.key(scope)
    if scope == "once" or (scope != "always" and not key):
        return False
    decisions.remember(rule, scope, key, None if scope == "always" else limits.remember * 86400.0)
    return True


def rule_as(flag: str, decision: Allow | Deny) -> Rule:
    """A wider rule than the call itself, in the words of `--allow`."""
    rule = read_flag(flag, "allow" if isinstance(decision, Allow) else "deny", "--as")
    return replace(rule, id=f"remembered-{secrets.token_hex(4)}", because="" if isinstance(decision, Allow) else decision.why)


def rule_for(subject: Subject, decision: Allow | Deny) -> Rule:
    """The rule that says the same again."""
    allows = isinstance(decision, Allow)
    owner = subject.situation.owner
    return Rule(
        id=f"remembered-{secrets.token_hex(4)}",
        decide="allow" if allows else "deny",
        who=(_just(subject.who),),
        tool=(_just(subject.call.name),),
        owner=(_just(owner) if owner else "built-in",),
        because="" if isinstance(decision, Allow) else _written(decision.why),
        **_about(subject),
    )


def _about(subject: Subject) -> dict[str, Any]:
    keys = _words(subject) or _files(subject) or _hosts(subject)
    if not keys or subject.cwds.odd:
        return {"exactly": subject.digest}
    if subject.cwds.values != (subject.cwd,):  # it names its own: then it is about that too
        keys["cwd"] = subject.cwds.values
    for name in ("path", "cwd"):
        if name in keys:
            keys[name] = tuple(map(escaped, keys[name]))
            if any(text != _written(text) for text in keys[name]):  # a name that is no text cannot be kept
                return {"exactly": subject.digest}
    return keys


def _words(subject: Subject) -> dict[str, Any]:
    reading = subject.reading
    if reading is None or reading.simple is None or not subject.arguments.keys() <= BESIDE_COMMAND:
        return {}
    pattern = shlex.join(reading.simple)
    try:
        Pattern(pattern)
    except ValueError:  # longer than a pattern may be, or with characters that cannot be seen
        return {}
    return {"command": (pattern,)}


def _files(subject: Subject) -> dict[str, Any]:
    known = subject.call.name in _FILES and subject.places.values and not subject.places.odd
    return {"path": subject.places.values} if known else {}


def _hosts(subject: Subject) -> dict[str, Any]:
    known = subject.call.name == "fetch" and subject.hosts.values and not subject.hosts.odd
    if not known or not subject.arguments.keys() <= _BESIDE_URL:
        return {}
    return {"host": tuple(dict.fromkeys(_address(host, port) for host, port in subject.hosts.values))}


def _just(name: str) -> str:
    """A pattern of this name alone. After a backslash `agent` is that name, and not any agent; one alone matches no name."""
    text = escaped(_written(name))
    return f"\\{text}" if text in ("", *KINDS) else text


def _written(text: str) -> str:
    """As JSON can hold it."""
    return text.encode(errors="backslashreplace").decode()


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def flag_for(subject: Subject) -> str:
    """The `--allow` that would let this call through."""
    about = _about(subject)
    pattern = next((texts[0] for key, texts in about.items() if key not in ("exactly", "cwd") and len(texts) == 1), "")
    return f"--allow {shlex.quote(f'{subject.call.name}:{pattern}' if pattern else subject.call.name)}"
