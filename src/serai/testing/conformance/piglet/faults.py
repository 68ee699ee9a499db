"""The rules about how a piglet guest takes strange input and a poor host; what binds a guest of any dialect is in `living`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from serai.testing.conformance.examining import NOBODY
from serai.testing.conformance.forms import Frame, backwards, escaped, spaced, with_separators
from serai.testing.conformance.living import harm, lives_through, many, takes
from serai.testing.conformance.piglet.examination import Examination, call
from serai.testing.conformance.piglet.probe import Request
from serai.testing.conformance.probing import Outcome, ending
from serai.testing.conformance.report import Finding, Skip, warned
from serai.testing.piglet_host.messages import LONGEST

__all__ = [
    "any_json",
    "cancel",
    "not_json",
    "optional_fields",
    "oversize",
    "poor_host",
    "shutdown_request",
    "unknown_frames",
]

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
    "with its members in another order": backwards,
    "with blanks around its parts": spaced,
    "with an escape for every character": escaped,
    "with U+0085, U+2028 and U+2029 in a text": with_separators,
}
_IDS = {"with the id 0": 0, "with an id of ten digits": 4294967297, "with an id of sixteen digits": 9007199254740991}


def not_json(examination: Examination) -> Iterator[Finding]:
    hint = "skip a line that is blank, no JSON, or no object with a `method` or an `id`; a note on stderr is enough"
    yield from lives_through(examination, "lines that are no messages", _NO_MESSAGES, hint)


def unknown_frames(examination: Examination) -> Iterator[Finding]:
    hint = "skip notifications, fields, subscriptions and answers that you do not know: hosts may know more than you do"
    yield from lives_through(examination, "messages that it does not know", _UNKNOWN, hint, mood="good", session={"id": 1})


def oversize(examination: Examination) -> Iterator[Finding]:
    """The longest line there is has to be read; nobody has to read a longer one, but it may not hang (spec piglet 2.2)."""
    hint = "read lines of up to 4 MiB; end, or skip to the end of the line, when a longer one comes"
    head = b'{"jsonrpc":"2.0","method":"eventBus/event","params":{"topic":"serai:check","subscriptionId":424242,"data":"'
    tail = b'"}}'
    fits, long = (head + b"x" * (length - len(head) - len(tail)) + tail for length in (LONGEST - 1, LONGEST + 1))
    yield from lives_through(examination, "a line of 4 MiB", [fits], hint)
    [cheapest, *_] = many(examination)
    with examination.opened() as probe:
        probe.write(long + b"\n")
        if probe.outcome(cheapest) is Outcome.SILENT:
            yield probe.failure("after a line of more than 4 MiB it neither answers nor ends", hint=hint)


def optional_fields(examination: Examination) -> Iterator[Finding]:
    """What a host may leave out: the folder of the configuration, and arguments that are null (spec piglet 3, 5.1)."""
    hint = "a field that is optional may be absent: look before you use it"
    what = "an initialize without configDir"
    with examination.opened(bare=True, what=f"after {what}", hint=hint) as probe:
        if found := harm(examination, probe, what, hint):
            yield found
        elif probe.names("register/tool"):
            request = call(NOBODY, None)
            outcome = probe.outcome(request)
            if outcome in (Outcome.SILENT, Outcome.DIED):
                yield probe.unanswered(request, outcome, how="with args null", hint=hint)


def poor_host(examination: Examination) -> Iterator[Finding]:
    """Piglet itself refuses most services during the handshake (spec piglet 3)."""
    if not examination.first.requested:
        raise Skip("it asks nothing of its host")
    hint = "go on without what a host refuses: piglet refuses most of its services until the handshake is over"
    with examination.opened(services=False, what="when its host refuses what it asks", hint=hint) as probe:
        if found := harm(examination, probe, "a host that refuses what it asks", hint):
            yield found
        elif missing := sorted(set(examination.first.names("register/tool")) - set(probe.names("register/tool"))):
            yield warned(f"without the services of its host it does not register {', '.join(missing)}", hint=hint)


def any_json(examination: Examination) -> Iterator[Finding]:
    """An answer under another id is told by `answers`."""
    [cheapest, *_] = many(examination)
    ways = {how: cheapest._replace(form=form) for how, form in _FORMS.items()}
    ways |= {how: cheapest._replace(id=id) for how, id in _IDS.items()}
    with examination.opened() as probe:
        for how, request in ways.items():
            outcome = probe.outcome(request)
            if outcome in (Outcome.SILENT, Outcome.DIED):
                hint = "read each line with a JSON parser; lines end at \\n, and an id is any integer, 0 too"
                yield probe.unanswered(request, outcome, how=how, hint=hint)
                return


def cancel(examination: Examination) -> Iterator[Finding]:
    """A request that is taken back may be answered or not; the next one is (spec piglet 2.6, 10.8)."""
    requests = many(examination)
    hint = "a cancelled request may end with an error, or as it would have; everything else goes on"
    with examination.opened() as probe:
        for request in requests:
            [id] = probe.ask(request)
            probe.send(method="$/cancelRequest", params={"id": id})
        [answered] = probe.ask(requests[0])
        probe.hear(lambda: answered in probe.answers, probe.limit(requests[-1]))
        yield from takes(
            examination,
            probe,
            "requests that were taken back",
            [b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":%d}}' % answered],
            hint,
        )


def shutdown_request(examination: Examination) -> Iterator[Finding]:
    """As a request it is answered with null, and then it ends (spec piglet 5.10). No host of today sends it so."""
    limit = examination.patience.shutdown
    hint = "answer a shutdown that has an id with the result null, and exit with 0"
    with examination.opened() as probe:
        outcome = probe.outcome(Request("shutdown", {}))
        if outcome is not Outcome.ANSWERED or probe.last_answer.get("error") is not None:
            yield warned("it does not answer a request shutdown", hint=hint, frames=probe.shown())
        elif (status := probe.end(limit)) is None:
            yield warned(f"it answers a request shutdown, and does not end within {limit:g} s", hint=hint, frames=probe.shown())
        elif status != 0:
            yield warned(f"after a request shutdown it ends with {ending(status)}", hint=hint, frames=probe.shown())
