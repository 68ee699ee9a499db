"""Whether a rule means a call: yes, no, or maybe, and why not.

A rule that allows has to be certain of everything the call says. A rule that denies or asks must not be got around: it looks at
every command in a text, at each path as written and as resolved, and where something cannot be known it says "maybe", which
becomes a question to a person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from serai.policy.rules import Rule
from serai.policy.subject import BESIDE, BESIDE_COMMAND, CWD, GLOBS, PATHS, URLS, Subject, text_of

__all__ = ["KINDS", "Match", "match"]

KINDS = ("agent", "guest", "person", "built-in")  # words of `who` and `owner` that mean many


class Match(NamedTuple):
    """`why` says what did not match, or what cannot be known; `near`: the tool did match, so a person may wonder."""

    answer: Literal["yes", "no", "maybe"]
    why: str = ""
    near: bool = False


_YES = Match("yes")


def match(rule: Rule, subject: Subject) -> Match:
    """The first key that does not match decides; a maybe only when all the others do."""
    if not _tool(rule, subject):
        return Match("no", f"it is about the tool {_listed(rule.tool)}")
    if not _who(rule, subject):
        return Match("no", f"it is about what {_listed(rule.who)} asks for")
    if not _owner(rule, subject):
        return Match("no", f"it is about tools of {_listed(rule.owner)}")
    allows = rule.decide == "allow"
    parts = [part(rule, subject) for part in (_ALLOWS if allows else _FINDS)]
    if refused := next((why for answer, why in parts if answer == "no"), ""):
        return Match("no", refused, near=True)
    doubt = next((why for answer, why in parts if answer == "maybe"), "")
    return Match("maybe", doubt, near=True) if doubt else _YES


# -- who, whose, what -------------------------------------------------------------------------------------------------------------


def _tool(rule: Rule, subject: Subject) -> bool:
    """By its neutral name; what denies or asks means an agent's own name for it too."""
    names = [subject.call.name]
    if rule.decide != "allow" and subject.call.native is not None:
        names.append(subject.call.native.name)
    return not rule.tool or any(_any(rule.patterns["tool"], name) for name in names)


def _who(rule: Rule, subject: Subject) -> bool:
    kind = "guest" if subject.guest else "person" if subject.who == "person" else "agent"
    return not rule.who or kind in rule.who or _any(rule.patterns["who"], subject.who)


def _owner(rule: Rule, subject: Subject) -> bool:
    owner = subject.situation.owner
    if not rule.owner or ("guest" if owner else "built-in") in rule.owner:
        return True
    return bool(owner) and _any(rule.patterns["owner"], owner)


# -- what it says: certain, for rules that allow ----------------------------------------------------------------------------------

_Part = tuple[Literal["yes", "no", "maybe"], str]
_FINE: _Part = ("yes", "")


def _allows_command(rule: Rule, subject: Subject) -> _Part:
    if not rule.command:
        return _FINE
    reading = subject.reading
    if reading is None:
        return "no", "the call has no command"
    if reading.simple is None:
        return "no", f"the command is not one simple command{f' ({reading.unread})' if reading.unread else ''}"
    if any(pattern.allows(reading.simple) for pattern in rule.patterns["command"]):
        return _FINE
    return "no", f"the command is not {_listed(rule.command)}"


def _allows_path(rule: Rule, subject: Subject) -> _Part:
    if not rule.path:
        return _FINE
    found = subject.places
    if found.odd:
        return "no", f"it has {found.odd}"
    if not found.values:
        return "no", "the call has no path"
    for place in found.values:
        if not any(pattern.allows(place, subject.cwd) for pattern in rule.patterns["path"]):
            return "no", f"{place} is not within {_listed(rule.path)}"
    return _FINE


def _allows_host(rule: Rule, subject: Subject) -> _Part:
    if not rule.host:
        return _FINE
    found = subject.hosts
    if found.odd or not found.values:
        return "no", f"it has {found.odd or 'no URL'}"
    for host, port in found.values:
        if not any(pattern.matches(host, port) for pattern in rule.patterns["host"]):
            return "no", f"the host {host} is not {_listed(rule.host)}"
    return _FINE


def _allows_input(rule: Rule, subject: Subject) -> _Part:
    for name, patterns in rule.patterns["input"].items():
        if name == "*":
            continue  # whatever else the call says: `_allows_rest`
        texts, odd = subject.field(name)
        if odd:
            return "no", f"it has {odd}"
        if not texts or not all(_any(patterns, text) for text in texts):
            return "no", f"`{name}` is not {_listed(rule.input[name])}"
    if rule.exactly and rule.exactly != subject.digest:
        return "no", "it was about other arguments"
    return _FINE


def _allows_cwd(rule: Rule, subject: Subject) -> _Part:
    """A rule that names no folder is about the session's: the same command is another one where another Makefile lies."""
    if not rule.cwd and not subject.names_cwd and not subject.odd:  # it is the session's, wherever that really lies
        return _FINE
    if subject.cwds.odd:
        return "no", f"it has {subject.cwds.odd}"
    for cwd in subject.cwds.values:
        if rule.cwd:
            if not any(pattern.allows(cwd, subject.cwd) for pattern in rule.patterns["cwd"]):
                return "no", f"it would run in {cwd}, not in {_listed(rule.cwd)}"
        elif cwd != subject.cwd and not rule.exactly:
            return "no", f"it would run in {cwd}, and the rule names no `cwd`"
    return _FINE


