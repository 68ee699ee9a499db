"""Serai's side of the wire to Claude Code: what it says, what waits for an answer, and what it does when it is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from serai.dialects.claude import messages
from serai.dialects.claude.events import Answered, Failed, Stray
from serai.dialects.claude.host_side import HostSide
from serai.dialects.claude.messages import encode_line
from serai.dialects.claude.peer_side import Asked, Cancelled, Fatal, PeerSide, Prompted
from serai.errors import Closed
from serai.limits import Limits
from serai.wire.codec import encode
from serai.wire.stream import Framer, Oversize, PendingCall
from tests.support.claude.wire import answer_to, ask, hear
from tests.support.profiles import examples

# -- what we say ------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.scenario.D6")
def test_each_value_is_one_line() -> None:
    assert encode({"a": 1}) + encode({"b": 2}) == b'{"a":1}\n{"b":2}\n'


@pytest.mark.req("agents.rule.59")
def test_a_prompt_is_one_user_line_after_initialize(host: HostSide, peer: PeerSide) -> None:
    _, first = host.request("initialize", {"hooks": None}, now=0, timeout=60)
    second = host.prompt("/compact\nplease\u2028now", uuid="u-1", relayed=True, session_id="s")
    initialize, prompt = peer.receive(first + second)
    assert isinstance(initialize, Asked)
    assert initialize.subtype == "initialize"
    assert isinstance(prompt, Prompted)
    assert prompt.text == "/compact\nplease\u2028now"
    assert json.loads(second)["message"]["role"] == "user"
    assert (prompt.prompt.uuid, prompt.prompt.session_id, prompt.prompt.client_composed) == ("u-1", "s", True)
    assert "client_composed" not in json.loads(host.prompt("/compact"))
    assert "uuid" not in json.loads(host.prompt("/compact"))
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}},
    ]
    assert json.loads(host.prompt(blocks))["message"] == {"role": "user", "content": blocks}


@pytest.mark.req("agents.rule.61")
@pytest.mark.parametrize("content", ["", [], [{}], [{"text": "x"}], [None], ["x"], None, 17, {"type": "text"}, [{"type": 1}]])
def test_a_prompt_that_would_end_the_program_is_not_made(host: HostSide, content: Any) -> None:
    with pytest.raises(ValueError, match="claude would not take this"):
        host.prompt(content)


@pytest.mark.req("agents.rule.61")
@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"type": "user", "message": {"role": "assistant", "content": "x"}},
        {"type": "user", "message": "x"},
        {"type": "control_request", "request_id": "1"},
        {"type": "control_request", "request_id": "1", "request": None},
        {"type": "control_request", "request_id": "1", "request": {}},
        {"type": "control_request", "request_id": None, "request": {"subtype": "interrupt"}},
        {"type": "control_response", "response": {"subtype": "maybe", "request_id": "1"}},
        {"type": "control_response", "response": {"subtype": "success", "request_id": "1", "response": [1]}},
        {"type": "control_response", "response": {"subtype": "success", "request_id": "1", "response": Raw(b"{no json")}},
        {"type": "control_response", "response": {"subtype": "success", "request_id": "1", "response": Raw(b'{}\n{"a":1}')}},
        {"type": "say"},
    ],
)
def test_a_line_that_would_end_the_program_is_not_made(frame: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="claude would not take this"):
        encode_line(frame)


@pytest.mark.req("agents.rule.61")
def test_opaque_text_with_line_ends_and_bad_letters_is_still_one_sound_line(host: HostSide, peer: PeerSide) -> None:
    id, frame = peer.mcp_message("calc", {"jsonrpc": "2.0", "id": 0, "method": "tools/list"})
    hear(host, frame)
    reply = host.answer_mcp(id, Raw(b'{\r\n "jsonrpc": "2.0",\n "id": 0,\n "result": {"a": "\xff\\ud800"}}'))
    assert answer_to(id, reply) == {"mcp_response": {"jsonrpc": "2.0", "id": 0, "result": {"a": "\ufffd\ufffd"}}}
    assert b"\r" not in reply
    assert json.loads(host.prompt("a\ud800b\u2028c\u2029d"))["message"]["content"] == "a\ufffdb\u2028c\u2029d"
    assert host.prompt("b\u2028c\u2029d").isascii(), "some readers of JavaScript take these for line ends"


TEXT = st.text(max_size=20) | st.text(st.characters(codec=None, categories=["Cs", "Zl", "Zp", "Cc"]), max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=examples(300))
@given(st.dictionaries(TEXT, JSON, max_size=4), TEXT.filter(bool))
@pytest.mark.req("agents.rule.61")
def test_whatever_we_say_is_one_line_that_the_program_takes(value: dict[str, Any], text: str) -> None:
    host, peer = HostSide(), PeerSide()
    id = ask(host, peer)
    fields = {name: part for name, part in value.items() if name != "subtype"}
    frames = [
        host.prompt(text),
        host.request("set_model", fields, now=0, timeout=1)[1],
        host.allow(id, input=value, permissions=[value]),
        host.deny(ask(host, peer), text),
        host.refuse(ask(host, peer), text),
    ]
    for frame in frames:
        assert frame.count(b"\n") == 1
        [event] = peer.receive(frame)
        assert not isinstance(event, Fatal)
        json.loads(frame)


# -- our requests -----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.rule.62")
def test_answers_find_their_calls_in_any_order_and_others_change_nothing(host: HostSide, peer: PeerSide) -> None:
    first, _ = host.request("set_model", {"model": None}, now=0, timeout=60)
    second, _ = host.request("mcp_status", now=0, timeout=60, waiter="w")
    answered = hear(host, peer.reply(second.id, {"mcpServers": []}))
    assert isinstance(answered, Answered)
    assert (answered.call, answered.call.waiter, json.loads(bytes(answered.response))) == (second, "w", {"mcpServers": []})
    failed = hear(host, peer.refuse(first.id, "no such mode", "bypass_not_launched"))
    assert isinstance(failed, Failed)
    assert (failed.call, failed.error, failed.code) == (first, "no such mode", "bypass_not_launched")
    for id in (first.id, second.id, "nobody", ""):
        assert isinstance(hear(host, peer.reply(id, {})), Stray)


@pytest.mark.req("agents.rule.62")
@pytest.mark.parametrize(
    ("response", "error"),
    [
        ({}, None),
        ({"response": None}, None),
        ({"response": 17}, "no object"),
        ({"subtype": "perhaps"}, "neither success nor error"),
        ({"subtype": 17}, "neither success nor error"),
        ({"subtype": "error"}, "does not say why"),
        ({"subtype": "error", "error": {"a": 1}}, "does not say why"),
    ],
)
def test_an_answer_of_any_shape_ends_its_call(host: HostSide, response: dict[str, Any], error: str | None) -> None:
    call, _ = host.request("interrupt", now=0, timeout=60)
    said = {"subtype": "success", "request_id": call.id} | response
    event = hear(host, encode({"type": "control_response", "response": said}))
    assert event.call is call
    if error is None:
        assert isinstance(event, Answered)
        assert bytes(event.response) == b"{}"
    else:
        assert isinstance(event, Failed)
        assert error in event.error
    assert host.next_deadline() is None


@pytest.mark.req("agents.rule.62")
def test_a_reply_may_have_its_id_beside_the_response_only(host: HostSide) -> None:
    call, _ = host.request("interrupt", now=0, timeout=60)
    event = hear(host, encode({"type": "control_response", "request_id": call.id, "response": {"subtype": "success"}}))
    assert isinstance(event, Answered)


@pytest.mark.req("agents.rule.64")
def test_our_requests_end_by_the_clock_or_with_the_program(host: HostSide) -> None:
    timeout = Limits().agent_control
    assert timeout == 60
    first, _ = host.request("interrupt", now=100, timeout=timeout)
    second, _ = host.request("get_usage", now=110, timeout=timeout)
    third, _ = host.request("get_settings", now=110, timeout=None)
    assert host.next_deadline() == 160
    assert host.expire(159.9) == []
    assert host.expire(160) == [first]
    assert host.forget(second)
    assert not host.forget(second)
    assert host.lose() == [third]
    assert host.expire(10**9) == host.lose() == []
    with pytest.raises(Closed, match="interrupt cannot be asked"):
        host.request("interrupt", now=0, timeout=60)


def test_a_request_of_ours_can_be_withdrawn_once(host: HostSide, peer: PeerSide) -> None:
    call, _ = host.request("mcp_call", now=0, timeout=60)
    frame = host.cancel(call)
    assert frame is not None
    [event] = peer.receive(frame)
    assert isinstance(event, Cancelled)
    assert event.id == call.id
    assert host.cancel(call) is None


def test_every_request_of_the_spec_can_be_asked_and_newer_ones_too(host: HostSide, peer: PeerSide) -> None:
    for subtype in (*sorted(messages.SUBTYPES), "of_tomorrow"):
        call, frame = host.request(subtype, {"a": 1}, now=0, timeout=60)
        [asked] = peer.receive(frame)
        assert isinstance(asked, Asked)
        assert (asked.id, asked.subtype, asked.fields) == (call.id, subtype, {"a": 1})
        event = hear(host, peer.answer(asked))
        if subtype in messages.SUBTYPES:
            assert isinstance(event, Answered)
            continue
        assert isinstance(event, Failed)
        assert (event.error, event.code) == ("Unsupported control request subtype: of_tomorrow", "unsupported_request")
    with pytest.raises(ValueError, match="a subtype of their own"):
        host.request("set_model", {"subtype": "interrupt"}, now=0, timeout=60)
    with pytest.raises(ValueError, match="no subtype"):
        host.request("", now=0, timeout=60)


# -- lines that are too long ------------------------------------------------------------------------------------------------------


def oversize(frame: bytes, limit: int = 300) -> Oversize:
    [event] = Framer(limit).feed(frame)
    assert isinstance(event, Oversize)
    return event


@pytest.fixture
def calls(host: HostSide) -> list[PendingCall[str]]:
    return [host.request("get_settings", now=0, timeout=60)[0] for _ in range(2)]


@pytest.mark.req("agents.edge.02")
def test_a_line_over_the_cap_fails_the_call_that_it_answers(host: HostSide, peer: PeerSide, calls: list[PendingCall[str]]) -> None:
    first, second = calls
    assert host.oversize(oversize(peer.reply(second.id, {"big": "x" * 500}))) == [second]
    assert isinstance(hear(host, peer.reply(first.id, {})), Answered), "the stream goes on"


@pytest.mark.req("agents.edge.02")
@pytest.mark.parametrize(
    "frame", [b'{"big":"' + b"x" * 500 + b'"}\n', b'{"type":"control_response","response":{"a":"' + b"x" * 500 + b'"}}\n']
)
def test_a_line_over_the_cap_that_names_nobody_fails_them_all(host: HostSide, calls: list[PendingCall[str]], frame: bytes) -> None:
    assert host.oversize(oversize(frame)) == calls


@pytest.mark.req("agents.edge.02")
def test_a_line_over_the_cap_that_is_no_answer_fails_nobody(host: HostSide, peer: PeerSide, calls: list[PendingCall[str]]) -> None:
    for frame in (peer.text("x" * 500), peer.result("x" * 500), peer.can_use_tool("Bash", {"a": "x" * 500}, "t")[1]):
        assert host.oversize(oversize(frame)) == []
    assert all(host.forget(call) for call in calls)


def test_a_request_over_the_cap_is_refused_so_that_the_program_does_not_wait(host: HostSide, peer: PeerSide) -> None:
    id, frame = peer.can_use_tool("Write", {"content": "x" * 500}, "toolu_1")
    reply = host.refuse_oversize(oversize(frame))
    assert reply is not None
    said = json.loads(reply)["response"]
    assert (said["subtype"], said["request_id"]) == ("error", id)
    assert "the limit is 300" in said["error"]
    assert host.refuse_oversize(oversize(frame)) is None, "once is enough"
    assert host.refuse_oversize(oversize(peer.text("x" * 500))) is None


@pytest.mark.parametrize("first", [{}, {"a": "x" * 500}])
def test_a_hook_over_the_cap_says_no(host: HostSide, peer: PeerSide, first: dict[str, str]) -> None:
    """Also when its head does not show that it is one: an error would let the tool run."""
    request = {**first, "subtype": "hook_callback", "callback_id": "g", "input": {"tool_input": "x" * 500}}
    reply = host.refuse_oversize(oversize(encode({"type": "control_request", "request_id": "r", "request": request})))
    assert reply is not None
    assert answer_to("r", reply)["hookSpecificOutput"]["permissionDecision"] == "deny"
