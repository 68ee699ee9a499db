"""`serai policy`: which rules hold, what they say of a call, and what waits for a person's answer."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any

import click

from serai.cli import policy_words as words
from serai.cli import telling
from serai.cli.opening import JSON, PATH
from serai.cli.plain import printable
from serai.cli.policy_answers import answer, forget, kept, parsed, pending
from serai.errors import BadSettings
from serai.home import absolute

if TYPE_CHECKING:
    from serai.model.tools import ToolCall
    from serai.policy import Decisions, Judgement, Rule, Rules, Situation

__all__ = ["policy"]

_MARKS = {"allow": ("allowed", "green"), "deny": ("denied", "red"), "ask": ("a person is asked", "yellow")}
_STAGES = ("deny rules", "remembered", "ask rules", "allow rules", "mode")
_MODES = {
    "manual": "what no rule decides is asked of a person, and without one it is denied",
    "auto": "what no rule decides is allowed",
    "skip": "what no rule decides is allowed",
}
_MOST_FIELDS = 4  # of a rule that is proposed: a longer one nobody reads


@dataclass(frozen=True, slots=True)
class Sources:
    """Where rules come from, as the command line says."""

    cwd: str
    files: tuple[str, ...]
    allow: tuple[str, ...]
    mode: str

    def rules(self) -> Rules:
        from serai.host.trust import Trust
        from serai.policy import load

        untrusted = Trust.usual().check_policy(self.cwd)
        return load(self.cwd, files=self.files, allow=self.allow, mode=self.mode, untrusted=untrusted)


def with_sources(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which rules hold; the command gets them as one `sources`."""

    @click.option("--cwd", type=PATH, default=".", help="The working directory; this folder by default.")
    @click.option("--policy", "files", type=PATH, multiple=True, metavar="FILE", help="Also the rules of this file; repeatable.")
    @click.option(
        "--allow", multiple=True, metavar="TOOL[:PATTERN]", help="Also allow this, such as 'bash:git status'; repeatable."
    )
    @click.option("--mode", type=click.Choice(list(_MODES)), help="What happens to what no rule decides.")
    @wraps(command)
    def wrapped(*args: Any, cwd: str, files: tuple[str, ...], allow: tuple[str, ...], mode: str | None, **rest: Any) -> None:
        folder = absolute(cwd)
        if not os.path.isdir(folder):
            raise BadSettings("not a directory", who=cwd, hint="name the working directory")
        command(*args, sources=Sources(folder, files, allow, mode or ""), **rest)

    return wrapped


@click.group()
def policy() -> None:
    """Try the rules, list them, and answer what waits for an approval."""


for _command in (answer, forget, pending):
    policy.add_command(_command)


# -- test -------------------------------------------------------------------------------------------------------------------------


@policy.command()
@click.argument("tool")
@click.argument("arguments", metavar="[JSON]", default="{}")
@click.option("--agent", default="", help="The agent that asks, such as claude.")
@click.option("--guest", default="", help="The guest that asks, such as zot:weather.")
@click.option("--owner", default="", help="The guest that offers the tool; without it a built-in one or the agent's own is meant.")
@click.option("--session", default="", help="In this session: what is remembered for it counts.")
@click.option("--profile", default="", help="With this profile: its mode counts.")
@click.option("--expect", type=click.Choice(["allow", "deny", "ask"]), help="Fail (status 1) unless this is the decision.")
@with_sources
@JSON
def test(
    tool: str,
    arguments: str,
    *,
    agent: str,
    guest: str,
    owner: str,
    session: str,
    profile: str,
    expect: str | None,
    sources: Sources,
    as_json: bool,
) -> None:
    """Say what would be decided of a call, by which rule and why. Nothing is run or asked.

    JSON are the arguments of the call, such as '{"command": "git status"}'; - reads them from stdin.
    """
    from serai.model.tools import ToolCall
    from serai.policy import Situation

    if not tool:
        raise click.UsageError("name a tool, such as bash")
    given = parsed(sys.stdin.buffer.read() if arguments == "-" else os.fsencode(arguments), "stdin" if arguments == "-" else "JSON")
    call = ToolCall(tool, given, asker=guest or agent)
    situation = Situation(cwd=sources.cwd, session=session, agent=agent, owner=owner, profile=profile)
    rules = sources.rules()
    with closing(kept()) as decisions:
        trial = Trial(call, situation, rules, decisions)
        judged = trial.judge()
        if as_json:
            click.echo(telling.as_json(judged.to_json() | {"would_allow": trial.flag(), "notes": list(rules.notes)}))
        else:
            click.secho(printable(f"{tool}: {_MARKS[judged.decision][0]}"), fg=_MARKS[judged.decision][1], bold=True)
            for line in (*_explained(judged), *_ways(trial, judged)):
                telling.say(line)
    for note in rules.notes:
        telling.tell(note)
    if expect is not None and judged.decision != expect:
        telling.tell(f"expected {expect}, and it is {judged.decision}")
        raise SystemExit(1)


