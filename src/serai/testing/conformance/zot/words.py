"""The rules about what a zot guest says; how a guest of any dialect opens and answers is in `answering`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from serai.testing.conformance import offers, quoting
from serai.testing.conformance.answering import quoted
from serai.testing.conformance.examining import NOBODY
from serai.testing.conformance.offers import by_reason
from serai.testing.conformance.probing import Outcome
from serai.testing.conformance.report import Finding, Skip, failed, warned
from serai.testing.conformance.zot.examination import Examination, question
from serai.testing.conformance.zot.probe import Request
from serai.testing.zot_host.frames import EVENTS, INTERCEPTABLE, Frame
from serai.testing.zot_host.process import show

__all__ = ["frames", "intercept", "ready", "registrations", "silent_host", "stdout"]

# Spec zot 2.3.
_BUILT_IN_TOOLS = {"read", "write", "edit", "bash", "skill"}
_BUILT_IN_COMMANDS = {
    *("clear", "compact", "exit", "help", "jail", "jump", "login", "logout", "model", "btw", "reload-ext", "session", "sessions"),
    *("skills", "study", "telegram", "unjail", "yolo"),
}
_SHOWN = 3  # of the frames that have the same flaw


def ready(examination: Examination) -> Iterator[Finding]:
    first = examination.first
    if not first.ready:
        yield warned(
            "it never says ready",
            hint='send {"type":"ready"} after the last registration: else a host waits 250 ms, and what comes later may be lost',
            frames=[quoted(frame) for frame in first.registered[-1:]],
        )
    if late := [frame for frame in first.late if frame["type"] == "register_tool"]:
        yield warned(
            f"it registers {', '.join(frame['name'] for frame in late)} after its ready, so that no model is offered it",
            hint="register all tools before ready",
            frames=[quoted(frame) for frame in late],
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
        is_tool, name, shown = frame["type"] == "register_tool", frame["name"], [quoted(frame)]
        yield from (offers.tool_name if is_tool else offers.command_name)(name, shown)
        if name in (_BUILT_IN_TOOLS if is_tool else _BUILT_IN_COMMANDS):
            yield warned(f"{name} is built in, and the built-in one wins", hint="take another name", frames=shown)
        if is_tool:
            yield from offers.schema(name, frame.get("schema"), shown)
    yield from _twice(first.registered + first.late)
    shown = [quoted(frame) for frame in first.subscribed]
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
        shown = [quoted(frame) for frame in frames if (frame["type"], frame["name"]) == key]
        yield warned(f"{key[1]} is registered twice: the first counts", hint="register each name once", frames=shown)


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
    for why, shown in by_reason(wrong):
        yield failed(why, hint="a host drops a frame that is not as the protocol has it", frames=shown)
    for why, shown in by_reason(odd):
        yield warned(why, hint="a host reads over it; leave it out, or put in what is missing", frames=shown)


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
        for why, shown in by_reason([flawed for flawed in probe.wrong if flawed.kind == "event_intercept_response"]):
            hint = "leave out what is not set; modified_args is an object with all arguments, not only the changed ones"
            yield failed(why, hint=hint, frames=shown)


def _questions(event: str) -> list[Request]:
    match event:
        case "tool_call":
            odd = [question(event, tool_args=args) for args in offers.ODD_ARGUMENTS]
            return [question(event), question(event, tool_name=f"{NOBODY}_2"), *odd]
        case "turn_start":
            return [question(event, step=step) for step in (1, 2, 1000)]
    return [question(event, text=text) for text in ("Good morning.", "", "süß\u2028日本\n" * 1000)]
