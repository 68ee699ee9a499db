"""The rules for a guest of any dialect: how it opens and answers, what it offers, and how it takes strange input, load and each
end.

What it offers must be usable: names, schemas, and arguments that do not fit them.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from serai.host.argument_schemas import ArgumentChecker, SchemaCost, SchemaRejected, build_checker, measure
from serai.limits import KIB
from serai.testing.conformance import findings
from serai.testing.conformance.examination import GuestExamination
from serai.testing.conformance.findings import Finding, Skip, fail, warn
from serai.testing.conformance.probe import Flawed, Frame, GuestProbe, RequestOutcome, describe_exit, encode_frame
from serai.testing.guest_process import format_line

_BURST = 64
_END = "end as soon as shutdown or the end of input comes: exit the program, whatever else is still going on"


# -- strange input ----------------------------------------------------------------------------------------------------------------


def check_lines(
    examination: GuestExamination[Any], what: str, lines: Sequence[bytes], hint: str, **unknown: object
) -> Iterator[Finding]:
    with examination.open_probe() as probe:
        yield from try_lines(examination, probe, what, lines, hint, **unknown)


def try_lines(
    examination: GuestExamination[Any], probe: GuestProbe, what: str, lines: Sequence[bytes], hint: str, **unknown: object
) -> Iterator[Finding]:
    """Write these lines, then see whether it still does what it did before, and whether it ends as it did before."""
    taken = probe.write(b"".join(line + b"\n" for line in lines))
    if not taken and probe.alive:
        yield probe.fail(f"it does not read {what}", hint=hint)
        return
    shown = [format_line("host", line) for line in lines][-3:]
    if found := find_harm(examination, probe, what, hint, shown, **unknown):
        yield found
    elif (usual := examination.visit.status) is not None:
        status = probe.shut_down(examination.patience.shutdown)
        if status not in (None, usual):
            why = f"after {what} it ends with {describe_exit(status)}, and else with {describe_exit(usual)}"
            yield probe.fail(why, hint=hint, frames=shown)


def try_spellings(
    examination: GuestExamination[Any], forms: Mapping[str, object], ids: Mapping[str, object], hint: str
) -> Iterator[Finding]:
    """One request, written in other ways and with other ids. An answer under another id is told by `answers`."""
    [cheapest, *_] = pick_reliable(examination)
    ways = {how: cheapest._replace(form=form) for how, form in forms.items()}
    ways |= {how: cheapest._replace(id=id) for how, id in ids.items()}
    with examination.open_probe() as probe:
        for how, request in ways.items():
            outcome = probe.try_request(request)
            if outcome in (RequestOutcome.SILENT, RequestOutcome.DIED):
                yield probe.report_unanswered(request, outcome, how=how, hint=hint)
                return


def find_harm(
    examination: GuestExamination[Any], probe: GuestProbe, what: str, hint: str, shown: Sequence[str] = (), **unknown: object
) -> Finding | None:
    """What it has done to a guest: it answers no more, or is gone. `unknown` are fields that the request has besides."""
    if examination.visit.reliable:
        cheapest = examination.visit.reliable[0]
        request = cheapest._replace(fields={**cheapest.fields, **unknown})
        if probe.try_request(request) is RequestOutcome.SILENT:
            return probe.fail(f"after {what} it answers no more", hint=hint, frames=shown or findings.quote_tail(probe.process))
    probe.process.pause(examination.patience.hold)  # what it does with them may take a moment
    if probe.alive:
        return None
    why = f"it does not outlive {what}, {describe_exit(probe.process.status)}"
    return probe.fail(why, hint=hint, frames=shown or findings.quote_tail(probe.process))


# -- many requests ----------------------------------------------------------------------------------------------------------------


def burst(examination: GuestExamination[Any]) -> Iterator[Finding]:
    requests = pick_reliable(examination, _BURST)
    with examination.open_probe(narrow=True) as probe:
        ids = probe.ask(*requests)
        probe.process.pause(examination.patience.hold)
        real = any(request.real for request in requests)
        within = examination.patience.tool if real else examination.patience.answer
        if missing := _count_unanswered(probe, ids, within):
            why = f"of {_BURST} requests at once, {missing} got no answer, and none came within {within:g} s"
            if not probe.alive:
                why = f"{_BURST} requests at once end it, {describe_exit(probe.process.status)}"
            hint = "one read may bring many lines, or half a line: split at newlines, keep the rest, and answer each request"
            yield probe.fail(why, hint=hint)


def _count_unanswered(probe: GuestProbe, ids: Sequence[Any], within: float) -> int:
    """How many are left when none of them was answered for so long: who is slow and goes on has done nothing wrong."""

    def count_left() -> int:
        return sum(id not in probe.answers for id in ids)

    def is_fewer(before: int) -> bool:
        return count_left() < before

    while (before := count_left()) and probe.hear(partial(is_fewer, before), within):
        pass
    return before


def open_requests(examination: GuestExamination[Any]) -> Iterator[Finding]:
    """A host forgets a request that took too long (spec zot 4.1, piglet 2.6); the guest works on, and must not be kept by it."""
    patience = examination.patience
    reliable = pick_reliable(examination)
    real = [request for request in reliable if request.real]
    with examination.open_probe() as probe:
        probe.ask(*(real or reliable))
        if real and reliable[0] not in real and probe.try_request(reliable[0]) in (RequestOutcome.SILENT, RequestOutcome.DIED):
            hint = "do not work on the read loop: a request that takes long must not hold up the next one"
            yield probe.fail("while requests are open, it serves no other", hint=hint)
            return
        probe.ask(*(real or reliable))
        if probe.shut_down(patience.shutdown) is None:
            yield probe.fail(f"with requests open it does not end within {patience.shutdown:g} s of shutdown", hint=_END)


def pick_reliable(examination: GuestExamination[Any], count: int = 0) -> list[Any]:
    """Requests that it answers when nothing is wrong, in turn."""
    _ = examination.first
    reliable = examination.visit.reliable
    if not reliable:
        raise Skip("there is nothing to ask it; `--call` and `--command` give something")
    return [reliable[number % len(reliable)] for number in range(count or len(reliable))]


def idle(examination: GuestExamination[Any]) -> Iterator[Finding]:
    """It stays when all is answered, and has no more to say: a second answer, which `answers` tells, may come late."""
    limit = examination.patience.idle
    with examination.open_probe() as probe:
        for request in examination.visit.reliable:
            probe.try_request(request)
        probe.hear(lambda: False, limit)
        if probe.is_silenced():
            yield probe.report_silenced()
        elif not probe.alive:
            hint = "stay until shutdown or the end of input: hours may pass between two requests"
            yield probe.fail(f"it ends by itself when nobody asks it anything, {describe_exit(probe.process.status)}", hint=hint)


# -- ends -------------------------------------------------------------------------------------------------------------------------


def shutdown(examination: GuestExamination[Any]) -> Iterator[Finding]:
    limit = examination.patience.shutdown
    with examination.open_probe() as probe:
        status = probe.shut_down(limit)
        if status is None:
            yield probe.fail(f"it does not end within {limit:g} s of shutdown and the end of its input", hint=_END)
        elif status != 0:
            yield warn(
                f"it ends with {describe_exit(status)}",
                hint="exit with 0 at shutdown: anything else looks like a crash",
                frames=probe.quote_tail(),
            )


def eof(examination: GuestExamination[Any]) -> Iterator[Finding]:
    limit = examination.patience.shutdown
    with examination.open_probe() as probe:
        status = probe.close_input(limit)
        if status is None:
            yield probe.fail(f"it does not end within {limit:g} s of the end of its input", hint=_END)
        elif (usual := examination.visit.status) is not None and status not in (0, usual):
            yield warn(
                f"it ends with {describe_exit(status)}, and after shutdown with {describe_exit(usual)}",
                hint="the end of input means shutdown, and is no error: a host that is killed sends nothing else",
                frames=probe.quote_tail(),
            )


def host_gone(examination: GuestExamination[Any]) -> Iterator[Finding]:
    limit = examination.patience.shutdown
    with examination.open_probe() as probe:
        examination.stop_listening(probe)  # first: its answers find nobody
        probe.ask(*examination.visit.reliable)
        if probe.close_input(limit) is None:
            yield probe.fail(f"it does not end within {limit:g} s when its host is gone, both pipes at once", hint=_END)


def terminate(examination: GuestExamination[Any]) -> Iterator[Finding]:
    """After it has served somebody, and, where a person has given something to do, in the middle of that."""
    _ = examination.first
    reliable = examination.visit.reliable
    yield from _check_termination(examination, [], reliable[:1])
    if real := [request for request in reliable if request.real]:
        yield from _check_termination(examination, real, [])


def _check_termination(examination: GuestExamination[Any], working: Sequence[Any], served: Sequence[Any]) -> Iterator[Finding]:
    limit = examination.patience.terminate
    with examination.open_probe() as probe:
        for request in served:
            probe.try_request(request)
        ids = probe.ask(*working)
        probe.hear(lambda: all(id in probe.answers for id in ids), examination.patience.hold)
        probe.process.note("SIGTERM")
        os.kill(probe.process.pid, signal.SIGTERM)
        if probe.process.wait(limit) is None:
            when = " in the middle of its work" if working else ""
            hint = "let SIGTERM end it, whatever it does; what must be tidied up takes a moment"
            yield probe.fail(f"it does not end within {limit:g} s of SIGTERM{when}", hint=hint)


def left_behind(examination: GuestExamination[Any]) -> Iterator[Finding]:
    _ = examination.first
    if left := sorted({name for probe in examination.seen for name in probe.left}):
        hint = "end what you have started before you end yourself, or let it end with its input"
        yield Finding(status="failed", why=f"it ends and leaves {', '.join(left)} running", hint=hint)


# What model APIs take as the name of a tool, and what a person can type as that of a command (spec zot 3.2).
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COMMAND_NAME = re.compile(r"[A-Za-z0-9_-]+")
_NAME = "use ASCII letters, digits, - and _ (at most 64)"
ODD_ARGUMENTS: tuple[object, ...] = (None, [], [{"serai": "check"}], "serai check", 7)


def check_tool_name(name: str, shown: Sequence[str]) -> Iterator[Finding]:
    if not _TOOL_NAME.fullmatch(name):
        yield fail(f"no model can call the name {name!r}", hint=_NAME, frames=shown)


def check_command_name(name: str, shown: Sequence[str]) -> Iterator[Finding]:
    if not _COMMAND_NAME.fullmatch(name):
        yield fail(f"nobody can type the name {name!r}", hint=_NAME, frames=shown)


def check_schema(name: str, schema: object, shown: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with the schema of a tool."""
    if schema is None:
        hint = 'give one, {"type":"object","properties":{}} at least: some models refuse a tool without'
        yield warn(f"the tool {name} has no schema", hint=hint, frames=shown)
    elif not isinstance(schema, dict):
        yield fail(
            f"the schema of {name} is not an object", hint='write a JSON Schema: {"type":"object","properties":{…}}', frames=shown
        )
    elif (problem := build_checker(schema, who=name).problem) and _can_build(schema):
        why = f"the schema of {name} has patterns that Serai cannot check: it has no look-around, no back-references, and a limit"
        yield warn(
            why, hint="write them without, or check what they say in the tool: here its arguments go unchecked", frames=shown
        )
    elif problem:
        why = problem.removesuffix(", so its arguments go unchecked")
        yield fail(why, hint="make it a JSON Schema that any validator takes; nothing outside of it is fetched", frames=shown)
    elif "type" in schema and "object" not in (schema["type"] if isinstance(schema["type"], list) else [schema["type"]]):
        yield fail(
            f"the schema of {name} takes no object", hint='a model gives arguments as an object: "type":"object"', frames=shown
        )