@dataclass(frozen=True, slots=True)
class Trial:
    """A call that is judged, also as it would be with one rule more."""

    call: ToolCall
    situation: Situation
    rules: Rules
    decisions: Decisions

    def judge(self, *more: Rule) -> Judgement:
        from serai.policy import Policy

        rules = replace(self.rules, rules=(*self.rules.rules, *more))
        return Policy(rules, memory=self.decisions).judge(self.call, self.situation)

    def flag(self) -> str:
        """The `--allow` that would really let it through; empty when none would, or none is needed."""
        from serai.policy.remembering import flag_for
        from serai.policy.rules import read_flag
        from serai.policy.subject import Subject

        flag = flag_for(Subject(self.call, self.situation))
        try:
            rule = read_flag(shlex.split(flag)[1])
        except BadSettings:  # no flag can say it: the tool's name has a colon, the command a hundred words
            return ""
        return flag if self.judge().decision != "allow" and self.judge(rule).decision == "allow" else ""

    def rule(self) -> Rule:
        """The same as a rule, which can say more than a flag: about just this call where that is possible."""
        from serai.policy.remembering import rule_for
        from serai.policy.subject import Subject

        rule = rule_for(Subject(self.call, self.situation), _yes())
        if rule.exactly:
            rule = replace(rule, exactly="", input=_fields(self.call.arguments))
        taken = {known.id for known in self.rules.rules}
        free = next(name for name in (f"my-rule-{number}" for number in count(1)) if name not in taken)
        return replace(rule, id=free, who=())

    def can_be_remembered(self) -> bool:
        """Whether an answer of a person would hold the next time."""
        from serai.policy import Policy, Remembered
        from serai.policy.remembering import rule_for
        from serai.policy.subject import Subject

        known = Remembered("", rule_for(Subject(self.call, self.situation), _yes()), "always")
        return Policy(self.rules, memory=_Knows(known)).judge(self.call, self.situation).decision == "allow"


def _yes() -> Any:
    from serai.model.ask import Allow

    return Allow()


@dataclass(frozen=True, slots=True)
class _Knows:
    """A memory of one decision."""

    one: Any

    def decisions(self) -> tuple[Any, ...]:
        return (self.one,)


