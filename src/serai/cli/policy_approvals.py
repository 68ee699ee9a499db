"""`serai policy pending|answer|forget`: what waits for a person, and what they have said before."""

from __future__ import annotations

import getpass
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from serai.cli import approval_text as words
from serai.cli import console
from serai.cli.options import JSON, PATH, load_user_limits
from serai.errors import NoApproval, NotAllowed, NotWritten
from serai.plain_text import escape_line, escape_surrogates

if TYPE_CHECKING:
    from serai.model.approvals import Allow, Answer, Approval, Deny, Question, Remember
    from serai.policy import DecisionStore, PendingApproval, Rule

SCOPES = ("once", "session", "project", "always")
_STATES = {"used": "answered", "lost": "lost, its run is gone"}


def open_decisions() -> DecisionStore:
    """What is on disk; where there is nothing, nothing is made."""
    from serai.policy import DecisionStore

    return DecisionStore.usual() if os.path.exists(_get_path()) else DecisionStore.in_memory()


@contextmanager
def view_decisions() -> Iterator[DecisionStore]:
    """The same, only to be shown: that is possible, with a copy, also where nothing can be written."""
    from tempfile import TemporaryDirectory

    with ExitStack() as stack:
        try:
            decisions = open_decisions()
        except NotWritten as error:
            try:
                decisions = _open_copy(stack.enter_context(TemporaryDirectory(prefix="serai-")))
            except (NotWritten, OSError):
                raise error from None
        yield stack.enter_context(closing(decisions))


def _open_copy(folder: str) -> DecisionStore:
    from serai.policy import DecisionStore

    copy = os.path.join(folder, os.path.basename(_get_path()))
    for suffix in ("", "-wal"):
        if os.path.exists(_get_path() + suffix):
            shutil.copyfile(_get_path() + suffix, copy + suffix)
    return DecisionStore(copy)


def _get_path() -> str:
    from serai import paths
    from serai.policy.decision_store import NAME

    return os.path.join(paths.state_folder(), NAME)


def parse_arguments(raw: bytes, name: str) -> dict[str, Any]:
    """The arguments of a call. What is no JSON object is a wrong command line."""
    import msgspec

    try:
        found = msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{name}: not JSON: {escape_line(str(error))}") from None
    if not isinstance(found, dict):
        raise click.UsageError(f'{name}: the arguments are an object, such as {{"path": "x"}}')
    return found


# -- pending ----------------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("id", required=False)
@click.option("--all", "everything", is_flag=True, help="Also what was settled lately.")
@JSON
def pending(id: str | None, *, everything: bool, as_json: bool) -> None:
    """What waits for an answer; with an ID all of that one, however long it is.

    What is lost can be answered too: its run is gone, and takes the answer when the session goes on.
    """
    with view_decisions() as decisions:
        found = decisions.list_pending(everything=everything) if id is None else [decisions.find(escape_surrogates(id))]
    if not found and not as_json:
        console.err("nothing waits for an answer")
    for one in found:
        if as_json:
            click.echo(console.dump_json(_dump_pending(one)))
        else:
            for line in _render_pending(one, whole=id is not None):
                click.echo(line)


def _render_pending(one: PendingApproval, *, whole: bool) -> Iterator[str]:
    """As a person has to see it who answers: nothing is masked, and nothing can be taken for something else."""
    from serai.model.approvals import Approval

    request = one.request
    who = words.quote_name(request.agent or one.situation.agent or "somebody")
    what = words.quote_name(request.tool, words.TOOL) if isinstance(request, Approval) else "a question"
    for row in words.fold_line(f"{one.id}  {what}, asked by {who}: {_STATES.get(one.state, one.state)}"):
        yield click.style(row, bold=True)
    how: words.How = "whole" if whole else "glance"
    cut = (
        yield from words.render_call(request, how, id=one.id)
        if isinstance(request, Approval)
        else words.render_question(request, how)
    )
    place = f"  in {one.situation.cwd}" + (f", session {one.situation.session}" if one.situation.session else "")
    for line in (f"{place}, asked at {words.format_time(one.asked)}", *_render_next(one, cut=cut)):
        yield from words.fold_line(line)


