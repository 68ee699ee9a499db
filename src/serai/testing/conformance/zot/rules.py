"""The rules of zot guests: what they send, and how they take strange input. `shared_rules` has those of any guest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from serai.testing.conformance import findings, shared_rules
from serai.testing.conformance.examination import NOBODY
from serai.testing.conformance.findings import Finding, Rule, Skip, fail, warn
from serai.testing.conformance.probe import RequestOutcome, compact, escape, pad, reverse, with_separators
from serai.testing.conformance.shared_rules import check_lines, find_harm, group_flaws, quote_frame, try_lines
from serai.testing.conformance.zot.probe import ZotExamination, ZotProbe, ZotRequest, build_question
from serai.testing.guest_process import format_line
from serai.testing.zot_host import EVENTS, INTERCEPTABLE, LONGEST, Frame

FORMS: dict[str, Callable[[Frame], bytes]] = {
    "with its type at the end": reverse,
    "with blanks around its parts": pad,
    "with an escape for every character": escape,
    "with U+0085, U+2028 and U+2029 in a text": with_separators,
}
IDS = {
    "with letters in its id": "aBcDeF-xYz_019",
    "with an id of 300 characters": "9876543210" * 30,
    "with quotes and more than ASCII in its id": '"7" \\ § 日本 😀',
}


_NO_FRAMES = [
    b"",
    b"\r",
    b"serai check",
    b"{",
    b"null",
    b"17",
    b"[1, 2]",
    b'"tool_call"',
    b"{}",
    b'{"type":7}',
    b'{"type":null,"id":"1"}',
    b"\xff\xfe{}",
]
_UNKNOWN_FRAMES = [
    b'{"type":"dance","id":"1","steps":3}',
    b'{"type":"error","message":"an old protocol had this"}',
    b'{"type":"panel_resize","panel_id":"serai_check","width":96,"height":28}',
    b'{"type":"panel_key","panel_id":"serai_check","key":"rune","text":"x"}',
    b'{"type":"panel_close","panel_id":"serai_check"}',
]
_EVENTS = [
    b'{"type":"event","event":"session_start"}',
    b'{"type":"event","event":"turn_start","step":1}',
    b'{"type":"event","event":"assistant_message","text":"Good morning."}',
    b'{"type":"event","event":"tool_call","tool_id":"call_1","tool_name":"%s","tool_args":{}}' % NOBODY.encode(),
    b'{"type":"event","event":"tool_call","tool_id":"call_2","tool_name":"%s","tool_args":null}' % NOBODY.encode(),
    b'{"type":"event","event":"turn_end","stop":"error","error":"serai check"}',
    b'{"type":"event","event":"full_moon","phase":3}',
]
_BARE = [
    b'{"type":"event","event":"assistant_message"}',
    b'{"type":"event","event":"turn_end","stop":"end"}',
]


def not_json(examination: ZotExamination) -> Iterator[Finding]:
    hint = "skip a line that is blank, no JSON, or no object with a string `type`; a note on stderr is enough"
    yield from check_lines(examination, "lines that are no frames", _NO_FRAMES, hint)


def unknown_frames(examination: ZotExamination) -> Iterator[Finding]:
    hint = "skip frames and fields that you do not know, and panels that you do not have: hosts may know more than you do"
    yield from check_lines(examination, "frames that it does not know", _UNKNOWN_FRAMES, hint, mood="good", session={"id": 1})


def events(examination: ZotExamination) -> Iterator[Finding]:
    hint = "take events as they come: also those that you did not subscribe to"
    yield from check_lines(examination, "events", _EVENTS, hint)


def oversize(examination: ZotExamination) -> Iterator[Finding]:
    long = b'{"type":"serai_check","text":"%s"}' % (b"x" * LONGEST)  # of no known type: its length is all that can do harm
    hint = "a line of more than 4 MiB may come: read it, or skip to its end, and go on"
    yield from check_lines(examination, "a line of more than 4 MiB", [long], hint)


def optional_fields(examination: ZotExamination) -> Iterator[Finding]:
    """What a host leaves out when there is nothing to say (spec zot 3.3, 4.3, 4.6)."""
    hint = "a field that is optional may be absent: look before you use it"
    welcome = "a hello_ack without extension_dir and data_dir"
    with examination.open_probe(folders=False, what=f"after {welcome}", hint=hint) as probe:
        if found := find_harm(examination, probe, welcome, hint):
            yield found
            return
        panels = ["serai_check", *_open_panels(examination, probe)]
        keys = [compact({"type": "panel_key", "panel_id": panel, "key": "up"}) for panel in panels]
        yield from try_lines(examination, probe, "frames without their optional fields", [*_BARE, *keys], hint)


def _open_panels(examination: ZotExamination, probe: ZotProbe) -> list[str]:
    """Those that a person's commands open, once more."""
    opening = [tried.request for tried in examination.visit.tried if (tried.answer or {}).get("action") == "open_panel"]
    for request in opening:
        probe.try_request(request)
    panels = [answer.get("open_panel") for answers in probe.answers.values() for answer in answers]
    return [panel["id"] for panel in panels if isinstance(panel, dict) and isinstance(panel.get("id"), str)]


