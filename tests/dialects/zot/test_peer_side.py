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


def receive(peer: PeerSide, line: bytes) -> Event:
    [event] = peer.receive(line + b"\n")
    return event


def test_what_a_guest_pours_out_at_its_start() -> None:
    peer = PeerSide()
    frames = [
        peer.hello("tides", "1"),
        peer.register_command("tide", "d"),
        peer.register_tool("t", "d", {"type": "object", "x": 1}),
        peer.register_tool("u"),
        peer.subscribe(["turn_end"], ["tool_call"]),
        peer.ready(),
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
    peer = PeerSide()
    frames = [
        peer.notify("warn", "old"),
        peer.panel_render("p", title="T", lines=["a"], footer="f"),
        peer.panel_close("p"),
        peer.shutdown_ack(),
    ]
    assert [json.loads(frame) for frame in frames] == [
        {"type": "notify", "level": "warn", "message": "old"},
        {"type": "panel_render", "panel_id": "p", "title": "T", "lines": ["a"], "footer": "f"},
        {"type": "panel_close", "panel_id": "p"},
        {"type": "shutdown_ack"},
    ]


def test_what_a_guest_hears() -> None:
    peer = PeerSide()
    run = (
        b'{"type":"hello_ack","protocol_version":1,"cwd":"/w"}\n{"type":"event","event":"turn_end","stop":"end"}\n'
        b'{"type":"panel_key","panel_id":"p","key":"rune","text":"x"}\n{"type":"panel_resize","panel_id":"p","width":9,"height":8}\n'
        b'{"type":"panel_close","panel_id":"p"}\n{"type":"shutdown"}\n{"type":"future"}\nrubbish\n{"type":"panel_key","key":5}\n'
    )
    *events, broken = peer.receive(run)
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
    peer = PeerSide()
    assert peer.receive(REQUESTS) == [
        ToolCalled("1", "t", Raw(b"[1, 2]")),
        CommandInvoked("1", "c", "a  b"),
        Intercepted("1", EventIntercept("1", "turn_start", step=2)),
    ]
    assert peer.answer_tool("1") is not None
    assert peer.answer_command("1") is not None
    assert peer.answer_intercept("1") is not None


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        (
            lambda peer: peer.answer_tool("1", [ContentBlock("text", "a")], is_error=True),
            {"type": "tool_result", "id": "1", "content": [{"type": "text", "text": "a"}], "is_error": True},
        ),
        (lambda peer: peer.answer_tool("1"), {"type": "tool_result", "id": "1", "content": []}),
        (lambda peer: peer.answer_command("1", ""), {"type": "command_response", "id": "1", "action": "noop"}),
        (
            lambda peer: peer.answer_command("1", "open_panel", open_panel=PanelSpec("p", lines=("a",))),
            {"type": "command_response", "id": "1", "action": "open_panel", "open_panel": {"id": "p", "lines": ["a"]}},
        ),
        (
            lambda peer: peer.answer_command("1", prompt="p", insert="i", display="d", error="e"),
            {"type": "command_response", "id": "1", "action": "noop", "prompt": "p", "insert": "i", "display": "d", "error": "e"},
        ),
        (lambda peer: peer.answer_intercept("1"), {"type": "event_intercept_response", "id": "1"}),
        (
            lambda peer: peer.answer_intercept("1", block=True, reason="no"),
            {"type": "event_intercept_response", "id": "1", "block": True, "reason": "no"},
        ),
        (
            lambda peer: peer.answer_intercept("1", modified_args={}, replace_text="t"),
            {"type": "event_intercept_response", "id": "1", "modified_args": {}, "replace_text": "t"},
        ),
    ],
)
def test_an_answer_is_given_once(answer: Callable[[PeerSide], bytes | None], written: dict[str, object]) -> None:
    peer = PeerSide()
    assert answer(peer) is None  # nobody asked
    peer.receive(REQUESTS)
    frame = answer(peer)
    assert frame is not None
    assert json.loads(frame) == written
    assert answer(peer) is None


def test_an_answer_that_cannot_be_written_leaves_the_request_open() -> None:
    peer = PeerSide()
    peer.receive(REQUESTS)
    with pytest.raises(TypeError):
        peer.answer_intercept("1", modified_args=object())
    assert peer.answer_intercept("1", block=True) is not None


def test_a_repeated_request_is_served_once_and_its_id_may_come_again_later() -> None:
    peer = PeerSide()
    line = b'{"type":"tool_call","id":"1","name":"t"}'
    assert receive(peer, line) == ToolCalled("1", "t", Raw(b"{}"))
    again = receive(peer, line)
    assert isinstance(again, Stray)
    assert 'open id "1"' in again.why
    peer.answer_tool("1")
    assert isinstance(receive(peer, line), ToolCalled)


def test_a_request_too_long_to_be_kept_is_owed_an_answer() -> None:
    peer = PeerSide()
    frame = Oversize(5_000_000, b'{"type":"tool_call","id":"9","name":"t","args":{"a":"aaa', 4_194_304)
    assert peer.oversize(frame) == [TooLong("9", "tool_call", 5_000_000, 4_194_304)]
    assert peer.oversize(frame) == []
    assert peer.answer_tool("9", is_error=True) is not None
    for head in (b'{"type":"event","id":"9","text":"aaa', b'{"type":"tool_call","name":"t","args":{"a":"aaa', b"aaaaa"):
        assert peer.oversize(frame._replace(head=head)) == []


def test_what_was_answered_earlier_is_not_open_and_the_rest_is_given_back_at_the_end() -> None:
    peer = PeerSide()
    peer.receive(REQUESTS + REQUESTS.replace(b'"1"', b'"2"'))
    answers = (
        b'{"type":"tool_result","id":"1"}\n{"type":"command_response","id":"1"}\n{"type":"event_intercept_response","id":"1"}\n'
    )
    peer.note_sent(answers + b'{"type":"ready"}\nrubbish\n', 0.0)
    assert peer.answer_tool("1") is None
    assert [request.id for request in peer.lose()] == ["2", "2", "2"]
    assert peer.answer_tool("2") is None
    assert peer.next_deadline() is None