def _allows_rest(rule: Rule, subject: Subject) -> _Part:
    """A rule that speaks of arguments has to speak of all of them, but for those that are known to change nothing."""
    if rule.exactly or not (rule.command or rule.path or rule.host or rule.input):
        return _FINE
    if subject.leaves.odd:
        return "no", f"it has {subject.leaves.odd}"
    others = rule.patterns["input"].get("*", ())
    for name, value in subject.leaves.values:
        if not _spoken_of(rule, subject.call.name, name) and not (others and _any(others, text_of(value))):
            return "no", f"the call also says `{name}`, of which the rule says nothing"
    return _FINE


def _spoken_of(rule: Rule, tool: str, name: str) -> bool:
    top, _, below = name.partition(".")
    beside = BESIDE.get(tool, frozenset())
    if top in beside and all(part in beside for part in below.split(".") if part):  # such as each of the `edits` of a file
        return True
    keys = {*CWD, *(PATHS if rule.path else ()), *(URLS if rule.host else ()), *(("command",) if rule.command else ())}
    keys |= set(GLOBS.get(tool, ())) if rule.path else set()
    return name in keys or any(name == key or name.startswith(f"{key}.") for key in rule.input if key != "*")


# -- what it says: anywhere, for rules that deny or ask ---------------------------------------------------------------------------


def _finds_command(rule: Rule, subject: Subject) -> _Part:
    if not rule.command:
        return _FINE
    answers = {pattern.finds(reading) for pattern in rule.patterns["command"] for reading in subject.readings}
    if "yes" in answers:
        return _FINE
    if "maybe" in answers:
        said = [reading.unread or "; ".join(reading.hidden) for reading in subject.readings]
        return "maybe", next(filter(None, said), "part of the command is known only when it runs")
    if subject.odd:
        return "maybe", f"it has {subject.odd}"
    if subject.reading is None and subject.call.name == "bash":
        return "maybe", "it has no `command` that could be looked at"
    if subject.readings and (extra := sorted(subject.arguments.keys() - BESIDE_COMMAND)):
        return "maybe", f"it also says `{extra[0]}`, which may change what runs"
    return "no", f"the command does not run {_listed(rule.command)}" if subject.readings else "the call has no command"


def _finds_path(rule: Rule, subject: Subject) -> _Part:
    if not rule.path:
        return _FINE
    found = subject.places
    for place in (*found.values, *subject.named):
        if any(pattern.finds(place, subject.cwd) for pattern in rule.patterns["path"]):
            return _FINE
    if found.odd:
        return "maybe", f"it has {found.odd}"
    for folder in subject.searched:
        for pattern in rule.patterns["path"]:
            if pattern.may_be_below(folder, subject.cwd):
                return "maybe", f"it looks through all of {folder}, and `{pattern.text}` may be in there"
    others = subject.texts
    for place in others.values:
        if any(pattern.finds(place, subject.cwd) for pattern in rule.patterns["path"]):
            return "maybe", f"it says {place} in a place where a path is not looked for"
    return ("maybe", f"it has {others.odd}") if others.odd else ("no", f"no path is within {_listed(rule.path)}")


def _finds_host(rule: Rule, subject: Subject) -> _Part:
    if not rule.host:
        return _FINE
    found = subject.hosts
    if any(pattern.matches(host, port) for host, port in found.values for pattern in rule.patterns["host"]):
        return _FINE
    return ("maybe", f"it has {found.odd}") if found.odd else ("no", f"no host is {_listed(rule.host)}")


def _finds_input(rule: Rule, subject: Subject) -> _Part:
    doubt = ""
    for name, patterns in rule.patterns["input"].items():
        texts, odd = subject.field(name)
        if any(_any(patterns, text) for text in texts):
            continue
        if not odd:
            return "no", f"`{name}` is not {_listed(rule.input[name])}"
        doubt = odd
    if rule.exactly and rule.exactly != subject.digest:
        return "no", "it was about other arguments"
    return ("maybe", f"it has {doubt}") if doubt else _FINE


def _finds_cwd(rule: Rule, subject: Subject) -> _Part:
    if not rule.cwd:
        return _FINE
    found = subject.cwds
    if any(pattern.finds(cwd, subject.cwd) for cwd in (*found.values, subject.cwd) for pattern in rule.patterns["cwd"]):
        return _FINE
    return ("maybe", f"it has {found.odd}") if found.odd else ("no", f"it would not run in {_listed(rule.cwd)}")


_ALLOWS: tuple[Callable[[Rule, Subject], _Part], ...] = (
    *(_allows_command, _allows_path, _allows_host, _allows_input),
    *(_allows_cwd, _allows_rest),
)
_FINDS: tuple[Callable[[Rule, Subject], _Part], ...] = (_finds_command, _finds_path, _finds_host, _finds_input, _finds_cwd)


def _any(patterns: Iterable[Any], text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in patterns)


def _listed(texts: tuple[str, ...]) -> str:
    return " or ".join(f"`{text}`" for text in texts)