def _can_build(schema: dict[str, Any]) -> bool:
    """Whether it would do with patterns that backtrack. Serai's own do not, so that no text makes them run for ever."""
    import jsonschema_rs

    try:
        measure(schema, depth=64, length=256 * KIB)
        SchemaCost(schema)  # beyond this, building it may take for ever, too
        jsonschema_rs.validator_for(json.dumps(schema), offline=True, ignore_unknown_formats=True)
    except (SchemaRejected, ValueError, jsonschema_rs.ReferencingError):
        return False
    return True


def find_unfit_arguments(schema: object, *, given: bool) -> list[object]:
    """Arguments that do not fit. None for a tool that needs no arguments: it would do its work, unless that is `given`.

    Never what fits the schema (design rule 7).
    """
    check: ArgumentChecker | None = build_checker(schema, who="") if isinstance(schema, dict) else None
    if check is None or check.problem or not (given or (isinstance(schema, dict) and schema.get("required"))):
        return []
    return [args for args in ODD_ARGUMENTS if check.check(args)]


def group_flaws(flaws: Iterable[Flawed]) -> Iterator[tuple[str, list[str]]]:
    """Each reason once, with the first line that shows it."""
    first: dict[str, Flawed] = {}
    for flawed in flaws:
        first.setdefault(flawed.why, flawed)
    for why, flawed in first.items():
        yield why, [flawed.shown]


