"""The guest's side of a zot wire."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from msgspec import Raw

from serai.dialects.zot import messages
from serai.dialects.zot.messages import ContentBlock, EventIntercept, HelloAck, Malformed, PanelSpec, Stray, UnknownFrame
from serai.dialects.zot.peer_side import (
    CommandInvoked,
    Event,
    EventHeard,
    Intercepted,
    PanelClosed,
    PanelKey,
    PanelResized,
    PeerSide,
    Shutdown,
    ToolCalled,
    TooLong,
    Welcomed,
)
from serai.wire.stream import Oversize

REQUESTS = b"""\
{"type":"tool_call","id":"1","name":"t","args":[1, 2]}
{"type":"command_invoked","id":"1","name":"c","args":"a  b"}
{"type":"event_intercept","id":"1","event":"turn_start","step":2}
"""


def receive(theirs: PeerSide, line: bytes) -> Event:
    [event] = theirs.receive(line + b"\n")
    return event


def test_what_a_guest_pours_out_at_its_start() -> None:
    theirs = PeerSide()
    frames = [
        theirs.hello("tides", "1"),
        theirs.register_command("tide", "d"),
        theirs.register_tool("t", "d", {"type": "object", "x": 1}),
        theirs.register_tool("u"),
        theirs.subscribe(["turn_end"], ["tool_call"]),
        theirs.ready(),
    ]
    assert [json.loads(frame) for frame in frames] == [
        {"type": "hello", "name": "tides", "version": "1", "capabilities": ["commands", "tools", "events", "panels"]},
        {"type": "register_command", "name": "tide", "description": "d"},
        {"type": "register_tool", "name": "t", "description": "d", "schema": {"type": "object", "x": 1}},
        {"type": "register_tool", "name": "u", "schema": {"type": "object"}},
        {"type": "subscribe", "events": ["turn_end"], "intercept": ["tool_call"]},
        {"type": "ready"},
    ]


def test_what_a_guest_tells_later() -> None:
    theirs = PeerSide()
    frames = [
        theirs.notify("warn", "old"),
        theirs.panel_render("p", title="T", lines=["a"], footer="f"),
        theirs.panel_close("p"),
        theirs.shutdown_ack(),
    ]
    assert [json.loads(frame) for frame in frames] == [
        {"type": "notify", "level": "warn", "message": "old"},
        {"type": "panel_render", "panel_id": "p", "title": "T", "lines": ["a"], "footer": "f"},
        {"type": "panel_close", "panel_id": "p"},
        {"type": "shutdown_ack"},
    ]


def test_what_a_guest_hears() -> None:
    theirs = PeerSide()
    run = (
        b'{"type":"hello_ack","protocol_version":1,"cwd":"/w"}\n{"type":"event","event":"turn_end","stop":"end"}\n'
        b'{"type":"panel_key","panel_id":"p","key":"rune","text":"x"}\n{"type":"panel_resize","panel_id":"p","width":9,"height":8}\n'
        b'{"type":"panel_close","panel_id":"p"}\n{"type":"shutdown"}\n{"type":"future"}\nrubbish\n{"type":"panel_key","key":5}\n'
    )
    *events, broken = theirs.receive(run)
    assert events == [
        Welcomed(HelloAck(1, cwd="/w")),
        EventHeard(messages.Event("turn_end", stop="end")),
        PanelKey("p", "rune", "x"),
        PanelResized("p", 9, 8),
        PanelClosed("p"),
        Shutdown(),
        UnknownFrame("future", b'{"type":"future"}'),
        Malformed(b"rubbish", "not a JSON object"),
    ]
    assert isinstance(broken, Malformed)
    assert broken.why.startswith("panel_key: ")


def test_requests_of_different_kinds_may_have_the_same_id() -> None:
    theirs = PeerSide()
    assert theirs.receive(REQUESTS) == [
        ToolCalled("1", "t", Raw(b"[1, 2]")),
        CommandInvoked("1", "c", "a  b"),
        Intercepted("1", EventIntercept("1", "turn_start", step=2)),
    ]
    assert theirs.answer_tool("1") is not None
    assert theirs.answer_command("1") is not None
    assert theirs.answer_intercept("1") is not None


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        (
            lambda theirs: theirs.answer_tool("1", [ContentBlock("text", "a")], is_error=True),
            {"type": "tool_result", "id": "1", "content": [{"type": "text", "text": "a"}], "is_error": True},
        ),
        (lambda theirs: theirs.answer_tool("1"), {"type": "tool_result", "id": "1", "content": []}),
        (lambda theirs: theirs.answer_command("1", ""), {"type": "command_response", "id": "1", "action": "noop"}),
        (
            lambda theirs: theirs.answer_command("1", "open_panel", open_panel=PanelSpec("p", lines=("a",))),
            {"type": "command_response", "id": "1", "action": "open_panel", "open_panel": {"id": "p", "lines": ["a"]}},
        ),
        (
            lambda theirs: theirs.answer_command("1", prompt="p", insert="i", display="d", error="e"),
            {"type": "command_response", "id": "1", "action": "noop", "prompt": "p", "insert": "i", "display": "d", "error": "e"},
        ),
        (lambda theirs: theirs.answer_intercept("1"), {"type": "event_intercept_response", "id": "1"}),
        (
            lambda theirs: theirs.answer_intercept("1", block=True, reason="no"),
            {"type": "event_intercept_response", "id": "1", "block": True, "reason": "no"},
        ),
        (
            lambda theirs: theirs.answer_intercept("1", modified_args={}, replace_text="t"),
            {"type": "event_intercept_response", "id": "1", "modified_args": {}, "replace_text": "t"},
        ),
    ],
)
def test_an_answer_is_given_once(answer: Callable[[PeerSide], bytes | None], written: dict[str, object]) -> None:
    theirs = PeerSide()
    assert answer(theirs) is None  # nobody asked
    theirs.receive(REQUESTS)
    frame = answer(theirs)
    assert frame is not None
    assert json.loads(frame) == written
    assert answer(theirs) is None


def test_an_answer_that_cannot_be_written_leaves_the_request_open() -> None:
    theirs = PeerSide()
    theirs.receive(REQUESTS)
    with pytest.raises(TypeError):
        theirs.answer_intercept("1", modified_args=object())
    assert theirs.answer_intercept("1", block=True) is not None


def test_a_repeated_request_is_served_once_and_its_id_may_come_again_later() -> None:
    theirs = PeerSide()
    line = b'{"type":"tool_call","id":"1","name":"t"}'
    assert receive(theirs, line) == ToolCalled("1", "t", Raw(b"{}"))
    again = receive(theirs, line)
    assert isinstance(again, Stray)
    assert 'open id "1"' in again.why
    theirs.answer_tool("1")
    assert isinstance(receive(theirs, line), ToolCalled)


def test_a_request_too_long_to_be_kept_is_owed_an_answer() -> None:
    theirs = PeerSide()
    frame = Oversize(5_000_000, b'{"type":"tool_call","id":"9","name":"t","args":{"a":"aaa', 4_194_304)
    assert theirs.oversize(frame) == [TooLong("9", "tool_call", 5_000_000, 4_194_304)]
    assert theirs.oversize(frame) == []
    assert theirs.answer_tool("9", is_error=True) is not None
    for head in (b'{"type":"event","id":"9","text":"aaa', b'{"type":"tool_call","name":"t","args":{"a":"aaa', b"aaaaa"):
        assert theirs.oversize(frame._replace(head=head)) == []


def test_what_was_answered_earlier_is_not_open_and_the_rest_is_given_back_at_the_end() -> None:
    theirs = PeerSide()
    theirs.receive(REQUESTS + REQUESTS.replace(b'"1"', b'"2"'))
    answers = (
        b'{"type":"tool_result","id":"1"}\n{"type":"command_response","id":"1"}\n{"type":"event_intercept_response","id":"1"}\n'
    )
    theirs.sent(answers + b'{"type":"ready"}\nrubbish\n', 0.0)
    assert theirs.answer_tool("1") is None
    assert [request.id for request in theirs.lose()] == ["2", "2", "2"]
    assert theirs.answer_tool("2") is None
    assert theirs.next_deadline() is None
