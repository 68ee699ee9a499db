"""The rules about what a piglet guest says; how a guest of any dialect opens and answers is in `answering`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from serai.testing.conformance import offers, quoting
from serai.testing.conformance.answering import opens
from serai.testing.conformance.examining import NOBODY
from serai.testing.conformance.offers import by_reason
from serai.testing.conformance.piglet.examination import Examination
from serai.testing.conformance.piglet.probe import Probe, Request
from serai.testing.conformance.probing import Flawed, Outcome
from serai.testing.conformance.report import Finding, Skip, failed, warned
from serai.testing.piglet_host.messages import EVENTS, Message
from serai.testing.zot_host.process import show

__all__ = ["events", "frames", "handshake", "hooks", "in_time", "intercept", "registrations", "stdout", "unknown_methods"]

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


def handshake(examination: Examination) -> Iterator[Finding]:
    yield from opens(examination)
    if examination.visit.problem is None:
        where = {"fd": "FD 3 and 4", "stdio": "stdin and stdout"}[examination.transport]
        yield Finding(status="passed", why=f"it answers initialize on {where}, in time, and stays")


def in_time(examination: Examination) -> Iterator[Finding]:
    late = {(method, params.get("name")): line for probe in examination.tried_here for method, params, line in probe.late}
    if late:
        names = ", ".join(sorted(f"{method} {name or ''}".strip() for method, name in late))
        yield warned(
            f"it registers after its answer to initialize: {names}",
            hint="register everything first and answer initialize then: piglet loses what comes later",
            frames=[quoting.frame("guest", line) for line in late.values()][:_SHOWN],
        )


# -- registrations ----------------------------------------------------------------------------------------------------------------


def registrations(examination: Examination) -> Iterator[Finding]:
    first = examination.first
    said = first.registrations + first.late
    for method, params, line in said:
        shown = [quoting.frame("guest", line)]
        match method:
            case "register/tool":
                yield from _tool(params, shown)
            case "register/command":
                yield from offers.command_name(params["name"], shown)
            case "register/shortcut" if not _KEY.fullmatch(params["key"]):
                hint = "name it as ctrl+g or alt+shift+g: modifiers in the order ctrl, alt, shift, then one letter"
                yield failed(f"nobody can press the key {params['key']!r}", hint=hint, frames=shown)
    counts = Counter((method, params[_ONCE[method]]) for method, params, _ in said if method in _ONCE)
    for (method, name), count in counts.items():
        if count > 1:
            lines = [line for kind, params, line in said if kind == method and params[_ONCE[kind]] == name]
            shown = [quoting.frame("guest", line) for line in lines]
            yield warned(f"{name} is registered twice: the last counts", hint="register each name once", frames=shown)


def _tool(params: Message, shown: Sequence[str]) -> Iterator[Finding]:
    """A name that no model takes is mapped to one that it does (spec piglet 10.33)."""
    name = params["name"]
    for finding in offers.tool_name(name, shown):
        yield warned(f"{finding.why} as it is", hint=f"a host has to give it another one; {finding.hint}", frames=shown)
    if name in _BUILT_IN:
        hint = "take another name, or tell your users to grant it: replace = [...]"
        yield warned(f"{name} is built in, and the built-in one wins unless this is granted", hint=hint, frames=shown)
    yield from offers.schema(name, params.get("parameters"), shown)


# -- frames -----------------------------------------------------------------------------------------------------------------------


def stdout(examination: Examination) -> Iterator[Finding]:
    _ = examination.first
    probes = examination.tried_here
    if noise := [line for probe in probes for line in quoting.masked(probe.noise)]:
        shown = [show("guest", line) for line in dict.fromkeys(noise)]
        hint = "the wire carries one JSON object of JSON-RPC per line: print and log to stderr, or with the notification `log`"
        yield failed(f"it writes what is no message to {probes[0].output}", hint=hint, frames=shown[:_SHOWN])
    if printed := [text for probe in probes for text in quoting.masked(probe.printed)]:
        hint = "print to stderr, or send `log`: where a host has no FD 3 and 4, stdout is the wire"
        yield warned("it prints to stdout", hint=hint, frames=[show("guest", printed[0])])


def frames(examination: Examination) -> Iterator[Finding]:
    _ = examination.first
    wrong = [flawed for probe in examination.tried_here for flawed in probe.wrong if flawed.kind not in _ELSEWHERE]
    odd = [flawed for probe in examination.tried_here for flawed in probe.odd]
    for why, shown in by_reason(wrong):
        yield failed(why, hint="a host cannot use what is not as the protocol has it", frames=shown)
    for why, shown in by_reason(odd):
        yield warned(why, hint="a host reads over it; leave it out, or put in what is missing", frames=shown)


# -- answers ----------------------------------------------------------------------------------------------------------------------


def unknown_methods(examination: Examination) -> Iterator[Finding]:
    request = Request("serai/check", {})
    hint = "answer a method that you do not know with the error -32601: a host may know more than you do, and waits"
    with examination.opened() as probe:
        outcome = probe.outcome(request)
        if outcome in (Outcome.SILENT, Outcome.DIED):
            yield probe.unanswered(request, outcome, hint=hint)
        elif outcome is Outcome.ANSWERED and not examination.is_error(probe.last_answer):
            yield probe.failure("a method that does not exist is answered as if all were well", hint=hint)
        elif outcome is Outcome.ANSWERED and (probe.last_answer.get("error") or {}).get("code") != -32601:
            yield warned("a method that does not exist is answered with another code than -32601", hint=hint, frames=probe.shown())


def intercept(examination: Examination) -> Iterator[Finding]:
    names = list(dict.fromkeys(examination.first.names("register/interceptor")))
    if not names:
        raise Skip("it intercepts nothing")
    requests = []
    for name in names:
        about = {"name": name, "toolName": NOBODY}
        requests += [Request("interceptor/before", {**about, "args": args}) for args in ({}, None, {"serai": [1, None]})]
        requests += [Request("interceptor/after", about | more) for more in ({}, {"details": {"content": [], "isError": False}})]
    hint = "answer before with `allow` true or false, and after with `details` as they came: an error blocks the tool"
    yield from _answered_well(examination, requests, hint, refused="blocks every tool")


def events(examination: Examination) -> Iterator[Finding]:
    wanted: dict[str, None] = {}
    for params in examination.first.registered("register/eventHandler"):
        wanted |= dict.fromkeys(params.get("events") or EVENTS)
    if not wanted:
        raise Skip("it handles no events")
    requests = [Request("event/dispatch", {"type": event, "data": _DATA.get(event, {})}) for event in wanted]
    yield from _answered_well(examination, requests, "answer `{}`, or an `action`; lists and objects of an event may be null")


def hooks(examination: Examination) -> Iterator[Finding]:
    """Message hooks, input transformers and the compactor."""
    requests = []
    for request in examination.harmless(examination.first):
        [(key, _)] = request.fields.items()
        requests += [request._replace(fields={key: text}) for text in _TEXTS] if key != "messages" else [request]
    if not requests:
        raise Skip("it has no message hook, no input transformer and no compactor")
    hint = "answer with `injection`, with `output` and `handled`, or with `messages`, whatever the text is"
    yield from _answered_well(examination, requests, hint, refused="stops what a person has typed")


def _answered_well(examination: Examination, requests: Sequence[Request], hint: str, *, refused: str = "") -> Iterator[Finding]:
    """Each is answered, with a result that a host can use. `refused` is what an error does there."""
    with examination.opened() as probe:
        for request in requests:
            outcome = probe.outcome(request)
            if outcome in (Outcome.SILENT, Outcome.DIED):
                yield probe.unanswered(request, outcome)
                return
            if outcome is Outcome.ANSWERED and (error := probe.last_answer.get("error")):
                yield _refused(probe, request, error, hint, refused)
                return
        for why, shown in by_reason(_flawed(probe, {request.kind for request in requests})):
            yield failed(why, hint=hint, frames=shown)


def _refused(probe: Probe, request: Request, error: object, hint: str, what: str) -> Finding:
    why = f"{request.what} is answered with an error{f', which {what}' if what else ''}: {error}"
    return probe.failure(why, hint=hint) if what else warned(why, hint=hint, frames=probe.shown())


def _flawed(probe: Probe, kinds: set[str]) -> list[Flawed]:
    return [flawed for flawed in probe.wrong if flawed.kind in kinds]