def quote_frame(frame: Frame) -> str:
    """A frame of the guest, as a finding quotes it."""
    return findings.quote_line("guest", encode_frame(frame))


def manifest(examination: GuestExamination[Any]) -> Iterator[Finding]:
    if not examination.target.manifest:
        raise Skip("a program alone has none")
    yield from examination.target.remarks


def opens(examination: GuestExamination[Any]) -> Iterator[Finding]:
    if problem := examination.visit.problem:
        yield problem


def answers(examination: GuestExamination[Any]) -> Iterator[Finding]:
    _ = examination.first
    for request in examination.build_real_requests():
        known = examination.list_offered(request)
        if request.fields["name"] not in known:
            yield fail(f"it has no {request.fields['name']} to try", hint=f"it has {', '.join(known) or 'none'}")
    for tried in examination.visit.tried:
        if tried.request.real and tried.problem:
            yield tried.problem
    twice = [said for probe in examination.seen for said in probe.answers.values() if len(said) > 1]
    if twice:
        hint = "send exactly one answer for each request: hosts use the first"
        yield fail("it answers a request twice", hint=hint, frames=[quote_frame(frame) for frame in twice[0]])
    strays = [stray for probe in examination.seen for stray in probe.strays]
    for why, frames in group_flaws(strays):
        yield fail(why, hint=examination.echo, frames=frames)


