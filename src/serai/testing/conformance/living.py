"""The rules that bind a guest of any dialect: how it takes strange input, many requests, and each way to end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from serai.testing.conformance import quoting
from serai.testing.conformance.examining import Examining
from serai.testing.conformance.probing import Outcome, Probing, ending
from serai.testing.conformance.report import Finding, Skip, warned
from serai.testing.zot_host.process import show

__all__ = [
    "burst",
    "eof",
    "harm",
    "host_gone",
    "idle",
    "left_behind",
    "lives_through",
    "many",
    "open_requests",
    "shutdown",
    "takes",
    "terminate",
]

_BURST = 64
_END = "end as soon as shutdown or the end of input comes: exit the program, whatever else is still going on"


# -- strange input ----------------------------------------------------------------------------------------------------------------


def lives_through(
    examination: Examining[Any], what: str, lines: Sequence[bytes], hint: str, **unknown: object
) -> Iterator[Finding]:
    with examination.opened() as probe:
        yield from takes(examination, probe, what, lines, hint, **unknown)


def takes(
    examination: Examining[Any], probe: Probing, what: str, lines: Sequence[bytes], hint: str, **unknown: object
) -> Iterator[Finding]:
    """Write these lines, then see whether it still does what it did before, and whether it ends as it did before."""
    taken = probe.write(b"".join(line + b"\n" for line in lines))
    if not taken and probe.alive:
        yield probe.failure(f"it does not read {what}", hint=hint)
        return
    shown = [show("host", line) for line in lines][-3:]
    if found := harm(examination, probe, what, hint, shown, **unknown):
        yield found
    elif (usual := examination.visit.status) is not None:
        status = probe.shut_down(examination.patience.shutdown)
        if status not in (None, usual):
            why = f"after {what} it ends with {ending(status)}, and else with {ending(usual)}"
            yield probe.failure(why, hint=hint, frames=shown)


def harm(
    examination: Examining[Any], probe: Probing, what: str, hint: str, shown: Sequence[str] = (), **unknown: object
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


# -- many requests ----------------------------------------------------------------------------------------------------------------


def burst(examination: Examining[Any]) -> Iterator[Finding]:
    requests = many(examination, _BURST)
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


def _unanswered(probe: Probing, ids: Sequence[Any], within: float) -> int:
    """How many are left when none of them was answered for so long: who is slow and goes on has done nothing wrong."""

    def left() -> int:
        return sum(id not in probe.answers for id in ids)

    def fewer(before: int) -> bool:
        return left() < before

    while (before := left()) and probe.hear(partial(fewer, before), within):
        pass
    return before


def open_requests(examination: Examining[Any]) -> Iterator[Finding]:
    """A host forgets a request that took too long (spec zot 4.1, piglet 2.6); the guest works on, and must not be kept by it."""
    patience = examination.patience
    reliable = many(examination)
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


def many(examination: Examining[Any], count: int = 0) -> list[Any]:
    """Requests that it answers when nothing is wrong, in turn."""
    _ = examination.first
    reliable = examination.visit.reliable
    if not reliable:
        raise Skip("there is nothing to ask it; `--call` and `--command` give something")
    return [reliable[number % len(reliable)] for number in range(count or len(reliable))]


def idle(examination: Examining[Any]) -> Iterator[Finding]:
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


def shutdown(examination: Examining[Any]) -> Iterator[Finding]:
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


def eof(examination: Examining[Any]) -> Iterator[Finding]:
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


def host_gone(examination: Examining[Any]) -> Iterator[Finding]:
    limit = examination.patience.shutdown
    with examination.opened() as probe:
        examination.stop_listening(probe)  # first: its answers find nobody
        probe.ask(*examination.visit.reliable)
        if probe.close_input(limit) is None:
            yield probe.failure(f"it does not end within {limit:g} s when its host is gone, both pipes at once", hint=_END)


def terminate(examination: Examining[Any]) -> Iterator[Finding]:
    """After it has served somebody, and, where a person has given something to do, in the middle of that."""
    _ = examination.first
    reliable = examination.visit.reliable
    yield from _is_terminated(examination, [], reliable[:1])
    if real := [request for request in reliable if request.real]:
        yield from _is_terminated(examination, real, [])


def _is_terminated(examination: Examining[Any], working: Sequence[Any], served: Sequence[Any]) -> Iterator[Finding]:
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


def left_behind(examination: Examining[Any]) -> Iterator[Finding]:
    _ = examination.first
    if left := sorted({name for probe in examination.seen for name in probe.left}):
        hint = "end what you have started before you end yourself, or let it end with its input"
        yield Finding(status="failed", why=f"it ends and leaves {', '.join(left)} running", hint=hint)