def _render_next(one: PendingApproval, *, cut: bool) -> Iterator[str]:
    """What can be done about it."""
    from serai.model.approvals import Approval

    if cut:
        yield f"  all of it: serai policy pending {one.id}"
    if one.state not in ("waiting", "lost"):
        by = f" by {one.answered_by}" if one.answered_by else ""
        said = "" if one.decision is None else f": {type(one.decision).__name__.lower()}"
        yield f"  settled{by}{said}"
        return
    if one.state == "waiting":
        yield f"  waits until {words.format_time(one.until)}"
    yield f"  serai policy answer {one.id} " + ("allow   (or deny)" if isinstance(one.request, Approval) else "--answer TEXT")


def _dump_pending(one: PendingApproval) -> dict[str, Any]:
    import msgspec

    form: dict[str, Any] = {"id": one.id, "state": one.state, "asked": one.asked, "until": one.until}
    form |= {"request": msgspec.to_builtins(one.request), "situation": msgspec.to_builtins(one.situation)}
    if one.decision is not None:
        form["decision"] = msgspec.to_builtins(one.decision)
    return form | ({"answered_by": one.answered_by} if one.answered_by else {})


# -- answer -----------------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("id")
@click.argument("verdict", type=click.Choice(["allow", "deny"]), required=False)
@click.option("--why", default="", help="With deny: told to the model.")
@click.option("--interrupt", is_flag=True, help="With deny: also end the turn.")
@click.option("--arguments", metavar="JSON", help="With allow: run it with these instead.")
@click.option("--remember", "scope", type=click.Choice(SCOPES), default="once", help="Answer the same again by itself.")
@click.option("--as", "pattern", metavar="TOOL[:PATTERN]", help="Remember this instead of just the same call.")
@click.option("--answer", "answers", multiple=True, metavar="TEXT", help="To a question, once for each of its parts.")
def answer(
    id: str,
    verdict: str | None,
    *,
    why: str,
    interrupt: bool,
    arguments: str | None,
    scope: Remember,
    pattern: str | None,
    answers: tuple[str, ...],
) -> None:
    """Answer what waits; the first answer counts. ID is its id or the start of it.

    An approval wants allow or deny. A question wants --answer, a text or the number of a choice; deny dismisses it.
    """
    _check_options(verdict, why=why, interrupt=interrupt, arguments=arguments, scope=scope, pattern=pattern, answers=answers)
    from serai.model.approvals import Approval

    with closing(open_decisions()) as decisions:
        one = decisions.find(escape_surrogates(id))
        if isinstance(one.request, Approval):
            kept_as: Remember = scope if pattern is None else "once"
            decision: Any = _to_decision(one.request, verdict, why, arguments, kept_as, interrupt=interrupt, answered=bool(answers))
            if one.request.no_always and verdict == "allow" and scope != "once":
                raise NotAllowed("the agent does not want this remembered", id=one.id, hint="answer it without --remember")
        elif scope != "once":
            raise click.UsageError("the answer to a question is not remembered")
        else:
            decision = _build_answer(one, one.request, verdict, answers)
        _settle(decisions, one, decision, pattern, scope)
    done = {"allow": "allowed", "deny": "denied"}[verdict] if verdict and isinstance(one.request, Approval) else "answered"
    gone = "; its run is gone, and takes this when the session goes on" if one.state == "lost" else ""
    console.out(f"{one.id}: {done}{gone}" + ("; it is remembered from now on" if gone and scope != "once" else ""))


def _check_options(verdict: str | None, *, scope: str, answers: Sequence[str], **given: Any) -> None:
    """Options that say nothing together are a mistake, and mistakes are not answers."""
    if verdict is None and not answers:
        raise click.UsageError("say allow or deny, or to a question --answer TEXT")
    if verdict is not None and answers:
        raise click.UsageError("say allow or deny to an approval, or --answer to a question, not both")
    wanted = {"why": "deny", "interrupt": "deny", "arguments": "allow"}
    for name, only in wanted.items():
        if given[name] and verdict != only:
            raise click.UsageError(f"--{name} goes with {only}")
    if given["pattern"] is not None and scope == "once":
        raise click.UsageError("--as is to be remembered: say --remember session, project or always")


def _to_decision(
    request: Approval, verdict: str | None, why: str, arguments: str | None, scope: Remember, *, interrupt: bool, answered: bool
) -> Allow | Deny:
    from serai.model.approvals import Allow, Deny

    if answered:
        raise click.UsageError(f"it asks whether {escape_line(request.tool)} may run: say allow or deny")
    if verdict == "deny":
        return Deny(escape_surrogates(why), interrupt, scope)
    if arguments is None:
        return Allow(remember=scope)
    return Allow(parse_arguments(os.fsencode(arguments), "--arguments"), scope)