def any_json(examination: ZotExamination) -> Iterator[Finding]:
    hint = "read each line with a JSON parser and write with a JSON writer; lines end at \\n, and an id is any text"
    yield from shared_rules.try_spellings(examination, FORMS, IDS, hint)


# Spec zot 2.3.
_BUILT_IN_TOOLS = {"read", "write", "edit", "bash", "skill"}
_BUILT_IN_COMMANDS = {
    *("clear", "compact", "exit", "help", "jail", "jump", "login", "logout", "model", "btw", "reload-ext", "session", "sessions"),
    *("skills", "study", "telegram", "unjail", "yolo"),
}
_SHOWN = 3  # of the frames that have the same flaw


def ready(examination: ZotExamination) -> Iterator[Finding]:
    first = examination.first
    if not first.ready:
        yield warn(
            "it never says ready",
            hint='send {"type":"ready"} after the last registration: else a host waits 250 ms, and what comes later may be lost',
            frames=[quote_frame(frame) for frame in first.registered[-1:]],
        )
    if late := [frame for frame in first.late if frame["type"] == "register_tool"]:
        yield warn(
            f"it registers {', '.join(frame['name'] for frame in late)} after its ready, so that no model is offered it",
            hint="register all tools before ready",
            frames=[quote_frame(frame) for frame in late],
        )


def silent_host(examination: ZotExamination) -> Iterator[Finding]:
    first = examination.first
    hint = "say hello, all registrations and ready at once, and read only then: hello_ack may come at any time"
    with examination.probe(ack=False) as probe:
        if problem := probe.open(first):
            yield probe.fail(f"without hello_ack, {problem.why}", hint=hint)
            return
        said = [(frame["type"], frame["name"]) for frame in probe.registered]
        missing = [frame["name"] for frame in first.registered if (frame["type"], frame["name"]) not in said]
        missing += ["ready"] * (first.ready and not probe.ready)
        if missing:
            yield probe.fail(
                f"it does not say {', '.join(missing)} before it has heard hello_ack",
                hint=hint,
                frames=findings.quote_tail(probe.process),
            )


# -- registrations ----------------------------------------------------------------------------------------------------------------


def registrations(examination: ZotExamination) -> Iterator[Finding]:
    first = examination.first
    for frame in first.registered + first.late:
        is_tool, name, shown = frame["type"] == "register_tool", frame["name"], [quote_frame(frame)]
        yield from (shared_rules.check_tool_name if is_tool else shared_rules.check_command_name)(name, shown)
        if name in (_BUILT_IN_TOOLS if is_tool else _BUILT_IN_COMMANDS):
            yield warn(f"{name} is built in, and the built-in one wins", hint="take another name", frames=shown)
        if is_tool:
            yield from shared_rules.check_schema(name, frame.get("schema"), shown)
    yield from _check_duplicates(first.registered + first.late)
    shown = [quote_frame(frame) for frame in first.subscribed]
    if unknown := [event for event in first.events if event not in EVENTS]:
        hint = f"the events are {', '.join(EVENTS)}"
        yield warn(f"there is no event {', '.join(unknown)}: it will never come", hint=hint, frames=shown)
    if unknown := [event for event in first.intercepts if event not in INTERCEPTABLE]:
        hint = f"what can be intercepted is {', '.join(INTERCEPTABLE)}"
        why = f"{', '.join(unknown)} cannot be intercepted: it will never be asked, and what it guards is open"
        yield fail(why, hint=hint, frames=shown)


def _check_duplicates(frames: Sequence[Frame]) -> Iterator[Finding]:
    counts = Counter((frame["type"], frame["name"]) for frame in frames)
    for key in (key for key, count in counts.items() if count > 1):
        shown = [quote_frame(frame) for frame in frames if (frame["type"], frame["name"]) == key]
        yield warn(f"{key[1]} is registered twice: the first counts", hint="register each name once", frames=shown)


# -- frames -----------------------------------------------------------------------------------------------------------------------


def stdout(examination: ZotExamination) -> Iterator[Finding]:
    _ = examination.first
    noise = [line for probe in examination.seen for line in findings.mask_lines(probe.noise)]
    if noise:
        shown = [format_line("guest", line) for line in dict.fromkeys(noise)]
        hint = "stdout carries frames only, one JSON object with a type per line: print and log to stderr, and end every line"
        yield fail("it writes what is no frame to stdout", hint=hint, frames=shown[:_SHOWN])


def frames(examination: ZotExamination) -> Iterator[Finding]:
    _ = examination.first
    wrong = [flawed for probe in examination.seen for flawed in probe.wrong if flawed.kind != "event_intercept_response"]
    odd = [flawed for probe in examination.seen for flawed in probe.odd]
    for why, shown in group_flaws(wrong):
        yield fail(why, hint="a host drops a frame that is not as the protocol has it", frames=shown)
    for why, shown in group_flaws(odd):
        yield warn(why, hint="a host reads over it; leave it out, or put in what is missing", frames=shown)


