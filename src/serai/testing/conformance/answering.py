"""The rules about how a guest of any dialect opens and what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from serai.testing.conformance import offers, quoting
from serai.testing.conformance.examining import Examining
from serai.testing.conformance.forms import Frame, written
from serai.testing.conformance.offers import by_reason
from serai.testing.conformance.probing import Outcome
from serai.testing.conformance.report import Finding, Skip, failed

__all__ = ["answers", "manifest", "odd_arguments", "opens", "quoted", "unknown_names"]


def quoted(frame: Frame) -> str:
    """A frame of the guest, as a finding quotes it."""
    return quoting.frame("guest", written(frame))


def manifest(examination: Examining[Any]) -> Iterator[Finding]:
    if not examination.target.manifest:
        raise Skip("a program alone has none")
    yield from examination.target.remarks


def opens(examination: Examining[Any]) -> Iterator[Finding]:
    if problem := examination.visit.problem:
        yield problem


def answers(examination: Examining[Any]) -> Iterator[Finding]:
    _ = examination.first
    for request in examination.real():
        known = examination.offered(request)
        if request.fields["name"] not in known:
            yield failed(f"it has no {request.fields['name']} to try", hint=f"it has {', '.join(known) or 'none'}")
    for tried in examination.visit.tried:
        if tried.request.real and tried.problem:
            yield tried.problem
    twice = [said for probe in examination.seen for said in probe.answers.values() if len(said) > 1]
    if twice:
        hint = "send exactly one answer for each request: hosts use the first"
        yield failed("it answers a request twice", hint=hint, frames=[quoted(frame) for frame in twice[0]])
    strays = [stray for probe in examination.seen for stray in probe.strays]
    for why, frames in by_reason(strays):
        yield failed(why, hint=examination.echo, frames=frames)


def unknown_names(examination: Examining[Any]) -> Iterator[Finding]:
    _ = examination.first
    tried = [tried for tried in examination.visit.tried if tried.nobody]
    if not tried:
        raise Skip("it offers neither tools nor commands")
    for each in tried:
        if each.problem:
            yield each.problem
        elif each.answer and not examination.is_error(each.answer):
            why = f"{each.request.what} is none of its own, and it answers as if all were well"
            yield failed(why, hint=examination.refuse, frames=[quoted(each.answer)])


def odd_arguments(examination: Examining[Any]) -> Iterator[Finding]:
    """Never what fits the schema; and never anything for a tool that needs no arguments: it would do its work (design rule 7)."""
    given = {name for name, _ in examination.task.calls}
    requests = [
        examination.call(name, args)
        for name, schema in examination.tools(examination.first)
        for args in offers.unfit(schema, given=name in given)
    ]
    if not requests:
        raise Skip("no tool has arguments that it needs; `--call` names one that may be called")
    with examination.opened() as probe:
        for request in requests:
            outcome = probe.outcome(request)
            if outcome in (Outcome.SILENT, Outcome.DIED):
                hint = "arguments are whatever the model made of the schema, null and lists too: look before you use them"
                yield probe.unanswered(request, outcome, hint=hint)
            if outcome is not Outcome.ANSWERED:
                return
