"""The rules about how a guest takes what may happen: strange input, many requests, and each way to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from functools import partial

from serai.testing.conformance import quoting
from serai.testing.conformance.report import Finding, Skip, warned
from serai.testing.conformance.zot.examination import NOBODY, Examination
from serai.testing.conformance.zot.forms import FORMS, IDS
from serai.testing.conformance.zot.probe import Outcome, Probe, Request, compact, ending
from serai.testing.zot_host.frames import LONGEST
from serai.testing.zot_host.process import show

__all__ = [
    "any_json",
    "burst",
    "eof",
    "events",
    "host_gone",
    "idle",
    "left_behind",
    "not_json",
    "open_requests",
    "optional_fields",
    "oversize",
    "shutdown",
    "terminate",
    "unknown_frames",
]

_BURST = 64
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
_END = "end as soon as a shutdown frame or the end of input comes: exit the program, whatever else is still going on"


# -- strange input ----------------------------------------------------------------------------------------------------------------


def not_json(examination: Examination) -> Iterator[Finding]:
    hint = "skip a line that is blank, no JSON, or no object with a string `type`; a note on stderr is enough"
    yield from _lives_through(examination, "lines that are no frames", _NO_FRAMES, hint)


def unknown_frames(examination: Examination) -> Iterator[Finding]:
    hint = "skip frames and fields that you do not know, and panels that you do not have: hosts may know more than you do"
    yield from _lives_through(examination, "frames that it does not know", _UNKNOWN_FRAMES, hint, mood="good", session={"id": 1})


def events(examination: Examination) -> Iterator[Finding]:
    hint = "take events as they come: also those that you did not subscribe to"
    yield from _lives_through(examination, "events", _EVENTS, hint)


def oversize(examination: Examination) -> Iterator[Finding]:
    long = b'{"type":"serai_check","text":"%s"}' % (b"x" * LONGEST)  # of no known type: its length is all that can do harm
    hint = "a line of more than 4 MiB may come: read it, or skip to its end, and go on"
    yield from _lives_through(examination, "a line of more than 4 MiB", [long], hint)


def optional_fields(examination: Examination) -> Iterator[Finding]:
    """What a host leaves out when there is nothing to say (spec zot 3.3, 4.3, 4.6)."""
    hint = "a field that is optional may be absent: look before you use it"
    welcome = "a hello_ack without extension_dir and data_dir"
    with examination.opened(folders=False, what=f"after {welcome}", hint=hint) as probe:
        if harm := _harm(examination, probe, welcome, hint):
            yield harm
            return
        panels = ["serai_check", *_open_panels(examination, probe)]
        keys = [compact({"type": "panel_key", "panel_id": panel, "key": "up"}) for panel in panels]
        yield from _takes(examination, probe, "frames without their optional fields", [*_BARE, *keys], hint)


def _open_panels(examination: Examination, probe: Probe) -> list[str]:
    """Those that a person's commands open, once more."""
    opening = [tried.request for tried in examination.visit.tried if (tried.answer or {}).get("action") == "open_panel"]
    for request in opening:
        probe.outcome(request)
    panels = [answer.get("open_panel") for answers in probe.answers.values() for answer in answers]
    return [panel["id"] for panel in panels if isinstance(panel, dict) and isinstance(panel.get("id"), str)]


def _lives_through(examination: Examination, what: str, lines: Sequence[bytes], hint: str, **unknown: object) -> Iterator[Finding]:
    with examination.opened() as probe:
        yield from _takes(examination, probe, what, lines, hint, **unknown)


