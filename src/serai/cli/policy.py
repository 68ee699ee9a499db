"""`serai policy`: which rules hold, what they say of a call, and what waits for a person's answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any

import click

from serai.cli import approval_text as words
from serai.cli import console
from serai.cli.completion import complete_agents, complete_sessions
from serai.cli.options import JSON, PATH
from serai.cli.policy_approvals import answer, forget, parse_arguments, pending, view_decisions
from serai.errors import BadSettings
from serai.paths import absolute_path
from serai.plain_text import escape_surrogates

if TYPE_CHECKING:
    from serai.model.tools import ToolCall
    from serai.policy import CallContext, DecisionStore, PolicyDecision, Rule, Rules
    from serai.policy.call_facts import CallFacts
    from serai.policy.suggested_rules import RuleAdvice

_MARKS = {"allow": ("allowed", "green"), "deny": ("denied", "red"), "ask": ("a person is asked", "yellow")}
_STAGES = ("deny rules", "remembered", "ask rules", "allow rules", "mode")
_MODES = {
    "manual": "what no rule decides is asked of a person, and without one it is denied",
    "auto": "what no rule decides is allowed",
    "skip": "what no rule decides is allowed",
}
_MOST_FIELDS = 4  # of a rule that is proposed: a longer one nobody reads
_BUILT_IN = 'owner = "built-in"'

# The names that agents have for their own tools, by the one that rules have.
_NATIVE = {
    "bash": ("Bash", "shell", "exec_command", "run_shell_command"),
    "read": ("Read", "read_file"),
    "write": ("Write", "write_file"),
    "edit": ("Edit", "MultiEdit"),
    "grep": ("Grep", "search_file_content"),
    "find": ("Glob", "glob"),
    "fetch": ("WebFetch", "web_fetch", "webfetch"),
}


@dataclass(frozen=True, slots=True)
class RuleSources:
    """Where rules come from, as the command line says."""

    cwd: str
    files: tuple[str, ...]
    allow: tuple[str, ...]
    mode: str

    def load(self) -> Rules:
        from serai.host.trust import Trust
        from serai.policy import load_rules

        def check_trust(content: bytes) -> str:  # of just what is read: the file may change at any time
            return trust.check_policy(self.cwd, content)

        trust = Trust.usual()
        return load_rules(self.cwd, files=self.files, allow=self.allow, mode=self.mode, untrusted=check_trust)


def add_source_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which rules hold; the command gets them as one `sources`."""

    @click.option("--cwd", type=PATH, default=".", help="The working directory; this folder by default.")
    @click.option("--policy", "files", type=PATH, multiple=True, metavar="FILE", help="Also the rules of this file; repeatable.")
    @click.option(
        "--allow", multiple=True, metavar="TOOL[:PATTERN]", help="Also allow this, such as 'bash:git status'; repeatable."
    )
    @click.option("--mode", type=click.Choice(list(_MODES)), help="What happens to what no rule decides.")
    @wraps(command)
    def wrapped(*args: Any, cwd: str, files: tuple[str, ...], allow: tuple[str, ...], mode: str | None, **rest: Any) -> None:
        folder = absolute_path(cwd)
        if not os.path.isdir(folder):
            raise BadSettings("not a directory", who=cwd, hint="name the working directory")
        command(*args, sources=RuleSources(folder, files, allow, mode or ""), **rest)

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
@click.option("--agent", default="", shell_complete=complete_agents, help="The agent that asks, such as claude.")
@click.option("--guest", default="", help="The guest that asks, such as zot:weather.")
@click.option("--owner", default="", help="The guest that offers the tool; without it a built-in one or the agent's own is meant.")
@click.option("--session", default="", shell_complete=complete_sessions, help="In this session: what is remembered for it counts.")
@click.option("--profile", default="", help="With this profile: its mode counts.")
@click.option("--expect", type=click.Choice(["allow", "deny", "ask"]), help="Fail (status 1) unless this is the decision.")
@add_source_options
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
    sources: RuleSources,
    as_json: bool,
) -> None:
    """Say what would be decided of a call, by which rule and why. Nothing is run or asked.

    JSON are the arguments of the call, such as '{"command": "git status"}'; - reads them from stdin.
    """
    from serai.model.tools import ToolCall
    from serai.policy import CallContext

    if not tool:
        raise click.UsageError("name a tool, such as bash")
    given = parse_arguments(
        sys.stdin.buffer.read() if arguments == "-" else os.fsencode(arguments), "stdin" if arguments == "-" else "JSON"
    )
    tool, agent, guest, owner, session, profile = map(escape_surrogates, (tool, agent, guest, owner, session, profile))
    call = ToolCall(tool, given, asker=guest or agent)
    situation = CallContext(cwd=sources.cwd, session=session, agent=agent, owner=owner, profile=profile)
    rules = sources.load()
    with view_decisions() as decisions:
        trial = PolicyTrial(call, situation, rules, decisions)
        judged = trial.judge()
        notes = [*rules.notes, *_find_mistakes(trial)]
        if as_json:
            advice = trial.get_advice(judged)
            known = {"would_allow": advice.flag, "wider": advice.wider, "why_not": advice.why_not, "notes": notes}
            click.echo(console.dump_json(judged.to_json() | known))
        else:
            click.secho(words.make_visible(f"{tool}: {_MARKS[judged.decision][0]}"), fg=_MARKS[judged.decision][1], bold=True)
            for line in (*_render_decision(judged), *_render_advice(trial, judged)):
                console.out(words.make_visible(line))
    for note in notes:
        console.err(note)
    if expect is not None and judged.decision != expect:
        console.err(f"expected {expect}, and it is {judged.decision}")
        raise SystemExit(1)