def _build_answer(one: PendingApproval, request: Question, verdict: str | None, texts: tuple[str, ...]) -> Answer:
    from serai.model.approvals import Answer, parse_typed_answer

    if verdict == "allow":
        raise click.UsageError(f"it is a question: say --answer TEXT; `serai policy pending {one.id}` shows it")
    if verdict == "deny":
        return Answer({})
    items = request.items
    hint = f"say --answer once for each, in their order; `serai policy pending {one.id}` shows them"
    if len(texts) != len(items):
        parts = words.format_count(len(items), "question")
        raise NoApproval(f"it asks {parts}, and there are {words.format_count(len(texts), 'answer')}", id=one.id, hint=hint)
    said = {item.text: parse_typed_answer(item, escape_surrogates(text)) for item, text in zip(items, texts, strict=True)}
    if None in said.values():
        raise NoApproval("an answer is empty", id=one.id, hint="say something, or deny to dismiss the question")
    return Answer(said)


def _settle(decisions: DecisionStore, one: PendingApproval, decision: Any, pattern: str | None, scope: Remember) -> None:
    """Answered first, then remembered: who is second has not decided anything."""
    from serai.model.approvals import Approval
    from serai.policy import build_wider_rule, remember_decision
    from serai.policy.call_facts import CallFacts

    if scope == "session" and not one.situation.session:
        raise NotAllowed("it is of no session that could be known again", id=one.id, hint="say --remember project or always")
    rule = None
    if pattern is not None and isinstance(one.request, Approval):
        rule = build_wider_rule(escape_surrogates(pattern), decision, CallFacts(one.request.call, one.situation))
    elif one.state == "lost" and isinstance(one.request, Approval):  # else its run remembers
        rule = _build_rule(one, one.request, decision)
    decisions.answer(one.id, decision, _get_user())
    if rule is not None:
        remember_decision(decisions, rule, one.situation, scope, load_user_limits())


def _build_rule(one: PendingApproval, request: Approval, decision: Allow | Deny) -> Rule:
    """What a run would remember of it, with the arguments that it is to have."""
    import msgspec

    from serai.model.approvals import Allow
    from serai.policy.call_facts import CallFacts
    from serai.policy.suggested_rules import build_rule

    call = request.call
    if isinstance(decision, Allow) and decision.arguments is not msgspec.UNSET:
        call = msgspec.structs.replace(call, arguments=decision.arguments)
    return build_rule(CallFacts(call, one.situation), decision)


def _get_user() -> str:
    try:
        return escape_surrogates(getpass.getuser())
    except (KeyError, OSError, ImportError):  # nobody of that number is known here, as in many containers
        return f"user {os.getuid()}"


# -- forget -----------------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="Everything that is remembered.")
@click.option("--session", default="", help="Everything that is remembered for this session.")
@click.option("--project", type=PATH, help="Everything that is remembered for this project.")
def forget(ids: tuple[str, ...], *, everything: bool, session: str, project: str | None) -> None:
    """Forget what was remembered, so that it is asked again. ID is as `serai policy list` shows it, or the start of it."""
    if not (ids or everything or session or project):
        raise click.UsageError("say which: their ids, --all, --session or --project")
    with closing(open_decisions()) as decisions:
        meant = _resolve_ids(decisions, ids)
        count = len(decisions.forget(meant))
        if everything:
            count += decisions.forget_all()
        if session:
            count += decisions.forget_all("session", escape_surrogates(session))
        if project:
            count += decisions.forget_all("project", escape_surrogates(os.path.realpath(project)))
    console.out(f"{count} forgotten")


def _resolve_ids(decisions: DecisionStore, ids: tuple[str, ...]) -> list[str]:
    """Their whole ids. One that is not known is an error before anything is forgotten."""
    hint = "`serai policy list` shows what is remembered"
    known = decisions.list_ids()
    meant: dict[str, None] = {}
    for id in map(escape_surrogates, ids):
        found = [name for name in known if name.startswith(id)] if re.fullmatch(r"[0-9a-f]+", id) else []
        if not found:
            raise NoApproval(f"nothing is remembered as {id or 'an empty id'}", hint=hint)
        if len(found) > 1:
            raise NoApproval(f"{len(found)} that are remembered begin with {id}", hint="give more of its id")
        meant[found[0]] = None
    return list(meant)
