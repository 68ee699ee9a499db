"""The rules about how a guest takes what may happen: strange input, many requests, and each way to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence

from serai.testing.conformance.report import Finding, Skip, warned
from serai.testing.conformance.zot.examination import NOBODY, Examination
from serai.testing.conformance.zot.probe import Outcome, Probe, Request, ending
from serai.testing.zot_host.process import show

__all__ = [
    "burst",
    "eof",
    "events",
    "host_gone",
    "left_behind",
    "not_json",
    "open_requests",
    "oversize",
    "shutdown",
    "terminate",
    "unknown_frames",
]

_LONGEST = 4 * 1024 * 1024  # of a line (spec zot 3.1)
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
    b'{"type":"event","event":"assistant_message"}',
    b'{"type":"event","event":"assistant_message","text":"Good morning."}',
    b'{"type":"event","event":"tool_call","tool_id":"call_1","tool_name":"%s","tool_args":{}}' % NOBODY.encode(),
    b'{"type":"event","event":"tool_call","tool_id":"call_2","tool_name":"%s","tool_args":null}' % NOBODY.encode(),
    b'{"type":"event","event":"turn_end","stop":"error","error":"serai check"}',
    b'{"type":"event","event":"full_moon","phase":3}',
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
    hint = "take events as they come: also those without text, and those that you did not subscribe to"
    yield from _lives_through(examination, "events", _EVENTS, hint)


def oversize(examination: Examination) -> Iterator[Finding]:
    long = b'{"type":"event","event":"assistant_message","text":"%s"}' % (b"x" * _LONGEST)
    hint = "a line of more than 4 MiB may come: read it, or skip to its end, and go on"
    yield from _lives_through(examination, "a line of more than 4 MiB", [long], hint)


def _lives_through(examination: Examination, what: str, lines: Sequence[bytes], hint: str, **unknown: object) -> Iterator[Finding]:
    """Write these lines, then see whether it still does what it did before, and whether it ends as it did before."""
    with examination.opened() as probe:
        taken = probe.write(b"".join(line + b"\n" for line in lines))
        if not taken and probe.alive:
            yield probe.failure(f"it does not read {what}", hint=hint)
            return
        shown = [show("host", line) for line in lines][-3:]
        if examination.visit.reliable:
            cheapest = examination.visit.reliable[0]
            request = cheapest._replace(fields={**cheapest.fields, **unknown})
            if probe.outcome(request) is Outcome.SILENT:
                yield probe.failure(f"after {what} it answers no more", hint=hint, frames=shown)
                return
        probe.process.pause(examination.patience.hold)  # what it does with them may take a moment
        died, usual = not probe.alive, examination.visit.status
        status = probe.process.status if died or usual is None else probe.shut_down(examination.patience.shutdown)
        if died or status not in (None, usual):
            yield probe.failure(f"{what} end it, {ending(status)}", hint=hint, frames=shown)


# -- many requests ----------------------------------------------------------------------------------------------------------------


def burst(examination: Examination) -> Iterator[Finding]:
    requests = _many(examination, _BURST)
    with examination.opened(narrow=True) as probe:
        ids = probe.ask(*requests)
        probe.process.pause(examination.patience.hold)
        real = any(request.real for request in requests)
        within = examination.patience.tool if real else examination.patience.answer
        if not probe.hear(lambda: all(id in probe.answers for id in ids), within):
            missing = [id for id in ids if id not in probe.answers]
            why = f"of {_BURST} requests at once, {len(missing)} got no answer within {within:g} s"
            if not probe.alive:
                why = f"{_BURST} requests at once end it, {ending(probe.process.status)}"
            hint = "one read may bring many lines, or half a line: split at newlines, keep the rest, and answer each request"
            yield probe.failure(why, hint=hint)


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
    yield from _ends(
        examination, f"it does not end within {limit:g} s of the end of its input", lambda probe: probe.close_input(limit)
    )


def host_gone(examination: Examination) -> Iterator[Finding]:
    limit = examination.patience.shutdown

    def vanish(probe: Probe) -> int | None:
        probe.ask(*examination.visit.reliable)
        probe.process.note("end of output")
        probe.process.stdout.close()
        return probe.close_input(limit)

    yield from _ends(examination, f"it does not end within {limit:g} s when its host is gone, both pipes at once", vanish)


def terminate(examination: Examination) -> Iterator[Finding]:
    limit = examination.patience.terminate

    def kill(probe: Probe) -> int | None:
        probe.process.note("SIGTERM")
        os.kill(probe.process.pid, signal.SIGTERM)
        return probe.process.wait(limit)

    yield from _ends(
        examination,
        f"it does not end within {limit:g} s of SIGTERM",
        kill,
        hint="let SIGTERM end it; what must be tidied up takes a moment",
    )


def _ends(examination: Examination, why: str, end: Callable[[Probe], int | None], hint: str = _END) -> Iterator[Finding]:
    with examination.opened() as probe:
        if end(probe) is None:
            yield probe.failure(why, hint=hint)


def left_behind(examination: Examination) -> Iterator[Finding]:
    _ = examination.first
    if left := sorted({name for probe in examination.seen for name in probe.left}):
        hint = "end what you have started before you end yourself, or let it end with its input"
        yield Finding(status="failed", why=f"it ends and leaves {', '.join(left)} running", hint=hint)