def _takes(
    examination: Examination, probe: Probe, what: str, lines: Sequence[bytes], hint: str, **unknown: object
) -> Iterator[Finding]:
    """Write these lines, then see whether it still does what it did before, and whether it ends as it did before."""
    taken = probe.write(b"".join(line + b"\n" for line in lines))
    if not taken and probe.alive:
        yield probe.failure(f"it does not read {what}", hint=hint)
        return
    shown = [show("host", line) for line in lines][-3:]
    if harm := _harm(examination, probe, what, hint, shown, **unknown):
        yield harm
    elif (usual := examination.visit.status) is not None:
        status = probe.shut_down(examination.patience.shutdown)
        if status not in (None, usual):
            why = f"after {what} it ends with {ending(status)}, and else with {ending(usual)}"
            yield probe.failure(why, hint=hint, frames=shown)


def _harm(
    examination: Examination, probe: Probe, what: str, hint: str, shown: Sequence[str] = (), **unknown: object
) -> Finding | None:
    """What it has done to a guest: it answers no more, or is gone. `unknown` are fields that the request has besides."""
    if examination.visit.reliable:
        cheapest = examination.visit.reliable[0]
        request = cheapest._replace(fields={**cheapest.fields, **unknown})
        if probe.outcome(request) is Outcome.SILENT:
            return probe.failure(f"after {what} it answers no more", hint=hint, frames=shown or quoting.transcript(probe.process))
    probe.process.pause(examination.patience.hold)  # what it does with them may take a moment
    if probe.alive:
        return None
    why = f"it does not outlive {what}, {ending(probe.process.status)}"
    return probe.failure(why, hint=hint, frames=shown or quoting.transcript(probe.process))


def any_json(examination: Examination) -> Iterator[Finding]:
    """An answer under another id is told by `answers`."""
    [cheapest, *_] = _many(examination)
    ways = {how: cheapest._replace(form=form) for how, form in FORMS.items()}
    ways |= {how: cheapest._replace(id=id) for how, id in IDS.items()}
    with examination.opened() as probe:
        for how, request in ways.items():
            outcome = probe.outcome(request)
            if outcome in (Outcome.SILENT, Outcome.DIED):
                hint = "read each line with a JSON parser and write with a JSON writer; lines end at \\n, and an id is any text"
                yield probe.unanswered(request, outcome, how=how, hint=hint)
                return


# -- many requests ----------------------------------------------------------------------------------------------------------------


def burst(examination: Examination) -> Iterator[Finding]:
    requests = _many(examination, _BURST)
    with examination.opened(narrow=True) as probe:
        ids = probe.ask(*requests)
        probe.process.pause(examination.patience.hold)
        real = any(request.real for request in requests)
        within = examination.patience.tool if real else examination.patience.answer
        if missing := _unanswered(probe, ids, within):
            why = f"of {_BURST} requests at once, {missing} got no answer, and none came within {within:g} s"
            if not probe.alive:
                why = f"{_BURST} requests at once end it, {ending(probe.process.status)}"
            hint = "one read may bring many lines, or half a line: split at newlines, keep the rest, and answer each request"
            yield probe.failure(why, hint=hint)


def _unanswered(probe: Probe, ids: Sequence[str], within: float) -> int:
    """How many are left when none of them was answered for so long: who is slow and goes on has done nothing wrong."""

    def left() -> int:
        return sum(id not in probe.answers for id in ids)

    def fewer(before: int) -> bool:
        return left() < before

    while (before := left()) and probe.hear(partial(fewer, before), within):
        pass
    return before


def open_requests(examination: Examination) -> Iterator[Finding]:
    """A host forgets a request that took too long (spec zot 4.1); the guest works on, and must not be kept by it."""
    patience = examination.patience
    reliable = _many(examination)
    real = [request for request in reliable if request.real]
    with examination.opened() as probe:
        probe.ask(*(real or reliable))
        if real and reliable[0] not in real and probe.outcome(reliable[0]) in (Outcome.SILENT, Outcome.DIED):
            hint = "do not work on the read loop: a request that takes long must not hold up the next one"
            yield probe.failure("while requests are open, it serves no other", hint=hint)
            return
        probe.ask(*(real or reliable))
        if probe.shut_down(patience.shutdown) is None:
            yield probe.failure(f"with requests open it does not end within {patience.shutdown:g} s of shutdown", hint=_END)