def intercept(examination: ZotExamination) -> Iterator[Finding]:
    asked = [event for event in INTERCEPTABLE if event in examination.first.intercepts]
    if not asked:
        raise Skip("it intercepts nothing")
    for tried in examination.visit.tried:
        if tried.request.kind == "event_intercept" and tried.problem:
            yield tried.problem
            asked.remove(tried.request.fields["event"])
    with examination.open_probe() as probe:
        for event in asked:
            for request in _build_questions(event):
                outcome = probe.try_request(request)
                if outcome in (RequestOutcome.SILENT, RequestOutcome.DIED):
                    yield probe.report_unanswered(request, outcome)
                    return
        for why, shown in group_flaws([flawed for flawed in probe.wrong if flawed.kind == "event_intercept_response"]):
            hint = "leave out what is not set; modified_args is an object with all arguments, not only the changed ones"
            yield fail(why, hint=hint, frames=shown)


def _build_questions(event: str) -> list[ZotRequest]:
    match event:
        case "tool_call":
            odd = [build_question(event, tool_args=args) for args in shared_rules.ODD_ARGUMENTS]
            return [build_question(event), build_question(event, tool_name=f"{NOBODY}_2"), *odd]
        case "turn_start":
            return [build_question(event, step=step) for step in (1, 2, 1000)]
    return [build_question(event, text=text) for text in ("Good morning.", "", "süß\u2028日本\n" * 1000)]


RULES = (
    Rule(
        "manifest",
        "its manifest can be read and its program is there",
        shared_rules.manifest,
        ("zot.rule.1.3-required", "zot.rule.1.3-exec"),
        opening=True,
    ),
    Rule(
        "hello",
        "it opens with a hello that has a name, in time, and stays",
        shared_rules.opens,
        ("zot.edge.01", "zot.edge.02", "zot.frame.hello"),
        opening=True,
    ),
    Rule("stdout", "its stdout carries frames only", stdout, ("zot.rule.3.1-malformed",), last=True),
    Rule(
        "frames",
        "its frames are as the protocol has them",
        frames,
        ("zot.rule.3.1-wrong-field-type", "zot.rule.3.1-zero-values", "zot.rule.3.1-max-line"),
        last=True,
    ),
    Rule(
        "registrations",
        "what it registers can be used",
        registrations,
        ("zot.frame.register_tool", "zot.frame.register_command", "zot.rule.9-names"),
    ),
    Rule("ready", "it says ready after all it offers", ready, ("zot.edge.05", "zot.edge.47")),
    Rule("silent-host", "it says all it offers without waiting for hello_ack", silent_host, ("zot.edge.04",)),
    Rule(
        "answers",
        "each request is answered once, under its own id",
        shared_rules.answers,
        ("zot.edge.08", "zot.edge.09"),
        last=True,
    ),
    Rule(
        "unknown-names",
        "a tool or command that it does not have is answered with an error",
        shared_rules.unknown_names,
        ("sdk.answer.nobody",),
    ),
    Rule("odd-arguments", "whatever a model makes of the arguments is answered", shared_rules.odd_arguments, ("zot.edge.51",)),
    Rule(
        "intercept",
        "a question about an event is answered in time, and well",
        intercept,
        ("zot.edge.13", "zot.frame.event_intercept_response"),
    ),
    Rule("idle", "it stays while nobody asks it anything", shared_rules.idle, ("zot.edge.36",), long=True),
    Rule("events", "events do it no harm", events, ("zot.frame.event",)),
    Rule(
        "optional-fields",
        "it does without fields that a host may leave out",
        optional_fields,
        ("zot.rule.3.1-zero-values", "zot.frame.hello_ack", "zot.frame.panel_key"),
    ),
    Rule("any-json", "requests and ids are read however they are written", any_json, ("zot.rule.3.1-ids",)),
    Rule("not-json", "lines that are no frames do it no harm", not_json, ("zot.rule.3.1-malformed",)),
    Rule(
        "unknown-frames",
        "unknown frames and fields do it no harm",
        unknown_frames,
        ("zot.rule.3.1-unknown-fields", "zot.rule.5.3-unknown-type"),
    ),
    Rule("oversize", "a line of more than 4 MiB does it no harm", oversize, ("zot.ours.5.3-oversize-survived",), long=True),
    Rule("burst", "64 requests at once are each answered", shared_rules.burst, ("zot.edge.52",), long=True),
    Rule(
        "open-requests",
        "requests that are open keep neither others nor the end",
        shared_rules.open_requests,
        ("zot.edge.52", "zot.rule.5.1-shutdown"),
    ),
    Rule("shutdown", "it ends after shutdown", shared_rules.shutdown, ("zot.rule.5.1-shutdown", "zot.edge.34")),
    Rule("end-of-input", "it ends when its input ends", shared_rules.eof, ("zot.edge.36",)),
    Rule("host-gone", "it ends when its host is gone", shared_rules.host_gone, ("zot.edge.36",)),
    Rule("terminate", "SIGTERM ends it", shared_rules.terminate, ("zot.edge.35",)),
    Rule("left-behind", "no process is left when it has ended", shared_rules.left_behind, ("zot.edge.36",), last=True),
)