@dataclass(frozen=True, slots=True)
class PolicyTrial:
    """A call that is judged, also as it would be with one rule more."""

    call: ToolCall
    situation: CallContext
    rules: Rules
    decisions: DecisionStore

    @property
    def subject(self) -> CallFacts:
        from serai.policy.call_facts import CallFacts

        return CallFacts(self.call, self.situation)

    @property
    def native(self) -> str:
        """Our name for the tool, when its own is an agent's name for it."""
        names = () if self.situation.owner else _NATIVE.items()
        return next((ours for ours, theirs in names if self.call.name in theirs), "")

    def judge(self, *more: Rule) -> PolicyDecision:
        from serai.policy import Policy

        rules = replace(self.rules, rules=(*self.rules.rules, *more))
        return Policy(rules, memory=self.decisions).judge(self.call, self.situation)

    def get_advice(self, judged: PolicyDecision) -> RuleAdvice:
        from serai.policy.suggested_rules import RuleAdvice, advise

        if judged.stage == "mode" and self.native:
            return RuleAdvice(why_not=_explain_native(self))
        return advise(self.call, self.situation, judged)

    def find_rule(self) -> Rule | None:
        """The narrowest rule that really allows it, as it would be read from a file; None when none does."""
        return next((rule for rule in self.iter_candidates() if self._allows(rule)), None)

    def iter_candidates(self) -> Iterator[Rule]:
        """From narrow to wide: what it means, all that it says, what of that a pattern can say, the tool alone."""
        from serai.model.approvals import Allow
        from serai.policy.patterns import escape_glob
        from serai.policy.suggested_rules import build_rule

        subject = self.subject
        taken = {known.id for known in self.rules.rules}
        free = next(name for name in (f"my-rule-{number}" for number in count(1)) if name not in taken)
        rule = replace(build_rule(subject, Allow()), id=free, who=())
        if not rule.exactly:
            yield rule
        cwd = tuple(map(escape_glob, subject.cwds.values)) if subject.cwds.values != (subject.cwd,) else ()
        rule = replace(rule, exactly="", command=(), path=(), host=(), cwd=cwd)
        fields = _build_patterns(self.call.arguments)
        yield replace(rule, input=fields)
        if said := {name: texts for name, texts in fields.items() if texts != ("",)}:
            yield replace(rule, input={**said, "*": ("*",)})
        yield rule

    def _allows(self, rule: Rule) -> bool:
        from serai.policy.rules import read_toml

        try:
            [read] = read_toml("\n".join(words.render_toml(rule)).encode(), "the advice").rules
        except (BadSettings, UnicodeError):
            return False
        return self.judge(read).decision == "allow"

    def allows_more(self, rule: Rule) -> bool:
        """Whether this rule also allows calls that say something more."""
        import msgspec

        call = msgspec.structs.replace(self.call, arguments={**self.call.arguments, "something-more": "x"})
        return replace(self, call=call).judge(rule).decision == "allow"


