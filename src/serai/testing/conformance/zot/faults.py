"""The rules about how a zot guest takes strange input; what binds a guest of any dialect is in `living`."""

from __future__ import annotations

from collections.abc import Iterator

from serai.testing.conformance.examining import NOBODY
from serai.testing.conformance.forms import compact
from serai.testing.conformance.living import harm, lives_through, many, takes
from serai.testing.conformance.probing import Outcome
from serai.testing.conformance.report import Finding
from serai.testing.conformance.zot.examination import Examination
from serai.testing.conformance.zot.forms import FORMS, IDS
from serai.testing.conformance.zot.probe import Probe
from serai.testing.zot_host.frames import LONGEST

__all__ = ["any_json", "events", "not_json", "optional_fields", "oversize", "unknown_frames"]

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


def not_json(examination: Examination) -> Iterator[Finding]:
    hint = "skip a line that is blank, no JSON, or no object with a string `type`; a note on stderr is enough"
    yield from lives_through(examination, "lines that are no frames", _NO_FRAMES, hint)


def unknown_frames(examination: Examination) -> Iterator[Finding]:
    hint = "skip frames and fields that you do not know, and panels that you do not have: hosts may know more than you do"
    yield from lives_through(examination, "frames that it does not know", _UNKNOWN_FRAMES, hint, mood="good", session={"id": 1})


def events(examination: Examination) -> Iterator[Finding]:
    hint = "take events as they come: also those that you did not subscribe to"
    yield from lives_through(examination, "events", _EVENTS, hint)


def oversize(examination: Examination) -> Iterator[Finding]:
    long = b'{"type":"serai_check","text":"%s"}' % (b"x" * LONGEST)  # of no known type: its length is all that can do harm
    hint = "a line of more than 4 MiB may come: read it, or skip to its end, and go on"
    yield from lives_through(examination, "a line of more than 4 MiB", [long], hint)


def optional_fields(examination: Examination) -> Iterator[Finding]:
    """What a host leaves out when there is nothing to say (spec zot 3.3, 4.3, 4.6)."""
    hint = "a field that is optional may be absent: look before you use it"
    welcome = "a hello_ack without extension_dir and data_dir"
    with examination.opened(folders=False, what=f"after {welcome}", hint=hint) as probe:
        if found := harm(examination, probe, welcome, hint):
            yield found
            return
        panels = ["serai_check", *_open_panels(examination, probe)]
        keys = [compact({"type": "panel_key", "panel_id": panel, "key": "up"}) for panel in panels]
        yield from takes(examination, probe, "frames without their optional fields", [*_BARE, *keys], hint)


def _open_panels(examination: Examination, probe: Probe) -> list[str]:
    """Those that a person's commands open, once more."""
    opening = [tried.request for tried in examination.visit.tried if (tried.answer or {}).get("action") == "open_panel"]
    for request in opening:
        probe.outcome(request)
    panels = [answer.get("open_panel") for answers in probe.answers.values() for answer in answers]
    return [panel["id"] for panel in panels if isinstance(panel, dict) and isinstance(panel.get("id"), str)]


def any_json(examination: Examination) -> Iterator[Finding]:
    """An answer under another id is told by `answers`."""
    [cheapest, *_] = many(examination)
    ways = {how: cheapest._replace(form=form) for how, form in FORMS.items()}
    ways |= {how: cheapest._replace(id=id) for how, id in IDS.items()}
    with examination.opened() as probe:
        for how, request in ways.items():
            outcome = probe.outcome(request)
            if outcome in (Outcome.SILENT, Outcome.DIED):
                hint = "read each line with a JSON parser and write with a JSON writer; lines end at \\n, and an id is any text"
                yield probe.unanswered(request, outcome, how=how, hint=hint)
                return
