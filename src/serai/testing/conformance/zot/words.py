"""The rules about what a guest says: its opening, its frames, its answers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from serai.host.schema_shape import Shape, Unfit, measure
from serai.host.schemas import Checked, checker
from serai.limits import KIB
from serai.testing.conformance import quoting
from serai.testing.conformance.report import Finding, Skip, failed, warned
from serai.testing.conformance.zot.examination import NOBODY, Examination, question
from serai.testing.conformance.zot.probe import Flawed, Outcome, Request, written
from serai.testing.zot_host.frames import EVENTS, INTERCEPTABLE, Frame
from serai.testing.zot_host.process import show

__all__ = [
    "answers",
    "frames",
    "hello",
    "intercept",
    "manifest",
    "odd_arguments",
    "ready",
    "registrations",
    "silent_host",
    "stdout",
    "unknown_names",
]

# What model APIs take as the name of a tool, and what a person can type as that of a command (spec zot 3.2).
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COMMAND_NAME = re.compile(r"[A-Za-z0-9_-]+")
# Spec zot 2.3.
_BUILT_IN_TOOLS = {"read", "write", "edit", "bash", "skill"}
_BUILT_IN_COMMANDS = {
    *("clear", "compact", "exit", "help", "jail", "jump", "login", "logout", "model", "btw", "reload-ext", "session", "sessions"),
    *("skills", "study", "telegram", "unjail", "yolo"),
}
_ODD_ARGUMENTS: tuple[object, ...] = (None, [], [{"serai": "check"}], "serai check", 7)
_SHOWN = 3  # of the frames that have the same flaw


def manifest(examination: Examination) -> Iterator[Finding]:
    if not examination.target.manifest:
        raise Skip("a program alone has none")
    yield from examination.target.remarks


def hello(examination: Examination) -> Iterator[Finding]:
    if problem := examination.visit.problem:
        yield problem


def ready(examination: Examination) -> Iterator[Finding]:
    first = examination.first
    if not first.ready:
        yield warned(
            "it never says ready",
            hint='send {"type":"ready"} after the last registration: else a host waits 250 ms, and what comes later may be lost',
            frames=[_shown(frame) for frame in first.registered[-1:]],
        )
    if late := [frame for frame in first.late if frame["type"] == "register_tool"]:
        yield warned(
            f"it registers {', '.join(frame['name'] for frame in late)} after its ready, so that no model is offered it",
            hint="register all tools before ready",
            frames=[_shown(frame) for frame in late],
        )


def silent_host(examination: Examination) -> Iterator[Finding]:
    first = examination.first
    hint = "say hello, all registrations and ready at once, and read only then: hello_ack may come at any time"
    with examination.probe(ack=False) as probe:
        if problem := probe.open(first):
            yield probe.failure(f"without hello_ack, {problem.why}", hint=hint)
            return
        said = [(frame["type"], frame["name"]) for frame in probe.registered]
        missing = [frame["name"] for frame in first.registered if (frame["type"], frame["name"]) not in said]
        missing += ["ready"] * (first.ready and not probe.ready)
        if missing:
            yield probe.failure(
                f"it does not say {', '.join(missing)} before it has heard hello_ack",
                hint=hint,
                frames=quoting.transcript(probe.process),
            )


# -- registrations ----------------------------------------------------------------------------------------------------------------


def registrations(examination: Examination) -> Iterator[Finding]:
    first = examination.first
    for frame in first.registered + first.late:
        is_tool, name, shown = frame["type"] == "register_tool", frame["name"], [_shown(frame)]
        if not (_TOOL_NAME if is_tool else _COMMAND_NAME).fullmatch(name):
            who = "no model can call" if is_tool else "nobody can type"
            yield failed(f"{who} the name {name!r}", hint="use ASCII letters, digits, - and _ (at most 64)", frames=shown)
        elif name in (_BUILT_IN_TOOLS if is_tool else _BUILT_IN_COMMANDS):
            yield warned(f"{name} is built in, and the built-in one wins", hint="take another name", frames=shown)
        if is_tool:
            yield from _schema(name, frame, shown)
    yield from _twice(first.registered + first.late)
    shown = [_shown(frame) for frame in first.subscribed]
    if unknown := [event for event in first.events if event not in EVENTS]:
        hint = f"the events are {', '.join(EVENTS)}"
        yield warned(f"there is no event {', '.join(unknown)}: it will never come", hint=hint, frames=shown)
    if unknown := [event for event in first.intercepts if event not in INTERCEPTABLE]:
        hint = f"what can be intercepted is {', '.join(INTERCEPTABLE)}"
        why = f"{', '.join(unknown)} cannot be intercepted: it will never be asked, and what it guards is open"
        yield failed(why, hint=hint, frames=shown)


def _twice(frames: Sequence[Frame]) -> Iterator[Finding]:
    counts = Counter((frame["type"], frame["name"]) for frame in frames)
    for key in (key for key, count in counts.items() if count > 1):
        shown = [_shown(frame) for frame in frames if (frame["type"], frame["name"]) == key]
        yield warned(f"{key[1]} is registered twice: the first counts", hint="register each name once", frames=shown)


def _schema(name: str, frame: Frame, shown: Sequence[str]) -> Iterator[Finding]:
    schema = frame.get("schema")
    if schema is None:
        hint = 'give one, {"type":"object","properties":{}} at least: some models refuse a tool without'
        yield warned(f"the tool {name} has no schema", hint=hint, frames=shown)
    elif not isinstance(schema, dict):
        yield failed(
            f"the schema of {name} is not an object", hint='write a JSON Schema: {"type":"object","properties":{…}}', frames=shown
        )
    elif (problem := checker(schema, who=name).problem) and _builds(schema):
        why = f"the schema of {name} has patterns that Serai cannot check: it has no look-around, no back-references, and a limit"
        yield warned(
            why, hint="write them without, or check what they say in the tool: here its arguments go unchecked", frames=shown
        )
    elif problem:
        why = problem.removesuffix(", so its arguments go unchecked")
        yield failed(why, hint="make it a JSON Schema that any validator takes; nothing outside of it is fetched", frames=shown)
    elif "type" in schema and "object" not in (schema["type"] if isinstance(schema["type"], list) else [schema["type"]]):
        yield failed(
            f"the schema of {name} takes no object", hint='a model gives arguments as an object: "type":"object"', frames=shown
        )


def _builds(schema: Frame) -> bool:
    """Whether it would do with patterns that backtrack. Serai's own do not, so that no text makes them run for ever."""
    import jsonschema_rs

    try:
        measure(schema, depth=64, length=256 * KIB)
        Shape(schema)  # beyond this, building it may take for ever, too
        jsonschema_rs.validator_for(json.dumps(schema), offline=True, ignore_unknown_formats=True)
    except (Unfit, ValueError, jsonschema_rs.ReferencingError):
        return False
    return True