def _fields(arguments: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Each argument as a pattern of itself; nothing when there are too many, or one that no pattern can say."""
    import msgspec

    from serai.policy.globs import escaped

    said = {name: value for name, value in arguments.items() if value is not None}
    if len(said) > _MOST_FIELDS or any("." in name or isinstance(value, dict | list) for name, value in said.items()):
        return {}
    texts = {name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in said.items()}
    return {name: (escaped(text),) for name, text in texts.items()}


def _explained(judged: Judgement) -> Iterator[str]:
    yield f"  because {judged.why}"
    if judged.rule is not None:
        yield f"  the rule is from {words.where(judged.rule.source)}"
    if judged.remembered is not None:
        yield f"  remembered as {judged.remembered.id}, {words.lifetime(judged.remembered)}"
    if judged.decision == "ask":
        yield "  without a person it is denied"
    yield ""
    yield "how it was decided, the first that says something counts:"
    for number, step in enumerate(judged.steps, 1):
        yield f"  {number}. {step.stage}: {'this decides' if step.stage == judged.stage else step.said}"


def _ways(trial: Trial, judged: Judgement) -> Iterator[str]:
    """What somebody would have to write who wants it otherwise."""
    if judged.decision == "allow":
        return
    yield ""
    if judged.stage == "mode":
        if flag := trial.flag():
            wide = f"   (every call of {trial.call.name})" if flag == f"--allow {shlex.quote(trial.call.name)}" else ""
            yield "to allow it without asking, for one run:"
            yield f"  {flag}{wide}"
        yield f"to allow it for good, in {words.own_file()}:"
        rule = trial.rule()
        if not (rule.command or rule.path or rule.host or rule.input):
            yield f"  # every call of {trial.call.name}: give it a pattern if that is too much"
        yield from (f"  {line}" for line in words.toml(rule))
    elif judged.remembered is not None:
        yield f"to be asked again: serai policy forget {judged.remembered.id}"
    elif judged.rule is None:
        yield "a command that cannot be read is always asked, whatever rule allows it: write it more plainly"
        yield from _by_answer(trial)
    elif judged.decision == "deny":
        yield f"to allow it, change the rule `{judged.rule.id}`: nothing else gets past a rule that denies"
        yield f"your own rules are in {words.own_file()}"
    elif judged.rule.decide == "deny":
        yield f"what the rule `{judged.rule.id}` cannot see is always asked: write the command more plainly, or change the rule"
        yield from _by_answer(trial)
    else:
        yield f"to allow it without asking, change the rule `{judged.rule.id}`: rules that ask come before those that allow"
        yield from _by_answer(trial)


def _by_answer(trial: Trial) -> Iterator[str]:
    if trial.can_be_remembered():
        yield "or, when it is asked, answer for the next time too: serai policy answer ID allow --remember project"


# -- list -------------------------------------------------------------------------------------------------------------------------


@policy.command("list")
@with_sources
@JSON
def list_(*, sources: Sources, as_json: bool) -> None:
    """The rules that hold here in their order, the mode, and what is remembered."""
    rules = sources.rules()
    with closing(kept()) as decisions:
        known = decisions.decisions()
    if as_json:
        ordered = [rule.to_json() | {"source": rule.source} for decide in ("deny", "ask", "allow") for rule in rules.by(decide)]
        remembered = [
            {"id": one.id, "scope": one.scope, "key": one.key, "expires": one.expires, "rule": one.rule.to_json()} for one in known
        ]
        form = {"mode": rules.mode, "profiles": dict(rules.profiles), "rules": ordered, "remembered": remembered}
        click.echo(telling.as_json(form | {"notes": list(rules.notes)}))
    else:
        for line in _listed(rules, known):
            telling.say(line)
    for note in rules.notes:
        telling.tell(note)


def _listed(rules: Rules, known: tuple[Any, ...]) -> Iterator[str]:
    yield "the first of these that says something counts:"
    for number, stage in enumerate(_STAGES, 1):
        if stage == "mode":
            yield f"{number}. mode {rules.mode}: {_MODES[rules.mode]}"
            yield from (f"   profile {name}: {mode}" for name, mode in rules.profiles.items())
        elif stage == "remembered":
            yield f"{number}. {stage}" + ("" if known else ": nothing")
            for one in known:
                yield f"   {one.id} {one.rule.decide}: {words.about(one.rule)}"
                yield f"     {words.lifetime(one)}"
        else:
            said = [rule for rule in rules.rules if f"{rule.decide} rules" == stage]
            yield f"{number}. {stage}" + ("" if said else ": there are none")
            yield from (f"   {line}" for rule in said for line in words.told(rule))
    yield f"your own rules are in {words.own_file()}" + ("" if os.path.exists(words.own_file()) else ", which is not there yet")
