"""The rules of piglet guests: what they send, and how they take strange input and a poor host. `shared_rules` has those of any
guest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from serai.testing.conformance import findings, shared_rules
from serai.testing.conformance.examination import NOBODY
from serai.testing.conformance.findings import Finding, Rule, Skip, fail, warn
from serai.testing.conformance.piglet.probe import PigletExamination, PigletProbe, PigletRequest, build_call
from serai.testing.conformance.probe import Flawed, Frame, RequestOutcome, describe_exit, escape, pad, reverse, with_separators
from serai.testing.conformance.shared_rules import check_lines, find_harm, group_flaws, opens, pick_reliable, try_lines
from serai.testing.guest_process import format_line
from serai.testing.piglet_host.messages import EVENTS, LONGEST, Message

_NO_MESSAGES = [
    b"",
    b"\r",
    b"serai check",
    b"{",
    b"null",
    b"17",
    b'[{"jsonrpc":"2.0","method":"serai/check"}]',
    b'"tool/execute"',
    b"{}",
    b'{"jsonrpc":"2.0"}',
    b'{"jsonrpc":"2.0","method":null,"id":null}',
    b"\xff\xfe{}",
]
_UNKNOWN = [
    b'{"jsonrpc":"2.0","method":"serai/check","params":{"steps":3}}',
    b'{"jsonrpc":"2.0","method":"serai/check"}',
    b'{"jsonrpc":"2.0","method":"eventBus/event","params":{"topic":"serai:check","subscriptionId":424242,"data":null}}',
    b'{"jsonrpc":"2.0","id":424242,"result":{}}',
    b'{"jsonrpc":"2.0","id":424243,"error":{"code":-32603,"message":"serai check"}}',
    b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":424242}}',
]
_FORMS: dict[str, Callable[[Frame], bytes]] = {
    "with its members in another order": reverse,
    "with blanks around its parts": pad,
    "with an escape for every character": escape,
    "with U+0085, U+2028 and U+2029 in a text": with_separators,
}
_IDS = {"with the id 0": 0, "with an id of ten digits": 4294967297, "with an id of sixteen digits": 9007199254740991}


def not_json(examination: PigletExamination) -> Iterator[Finding]:
    hint = "skip a line that is blank, no JSON, or no object with a `method` or an `id`; a note on stderr is enough"
    yield from check_lines(examination, "lines that are no messages", _NO_MESSAGES, hint)


def unknown_frames(examination: PigletExamination) -> Iterator[Finding]:
    hint = "skip notifications, fields, subscriptions and answers that you do not know: hosts may know more than you do"
    yield from check_lines(examination, "messages that it does not know", _UNKNOWN, hint, mood="good", session={"id": 1})


def oversize(examination: PigletExamination) -> Iterator[Finding]:
    """The longest line there is has to be read; nobody has to read a longer one, but it may not hang (spec piglet 2.2)."""
    hint = "read lines of up to 4 MiB; end, or skip to the end of the line, when a longer one comes"
    head = b'{"jsonrpc":"2.0","method":"eventBus/event","params":{"topic":"serai:check","subscriptionId":424242,"data":"'
    tail = b'"}}'
    fits, long = (head + b"x" * (length - len(head) - len(tail)) + tail for length in (LONGEST - 1, LONGEST + 1))
    yield from check_lines(examination, "a line of 4 MiB", [fits], hint)
    [cheapest, *_] = pick_reliable(examination)
    with examination.open_probe() as probe:
        probe.write(long + b"\n")
        if probe.try_request(cheapest) is RequestOutcome.SILENT:
            yield probe.fail("after a line of more than 4 MiB it neither answers nor ends", hint=hint)


def optional_fields(examination: PigletExamination) -> Iterator[Finding]:
    """What a host may leave out: the folder of the configuration, and arguments that are null (spec piglet 3, 5.1)."""
    hint = "a field that is optional may be absent: look before you use it"
    what = "an initialize without configDir"
    with examination.open_probe(bare=True, what=f"after {what}", hint=hint) as probe:
        if found := find_harm(examination, probe, what, hint):
            yield found
        elif probe.list_names("register/tool"):
            request = build_call(NOBODY, None)
            outcome = probe.try_request(request)
            if outcome in (RequestOutcome.SILENT, RequestOutcome.DIED):
                yield probe.report_unanswered(request, outcome, how="with args null", hint=hint)


def poor_host(examination: PigletExamination) -> Iterator[Finding]:
    """Piglet itself refuses most services during the handshake (spec piglet 3)."""
    if not examination.first.requested:
        raise Skip("it asks nothing of its host")
    hint = "go on without what a host refuses: piglet refuses most of its services until the handshake is over"
    with examination.open_probe(services=False, what="when its host refuses what it asks", hint=hint) as probe:
        if found := find_harm(examination, probe, "a host that refuses what it asks", hint):
            yield found
        elif missing := sorted(set(examination.first.list_names("register/tool")) - set(probe.list_names("register/tool"))):
            yield warn(f"without the services of its host it does not register {', '.join(missing)}", hint=hint)


def any_json(examination: PigletExamination) -> Iterator[Finding]:
    hint = "read each line with a JSON parser; lines end at \\n, and an id is any integer, 0 too"
    yield from shared_rules.try_spellings(examination, _FORMS, _IDS, hint)


def cancel(examination: PigletExamination) -> Iterator[Finding]:
    """A request that is taken back may be answered or not; the next one is (spec piglet 2.6, 10.8)."""
    requests = pick_reliable(examination)
    hint = "a cancelled request may end with an error, or as it would have; everything else goes on"
    with examination.open_probe() as probe:
        for request in requests:
            [id] = probe.ask(request)
            probe.send(method="$/cancelRequest", params={"id": id})
        [answered] = probe.ask(requests[0])
        probe.hear(lambda: answered in probe.answers, probe.get_limit(requests[-1]))
        yield from try_lines(
            examination,
            probe,
            "requests that were taken back",
            [b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":%d}}' % answered],
            hint,
        )


def shutdown_request(examination: PigletExamination) -> Iterator[Finding]:
    """As a request it is answered with null, and then it ends (spec piglet 5.10). No host of today sends it so."""
    limit = examination.patience.shutdown
    hint = "answer a shutdown that has an id with the result null, and exit with 0"
    with examination.open_probe() as probe:
        outcome = probe.try_request(PigletRequest("shutdown", {}))
        if outcome is not RequestOutcome.ANSWERED or probe.last_answer.get("error") is not None:
            yield warn("it does not answer a request shutdown", hint=hint, frames=probe.quote_tail())
        elif (status := probe.wait_for_end(limit)) is None:
            yield warn(f"it answers a request shutdown, and does not end within {limit:g} s", hint=hint, frames=probe.quote_tail())
        elif status != 0:
            yield warn(f"after a request shutdown it ends with {describe_exit(status)}", hint=hint, frames=probe.quote_tail())


_BUILT_IN = {"read", "write", "edit", "bash", "grep", "find"}
_KEY = re.compile(r"(ctrl\+)?(alt\+)?(shift\+)?[a-z]")  # spec piglet 4
_ONCE = {"register/tool": "name", "register/command": "name", "register/shortcut": "key"}  # of these the last counts
_HOOKS = ("messageHook/onMessage", "inputTransformer/transform", "compact/execute")
_ELSEWHERE = ("interceptor/before", "interceptor/after", "event/dispatch", *_HOOKS)  # rules of their own tell these
_TEXTS = ("Good morning.", "", "süß\u2028日本\n" * 1000)
_SHOWN = 3  # of the lines that have the same flaw
# What comes with some events (spec piglet 6.3); the others are as empty.
_DATA: dict[str, Message] = {
    "EventAgentInit": {"ToolCount": 3},
    "EventMessagePre": {"Content": "Good morning."},
    "EventStreamDelta": {"Kind": "text", "Index": 0, "Delta": "Good"},
    "EventToolStart": {"ToolCallID": "call_1", "ToolName": NOBODY, "Args": None},
    "EventToolEnd": {"ToolCallID": "call_1", "ToolName": NOBODY, "Result": None, "IsError": False},
    "EventTurnEnd": {"Assistant": None, "ToolResults": None},
    "EventRetry": {"Attempt": 1, "Max": 3, "DelayMs": 500, "Error": "serai check"},
    "EventAgentEnd": {"Messages": None},
}


def handshake(examination: PigletExamination) -> Iterator[Finding]:
    yield from opens(examination)
    if examination.visit.problem is None:
        where = {"fd": "FD 3 and 4", "stdio": "stdin and stdout"}[examination.transport]
        yield Finding(status="passed", why=f"it answers initialize on {where}, in time, and stays")


def in_time(examination: PigletExamination) -> Iterator[Finding]:
    late = {(method, params.get("name")): line for probe in examination.tried_here for method, params, line in probe.late}
    if late:
        names = ", ".join(sorted(f"{method} {name or ''}".strip() for method, name in late))
        yield warn(
            f"it registers after its answer to initialize: {names}",
            hint="register everything first and answer initialize then: piglet loses what comes later",
            frames=[findings.quote_line("guest", line) for line in late.values()][:_SHOWN],
        )


# -- registrations ----------------------------------------------------------------------------------------------------------------


def registrations(examination: PigletExamination) -> Iterator[Finding]:
    first = examination.first
    said = first.registrations + first.late
    for method, params, line in said:
        shown = [findings.quote_line("guest", line)]
        match method:
            case "register/tool":
                yield from _check_tool(params, shown)
            case "register/command":
                yield from shared_rules.check_command_name(params["name"], shown)
            case "register/shortcut" if not _KEY.fullmatch(params["key"]):
                hint = "name it as ctrl+g or alt+shift+g: modifiers in the order ctrl, alt, shift, then one letter"
                yield fail(f"nobody can press the key {params['key']!r}", hint=hint, frames=shown)
    counts = Counter((method, params[_ONCE[method]]) for method, params, _ in said if method in _ONCE)
    for (method, name), count in counts.items():
        if count > 1:
            lines = [line for kind, params, line in said if kind == method and params[_ONCE[kind]] == name]
            shown = [findings.quote_line("guest", line) for line in lines]
            yield warn(f"{name} is registered twice: the last counts", hint="register each name once", frames=shown)


def _check_tool(params: Message, shown: Sequence[str]) -> Iterator[Finding]:
    """A name that no model takes is mapped to one that it does (spec piglet 10.33)."""
    name = params["name"]
    for finding in shared_rules.check_tool_name(name, shown):
        yield warn(f"{finding.why} as it is", hint=f"a host has to give it another one; {finding.hint}", frames=shown)
    if name in _BUILT_IN:
        hint = "take another name, or tell your users to grant it: replace = [...]"
        yield warn(f"{name} is built in, and the built-in one wins unless this is granted", hint=hint, frames=shown)
    yield from shared_rules.check_schema(name, params.get("parameters"), shown)


# -- frames -----------------------------------------------------------------------------------------------------------------------


def stdout(examination: PigletExamination) -> Iterator[Finding]:
    _ = examination.first
    probes = examination.tried_here
    if noise := [line for probe in probes for line in findings.mask_lines(probe.noise)]:
        shown = [format_line("guest", line) for line in dict.fromkeys(noise)]
        hint = "the wire carries one JSON object of JSON-RPC per line: print and log to stderr, or with the notification `log`"
        yield fail(f"it writes what is no message to {probes[0].output}", hint=hint, frames=shown[:_SHOWN])
    if printed := [text for probe in probes for text in findings.mask_lines(probe.printed)]:
        hint = "print to stderr, or send `log`: where a host has no FD 3 and 4, stdout is the wire"
        yield warn("it prints to stdout", hint=hint, frames=[format_line("guest", printed[0])])


def frames(examination: PigletExamination) -> Iterator[Finding]:
    _ = examination.first
    wrong = [flawed for probe in examination.tried_here for flawed in probe.wrong if flawed.kind not in _ELSEWHERE]
    odd = [flawed for probe in examination.tried_here for flawed in probe.odd]
    for why, shown in group_flaws(wrong):
        yield fail(why, hint="a host cannot use what is not as the protocol has it", frames=shown)
    for why, shown in group_flaws(odd):
        yield warn(why, hint="a host reads over it; leave it out, or put in what is missing", frames=shown)


# -- answers ----------------------------------------------------------------------------------------------------------------------


def unknown_methods(examination: PigletExamination) -> Iterator[Finding]:
    request = PigletRequest("serai/check", {})
    hint = "answer a method that you do not know with the error -32601: a host may know more than you do, and waits"
    with examination.open_probe() as probe:
        outcome = probe.try_request(request)
        if outcome in (RequestOutcome.SILENT, RequestOutcome.DIED):
            yield probe.report_unanswered(request, outcome, hint=hint)
        elif outcome is RequestOutcome.ANSWERED and not examination.is_error(probe.last_answer):
            yield probe.fail("a method that does not exist is answered as if all were well", hint=hint)
        elif outcome is RequestOutcome.ANSWERED and (probe.last_answer.get("error") or {}).get("code") != -32601:
            yield warn(
                "a method that does not exist is answered with another code than -32601", hint=hint, frames=probe.quote_tail()
            )


def intercept(examination: PigletExamination) -> Iterator[Finding]:
    names = list(dict.fromkeys(examination.first.list_names("register/interceptor")))
    if not names:
        raise Skip("it intercepts nothing")
    requests = []
    for name in names:
        about = {"name": name, "toolName": NOBODY}
        requests += [PigletRequest("interceptor/before", {**about, "args": args}) for args in ({}, None, {"serai": [1, None]})]
        requests += [
            PigletRequest("interceptor/after", about | more) for more in ({}, {"details": {"content": [], "isError": False}})
        ]
    hint = "answer before with `allow` true or false, and after with `details` as they came: an error blocks the tool"
    yield from _check_answers(examination, requests, hint, refused="blocks every tool")


def events(examination: PigletExamination) -> Iterator[Finding]:
    wanted: dict[str, None] = {}
    for params in examination.first.registered("register/eventHandler"):
        wanted |= dict.fromkeys(params.get("events") or EVENTS)
    if not wanted:
        raise Skip("it handles no events")
    requests = [PigletRequest("event/dispatch", {"type": event, "data": _DATA.get(event, {})}) for event in wanted]
    yield from _check_answers(examination, requests, "answer `{}`, or an `action`; lists and objects of an event may be null")


def hooks(examination: PigletExamination) -> Iterator[Finding]:
    """Message hooks, input transformers and the compactor."""
    requests = []
    for request in examination.build_harmless(examination.first):
        [(key, _)] = request.fields.items()
        requests += [request._replace(fields={key: text}) for text in _TEXTS] if key != "messages" else [request]
    if not requests:
        raise Skip("it has no message hook, no input transformer and no compactor")
    hint = "answer with `injection`, with `output` and `handled`, or with `messages`, whatever the text is"
    yield from _check_answers(examination, requests, hint, refused="stops what a person has typed")


def _check_answers(
    examination: PigletExamination, requests: Sequence[PigletRequest], hint: str, *, refused: str = ""
) -> Iterator[Finding]:
    """Each is answered, with a result that a host can use. `refused` is what an error does there."""
    with examination.open_probe() as probe:
        for request in requests:
            outcome = probe.try_request(request)
            if outcome in (RequestOutcome.SILENT, RequestOutcome.DIED):
                yield probe.report_unanswered(request, outcome)
                return
            if outcome is RequestOutcome.ANSWERED and (error := probe.last_answer.get("error")):
                yield _report_refusal(probe, request, error, hint, refused)
                return
        for why, shown in group_flaws(_find_flawed(probe, {request.kind for request in requests})):
            yield fail(why, hint=hint, frames=shown)


def _report_refusal(probe: PigletProbe, request: PigletRequest, error: object, hint: str, what: str) -> Finding:
    why = f"{request.what} is answered with an error{f', which {what}' if what else ''}: {error}"
    return probe.fail(why, hint=hint) if what else warn(why, hint=hint, frames=probe.quote_tail())


def _find_flawed(probe: PigletProbe, kinds: set[str]) -> list[Flawed]:
    return [flawed for flawed in probe.wrong if flawed.kind in kinds]


RULES = (
    Rule(
        "manifest",
        "its manifest can be read and its program is there",
        shared_rules.manifest,
        ("piglet.rule.manifest-required", "piglet.rule.runtime-names", "piglet.rule.runtime-paths"),
        opening=True,
    ),
    Rule(
        "handshake",
        "it answers initialize in time, and stays",
        handshake,
        ("piglet.method.initialize", "piglet.rule.handshake-timeout", "piglet.fix.02", "piglet.fix.08"),
        opening=True,
    ),
    Rule("stdout", "its wire carries messages only", stdout, ("piglet.rule.framing-noise",), last=True),
    Rule(
        "frames",
        "its messages are as the protocol has them",
        frames,
        ("piglet.rule.envelope-shapes", "piglet.rule.envelope-ids", "piglet.rule.register-undecodable", "piglet.fix.03"),
        last=True,
    ),
    Rule(
        "registrations",
        "what it registers can be used",
        registrations,
        ("piglet.method.register/tool", "piglet.method.register/shortcut", "piglet.fix.10", "piglet.rule.register-repeat"),
    ),
    Rule("in-time", "it registers all before it answers initialize", in_time, ("piglet.rule.register-late",), last=True),
    Rule(
        "answers", "each request is answered once, under its own id", shared_rules.answers, ("piglet.rule.envelope-ids",), last=True
    ),
    Rule(
        "unknown-names",
        "a tool or command that it does not have is answered with an error",
        shared_rules.unknown_names,
        ("piglet.rule.error-codes",),
    ),
    Rule(
        "unknown-methods",
        "a method that it does not know is answered with an error",
        unknown_methods,
        ("piglet.rule.error-codes",),
    ),
    Rule("odd-arguments", "whatever a model makes of the arguments is answered", shared_rules.odd_arguments, ("piglet.edge.13",)),
    Rule(
        "intercept",
        "a question about a tool is answered in time, and well",
        intercept,
        ("piglet.method.interceptor/before", "piglet.method.interceptor/after", "piglet.edge.02"),
    ),
    Rule("events", "each event that it wants is answered", events, ("piglet.method.event/dispatch", "piglet.rule.actions")),
    Rule(
        "hooks",
        "its message hooks, input transformers and compactor answer well",
        hooks,
        ("piglet.method.messageHook/onMessage", "piglet.method.inputTransformer/transform", "piglet.method.compact/execute"),
    ),
    Rule("idle", "it stays while nobody asks it anything", shared_rules.idle, ("piglet.method.shutdown",), long=True),
    Rule(
        "optional-fields",
        "it does without fields that a host may leave out",
        optional_fields,
        ("piglet.method.initialize", "piglet.edge.13"),
    ),
    Rule("poor-host", "it opens although its host refuses what it asks", poor_host, ("piglet.fix.09",)),
    Rule("any-json", "requests and ids are read however they are written", any_json, ("piglet.rule.envelope-ids",)),
    Rule("not-json", "lines that are no messages do it no harm", not_json, ("piglet.rule.framing-noise",)),
    Rule(
        "unknown-frames",
        "unknown notifications, fields and answers do it no harm",
        unknown_frames,
        ("piglet.rule.envelope-shapes", "piglet.edge.37"),
    ),
    Rule(
        "oversize",
        "a line of 4 MiB is read, and a longer one does not make it hang",
        oversize,
        ("piglet.rule.framing-send-limit",),
        long=True,
    ),
    Rule("burst", "64 requests at once are each answered", shared_rules.burst, ("piglet.fix.06", "piglet.edge.31"), long=True),
    Rule(
        "open-requests",
        "requests that are open keep neither others nor the end",
        shared_rules.open_requests,
        ("piglet.fix.06", "piglet.edge.05"),
    ),
    Rule(
        "cancel",
        "requests that are taken back do it no harm",
        cancel,
        ("piglet.method.$/cancelRequest", "piglet.edge.08"),
    ),
    Rule("shutdown", "it ends after shutdown", shared_rules.shutdown, ("piglet.method.shutdown", "piglet.edge.09")),
    Rule(
        "shutdown-request",
        "it answers a shutdown that is a request, and ends",
        shutdown_request,
        ("piglet.rule.sdk-transport",),
    ),
    Rule("end-of-input", "it ends when its input ends", shared_rules.eof, ("piglet.rule.stop-ladder",)),
    Rule("host-gone", "it ends when its host is gone", shared_rules.host_gone, ("piglet.rule.stop-ladder",)),
    Rule("terminate", "SIGTERM ends it", shared_rules.terminate, ("piglet.rule.stop-ladder",)),
    Rule("left-behind", "no process is left when it has ended", shared_rules.left_behind, ("piglet.edge.12",), last=True),
)