def unknown_names(examination: GuestExamination[Any]) -> Iterator[Finding]:
    _ = examination.first
    tried = [tried for tried in examination.visit.tried if tried.has_unknown_name]
    if not tried:
        raise Skip("it offers neither tools nor commands")
    for each in tried:
        if each.problem:
            yield each.problem
        elif each.answer and not examination.is_error(each.answer):
            why = f"{each.request.what} is none of its own, and it answers as if all were well"
            yield fail(why, hint=examination.refuse, frames=[quote_frame(each.answer)])


def odd_arguments(examination: GuestExamination[Any]) -> Iterator[Finding]:
    """Never what fits the schema; and never anything for a tool that needs no arguments: it would do its work (design rule 7)."""
    given = {name for name, _ in examination.task.calls}
    requests = [
        examination.build_call(name, args)
        for name, schema in examination.list_tools(examination.first)
        for args in find_unfit_arguments(schema, given=name in given)
    ]
    if not requests:
        raise Skip("no tool has arguments that it needs; `--call` names one that may be called")
    with examination.open_probe() as probe:
        for request in requests:
            outcome = probe.try_request(request)
            if outcome in (RequestOutcome.SILENT, RequestOutcome.DIED):
                hint = "arguments are whatever the model made of the schema, null and lists too: look before you use them"
                yield probe.report_unanswered(request, outcome, hint=hint)
            if outcome is not RequestOutcome.ANSWERED:
                return