def _build_patterns(arguments: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Each argument as a pattern of itself; nothing when there are too many, or one that no pattern can say."""
    import msgspec

    from serai.policy.patterns import escape_glob

    said = {name: value for name, value in arguments.items() if value is not None}
    if len(said) > _MOST_FIELDS or any("." in name or isinstance(value, dict | list) for name, value in said.items()):
        return {}
    texts = {name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in said.items()}
    return {name: (escape_glob(text),) for name, text in texts.items()}


def _find_mistakes(trial: PolicyTrial) -> Iterator[str]:
    """What may be a typing mistake: a tool of ours without what it is about."""
    subject, tool = trial.subject, trial.call.name
    if trial.situation.owner or subject.odd:
        return
    lacks = {
        "bash": "" if subject.reading else "command",
        "fetch": "" if subject.hosts.values or subject.hosts.odd else "url",
        **dict.fromkeys(("read", "write", "edit"), "" if subject.places.values or subject.places.odd else "path"),
    }
    if field := lacks.get(tool):
        said = ", ".join(f"`{name}`" for name in subject.arguments) or "nothing"
        yield f"{tool} takes a `{field}`, and this call has none: its arguments are {said}"


def _render_decision(judged: PolicyDecision) -> Iterator[str]:
    yield f"  because {judged.why}"
    if judged.rule is not None:
        yield f"  the rule is from {words.describe_source(judged.rule.source)}"
    if judged.remembered is not None:
        yield f"  remembered as {judged.remembered.id}, {words.format_lifetime(judged.remembered)}"
    if judged.decision == "ask":
        yield "  without a person it is denied"
    yield ""
    yield "how it was decided, the first that says something counts:"
    unseen = judged.stage == "ask rules" and (judged.rule is None or judged.rule.decide == "deny")
    decides = "what cannot be seen is asked, as if a rule said so: this decides" if unseen else "this decides"
    for number, step in enumerate(judged.steps, 1):
        yield f"  {number}. {step.stage}: {decides if step.stage == judged.stage else step.said}"


def _render_advice(trial: PolicyTrial, judged: PolicyDecision) -> Iterator[str]:
    """What somebody would have to write who wants it otherwise."""
    if judged.decision == "allow":
        return
    advice = trial.get_advice(judged)
    yield ""
    if judged.stage == "mode" and not trial.native:
        if shown := words.make_visible(advice.flag) == advice.flag and advice.flag:  # else it would be shown otherwise than it is
            yield "to allow it without asking, for one run:"
            yield f"  {shown}" + (f"   (every call of {trial.call.name})" if advice.wider else "")
        yield from _render_rule(trial, alone=not shown)
        return
    yield "to allow it:" if judged.decision == "deny" else "to allow it without asking:"
    yield f"  {advice.why_not}"
    if advice.remember:
        yield "  or, when it is asked, answer for the next time too: serai policy answer ID allow --remember project"


def _render_rule(trial: PolicyTrial, *, alone: bool) -> Iterator[str]:
    """The rule; `alone`: no flag says the same."""
    from serai.policy.engine import match_rule

    rule = trial.find_rule()
    if rule is None:
        *_, widest = trial.iter_candidates()
        yield f"no rule can allow it: {match_rule(widest, trial.subject).why or 'no pattern can say what it is about'}"
        return
    also = ", or for one run in a file that --policy FILE names" if alone else ""
    yield f"to allow it for good, in {words.find_own_file()}{also}:"
    if not (rule.command or rule.path or rule.host or rule.input):
        yield f"  # every call of {trial.call.name}: give it a pattern if that is too much"
    elif trial.allows_more(rule):
        yield "  # whatever else such a call says: name its other fields if that is too much"
    for line in words.render_toml(rule):
        yield f"  {line}" + ("  # Serai's own tool or the agent's, and no guest's of that name" if line == _BUILT_IN else "")


def _explain_native(trial: PolicyTrial) -> str:
    name = trial.native
    return f"`{trial.call.name}` is an agent's own name: rules that allow mean the tool `{name}`, so try serai policy test {name}"


# -- list -------------------------------------------------------------------------------------------------------------------------


@policy.command("list")
@add_source_options
@JSON
def list_(*, sources: RuleSources, as_json: bool) -> None:
    """The rules that hold here in their order, the mode, and what is remembered."""
    rules = sources.load()
    with view_decisions() as decisions:
        known = decisions.list_decisions()
    if as_json:
        ordered = [rule.to_json() | {"source": rule.source} for decide in ("deny", "ask", "allow") for rule in rules.select(decide)]
        remembered = [
            {"id": one.id, "scope": one.scope, "key": one.key, "expires": one.expires, "rule": one.rule.to_json()} for one in known
        ]
        form = {"mode": rules.mode, "profiles": dict(rules.profiles), "rules": ordered, "remembered": remembered}
        click.echo(console.dump_json(form | {"notes": list(rules.notes)}))
    else:
        for line in _render_rules(rules, known):
            console.out(words.make_visible(line))
    for note in rules.notes:
        console.err(note)


def _render_rules(rules: Rules, known: tuple[Any, ...]) -> Iterator[str]:
    yield "the first of these that says something counts:"
    for number, stage in enumerate(_STAGES, 1):
        if stage == "mode":
            yield f"{number}. mode {rules.mode}: {_MODES[rules.mode]}"
            yield from (f"   profile {name}: {mode}" for name, mode in rules.profiles.items())
        elif stage == "remembered":
            yield f"{number}. {stage}" + ("" if known else ": nothing")
            for one in known:
                yield f"   {one.id} {one.rule.decide}: {words.format_rule(one.rule)}"
                yield f"     {words.format_lifetime(one)}"
        else:
            said = [rule for rule in rules.rules if f"{rule.decide} rules" == stage]
            yield f"{number}. {stage}" + ("" if said else ": there are none")
            yield from (f"   {line}" for rule in said for line in words.render_rule(rule))
    yield f"your own rules are in {words.find_own_file()}" + (
        "" if os.path.exists(words.find_own_file()) else ", which is not there yet"
    )