def _many(examination: Examination, count: int = 0) -> list[Request]:
    """Requests that it answers when nothing is wrong, in turn."""
    _ = examination.first
    reliable = examination.visit.reliable
    if not reliable:
        raise Skip("there is nothing to ask it; `--call` and `--command` give something")
    return [reliable[number % len(reliable)] for number in range(count or len(reliable))]


def idle(examination: Examination) -> Iterator[Finding]:
    """It stays when all is answered, and has no more to say: a second answer, which `answers` tells, may come late."""
    limit = examination.patience.idle
    with examination.opened() as probe:
        for request in examination.visit.reliable:
            probe.outcome(request)
        probe.hear(lambda: False, limit)
        if probe.is_silenced():
            yield probe.speechless()
        elif not probe.alive:
            hint = "stay until shutdown or the end of input: hours may pass between two requests"
            yield probe.failure(f"it ends by itself when nobody asks it anything, {ending(probe.process.status)}", hint=hint)


# -- ends -------------------------------------------------------------------------------------------------------------------------


def shutdown(examination: Examination) -> Iterator[Finding]:
    limit = examination.patience.shutdown
    with examination.opened() as probe:
        status = probe.shut_down(limit)
        if status is None:
            yield probe.failure(f"it does not end within {limit:g} s of shutdown and the end of its input", hint=_END)
        elif status != 0:
            yield warned(
                f"it ends with {ending(status)}",
                hint="exit with 0 at shutdown: anything else looks like a crash",
                frames=probe.shown(),
            )


def eof(examination: Examination) -> Iterator[Finding]:
    limit = examination.patience.shutdown
    with examination.opened() as probe:
        status = probe.close_input(limit)
        if status is None:
            yield probe.failure(f"it does not end within {limit:g} s of the end of its input", hint=_END)
        elif (usual := examination.visit.status) is not None and status not in (0, usual):
            yield warned(
                f"it ends with {ending(status)}, and after shutdown with {ending(usual)}",
                hint="the end of input means shutdown, and is no error: a host that is killed sends nothing else",
                frames=probe.shown(),
            )


def host_gone(examination: Examination) -> Iterator[Finding]:
    limit = examination.patience.shutdown
    with examination.opened() as probe:
        examination.stop_listening(probe)  # first: its answers find nobody
        probe.ask(*examination.visit.reliable)
        if probe.close_input(limit) is None:
            yield probe.failure(f"it does not end within {limit:g} s when its host is gone, both pipes at once", hint=_END)


def terminate(examination: Examination) -> Iterator[Finding]:
    """After it has served somebody, and, where a person has given something to do, in the middle of that."""
    _ = examination.first
    reliable = examination.visit.reliable
    yield from _is_terminated(examination, [], reliable[:1])
    if real := [request for request in reliable if request.real]:
        yield from _is_terminated(examination, real, [])


def _is_terminated(examination: Examination, working: Sequence[Request], served: Sequence[Request]) -> Iterator[Finding]:
    limit = examination.patience.terminate
    with examination.opened() as probe:
        for request in served:
            probe.outcome(request)
        ids = probe.ask(*working)
        probe.hear(lambda: all(id in probe.answers for id in ids), examination.patience.hold)
        probe.process.note("SIGTERM")
        os.kill(probe.process.pid, signal.SIGTERM)
        if probe.process.wait(limit) is None:
            when = " in the middle of its work" if working else ""
            hint = "let SIGTERM end it, whatever it does; what must be tidied up takes a moment"
            yield probe.failure(f"it does not end within {limit:g} s of SIGTERM{when}", hint=hint)


def left_behind(examination: Examination) -> Iterator[Finding]:
    _ = examination.first
    if left := sorted({name for probe in examination.seen for name in probe.left}):
        hint = "end what you have started before you end yourself, or let it end with its input"
        yield Finding(status="failed", why=f"it ends and leaves {', '.join(left)} running", hint=hint)