# -- frames -----------------------------------------------------------------------------------------------------------------------


def stdout(examination: Examination) -> Iterator[Finding]:
    _ = examination.first
    noise = [line for probe in examination.seen for line in quoting.masked(probe.noise)]
    if noise:
        shown = [show("guest", line) for line in dict.fromkeys(noise)]
        hint = "stdout carries frames only, one JSON object with a type per line: print and log to stderr, and end every line"
        yield failed("it writes what is no frame to stdout", hint=hint, frames=shown[:_SHOWN])


def frames(examination: Examination) -> Iterator[Finding]:
    _ = examination.first
    wrong = [flawed for probe in examination.seen for flawed in probe.wrong if flawed.kind != "event_intercept_response"]
    odd = [flawed for probe in examination.seen for flawed in probe.odd]
    for why, shown in _by_reason(wrong):
        yield failed(why, hint="a host drops a frame that is not as the protocol has it", frames=shown)
    for why, shown in _by_reason(odd):
        yield warned(why, hint="a host reads over it; leave it out, or put in what is missing", frames=shown)


def _by_reason(flaws: Sequence[Flawed]) -> Iterator[tuple[str, list[str]]]:
    for why in dict.fromkeys(flawed.why for flawed in flaws):
        yield why, [next(flawed.shown for flawed in flaws if flawed.why == why)]


def _shown(frame: Frame) -> str:
    return quoting.frame("guest", written(frame))


# -- answers ----------------------------------------------------------------------------------------------------------------------


def answers(examination: Examination) -> Iterator[Finding]:
    first = examination.first
    for request in examination.real():
        known = first.names("register_tool" if request.kind == "tool_call" else "register_command")
        if request.fields["name"] not in known:
            yield failed(f"it has no {request.fields['name']} to try", hint=f"it has {', '.join(known) or 'none'}")
    for tried in examination.visit.tried:
        if tried.request.real and tried.problem:
            yield tried.problem
    twice = [said for probe in examination.seen for said in probe.answers.values() if len(said) > 1]
    if twice:
        shown = [_shown(frame) for frame in twice[0]]
        yield failed(
            "it answers a request twice", hint="send exactly one answer for each request: hosts use the first", frames=shown
        )
    strays = [stray for probe in examination.seen for stray in probe.strays]
    for why, shown in _by_reason(strays):
        yield failed(why, hint="echo the `id` of the request as it came, a string, in the answer of its kind", frames=shown)


def unknown_names(examination: Examination) -> Iterator[Finding]:
    _ = examination.first
    tried = [tried for tried in examination.visit.tried if tried.nobody]
    if not tried:
        raise Skip("it offers neither tools nor commands")
    for each in tried:
        if each.problem:
            yield each.problem
        elif each.answer and not (each.answer.get("is_error") or each.answer.get("error")):
            yield failed(
                f"{each.request.what} is none of its own, and it answers as if all were well",
                hint="answer a name that you do not know with an error: is_error for a tool, error for a command",
                frames=[_shown(each.answer)],
            )


def odd_arguments(examination: Examination) -> Iterator[Finding]:
    """Never what fits the schema; and never anything for a tool that needs no arguments: it would do its work (design rule 7)."""
    given = {name for name, _ in examination.task.calls}
    requests = []
    for frame in examination.first.registered:
        if frame["type"] == "register_tool":
            schema = frame.get("schema", {"type": "object"})
            check = checker(schema, who="") if isinstance(schema, dict) else None
            if check and not check.problem and (schema.get("required") or frame["name"] in given):
                requests += [Request("tool_call", {"name": frame["name"], "args": args}) for args in _unfit(check)]
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


def _unfit(check: Checked) -> list[object]:
    return [args for args in _ODD_ARGUMENTS if check.check(args)]


def intercept(examination: Examination) -> Iterator[Finding]:
    asked = [event for event in INTERCEPTABLE if event in examination.first.intercepts]
    if not asked:
        raise Skip("it intercepts nothing")
    for tried in examination.visit.tried:
        if tried.request.kind == "event_intercept" and tried.problem:
            yield tried.problem
            asked.remove(tried.request.fields["event"])
    with examination.opened() as probe:
        for event in asked:
            for request in _questions(event):
                outcome = probe.outcome(request)
                if outcome in (Outcome.SILENT, Outcome.DIED):
                    yield probe.unanswered(request, outcome)
                    return
        for why, shown in _by_reason([flawed for flawed in probe.wrong if flawed.kind == "event_intercept_response"]):
            hint = "leave out what is not set; modified_args is an object with all arguments, not only the changed ones"
            yield failed(why, hint=hint, frames=shown)


def _questions(event: str) -> list[Request]:
    match event:
        case "tool_call":
            odd = [question(event, tool_args=args) for args in _ODD_ARGUMENTS]
            return [question(event), question(event, tool_name=f"{NOBODY}_2"), *odd]
        case "turn_start":
            return [question(event, step=step) for step in (1, 2, 1000)]
    return [question(event, text=text) for text in ("Good morning.", "", "süß\u2028日本\n" * 1000)]
