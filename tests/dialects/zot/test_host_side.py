"""Serai's side of a zot wire: what each frame, and the passing of time, means."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from serai.dialects.zot import events, messages
from serai.dialects.zot.events import (
    Answered,
    CommandOffered,
    Event,
    Expired,
    Garbled,
    Hello,
    NoHello,
    Notified,
    PanelClosed,
    PanelRendered,
    Ready,
    Repeated,
    ShutdownAcknowledged,
    Subscribed,
    ToolOffered,
    ToolRefused,
)
from serai.dialects.zot.host_side import HostSide
from serai.dialects.zot.messages import (
    CommandResponse,
    ContentBlock,
    EventInterceptResponse,
    HelloAck,
    Malformed,
    Stray,
    ToolResult,
    UnknownFrame,
)
from serai.errors import Closed
from serai.wire.stream import Oversize, PendingCall

HELLO = b'{"type":"hello","name":"tides","version":"1"}\n'
READY = b'{"type":"ready"}\n'


def build_greeted(**limits: float) -> HostSide:
    """A side whose guest was welcomed at 0."""
    host = HostSide(**limits)
    host.begin(0.0)
    host.receive(HELLO)
    host.welcome(HelloAck(), now=0.0)
    return host


def build_ready() -> HostSide:
    host = build_greeted()
    host.receive(READY)
    return host


def receive(host: HostSide, line: bytes) -> Event:
    [event] = host.receive(line + b"\n")
    return event


def tool(host: HostSide, *, timeout: float | None = None) -> PendingCall[str]:
    return host.call_tool("tide_table", {}, now=0.0, timeout=timeout)[0]


# -- hello -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("zot.rule.2.2-no-version-check")
@pytest.mark.parametrize("more", [b"", b',"version":"99"', b',"protocol_version":7', b',"capabilities":["time travel"]'])
def test_a_hello_with_a_name_is_enough_whatever_version_it_says(more: bytes) -> None:
    host = HostSide()
    event = receive(host, b'{"type":"hello","name":"tides"' + more + b"}")
    assert isinstance(event, Hello)
    assert event.name == "tides"
    assert host.phase == "registering"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"type":"ready"}', 'first frame must be hello (got "ready")'),
        (b'{"type":"open_panel"}', 'first frame must be hello (got "open_panel")'),
        (b'{"type":"notify","message":5}', 'first frame must be hello (got "notify")'),
        (b'{"type":"hello"}', "parse hello: its name is empty"),
        (b'{"type":"hello","name":null}', "parse hello: its name is empty"),
        (b'{"type":"hello","name":5}', "parse hello: Expected `str`, got `int` - at `$.name`"),
        (b'{"name":"tides"}', "parse hello: its type is missing or no string"),
        (b"npm WARN something", "parse hello: not a JSON object"),
        (b"", "parse hello: a blank line"),
    ],
)
def test_a_first_line_that_is_no_hello_ends_it_and_nothing_more_is_read(line: bytes, why: str) -> None:
    host = HostSide()
    host.begin(0.0)
    assert host.receive(line + b"\n" + HELLO) == [NoHello(why, line)]
    assert host.phase == "over"
    assert host.receive(HELLO) == []
    assert host.next_deadline() is None
    assert host.expire(1e9) == []


def test_a_guest_that_never_says_hello_is_told_at_its_deadline() -> None:
    host = HostSide(hello=10.0)
    assert host.next_deadline() is None  # not running yet
    host.begin(5.0)
    assert host.next_deadline() == 15.0
    assert host.expire(14.9) == []
    assert host.expire(15.0) == [NoHello("no hello within 10 s", b"", late=True)]
    assert host.phase == "over"


@pytest.mark.parametrize("then", [lambda host: host.receive(HELLO), lambda host: host.expire(3.0)], ids=["a frame", "time"])
def test_an_oversize_first_line_is_no_hello(then: Callable[[HostSide], list[Event]]) -> None:
    host = HostSide()
    host.begin(3.0)
    assert host.oversize(Oversize(5_000_000, b'{"type":"hello","name":"', 4_194_304)) == []
    assert (host.next_deadline() or 0.0) <= 3.0
    assert then(host) == [NoHello("parse hello: the first line has 5000000 bytes; the limit is 4194304", b"")]


@pytest.mark.req("zot.edge.04", "zot.edge.06")
def test_what_comes_with_the_hello_is_handled_before_any_welcome() -> None:
    host = HostSide()
    run = (
        HELLO
        + b'{"type":"register_command","name":"tide","description":"d"}\n{"type":"register_tool","name":"t","schema":{"x":1}}\n'
        + b'{"type":"notify","level":"info","message":"hi"}\n{"type":"subscribe","events":["turn_end"]}\n'
    )
    assert host.receive(run) == [
        Hello("tides", "1", ()),
        CommandOffered("tide", "d"),
        ToolOffered("t", "", {"x": 1}),
        Notified("info", "hi"),
        Subscribed(frozenset({"turn_end"}), frozenset()),
    ]
    assert host.phase == "registering"
    host.welcome(HelloAck(), now=0.0)
    assert receive(host, b'{"type":"notify","level":"warn","message":"and after"}') == Notified("warn", "and after")


@pytest.mark.req("zot.frame.hello_ack")
def test_the_welcome_says_protocol_version_one() -> None:
    host = HostSide()
    host.receive(HELLO)
    frame = host.welcome(HelloAck(zot_version="0.1.0", cwd="/w", extension_dir="/x", data_dir="/x"), now=0.0)
    assert json.loads(frame) == {
        "type": "hello_ack", "protocol_version": 1, "zot_version": "0.1.0", "provider": "", "model": "", "cwd": "/w",
        "extension_dir": "/x", "data_dir": "/x",
    }  # fmt: skip


# -- ready -----------------------------------------------------------------------------------------------------------------------


def test_a_ready_frame_closes_the_window_also_before_the_welcome() -> None:
    host = HostSide()
    assert host.receive(HELLO + READY) == [Hello("tides", "1", ()), Ready("frame")]
    host.welcome(HelloAck(), now=0.0)
    assert host.phase == "ready"
    assert host.next_deadline() is None


def test_a_window_without_a_frame_counts_as_ready() -> None:
    host = build_greeted()
    assert host.next_deadline() == 0.25
    assert host.expire(0.24) == []
    assert host.expire(0.25) == [Ready("idle")]
    assert host.phase == "ready"
    assert host.expire(9.0) == []


def test_a_frame_in_each_window_keeps_it_open_until_the_cap() -> None:
    host = build_greeted()
    windows, now, events = 0, None, []
    while host.phase == "registering":
        host.receive(b'{"type":"register_tool","name":"t%d"}\n' % windows)
        now = host.next_deadline()
        assert now is not None
        events = host.expire(now)
        windows += 1
    assert events == [Ready("late")]
    assert (now, windows) == (3.0, 12)


def test_a_frame_in_the_first_window_does_not_save_the_second() -> None:
    host = build_greeted()
    host.receive(b'{"type":"register_tool","name":"t"}\n')
    assert host.expire(0.25) == []
    assert host.next_deadline() == 0.5
    assert host.expire(0.5) == [Ready("idle")]


def test_a_late_look_at_the_clock_opens_a_whole_new_window() -> None:
    host = build_greeted()
    host.receive(b'{"type":"register_tool","name":"t"}\n')
    assert host.expire(1.0) == []
    assert host.next_deadline() == 1.25


@pytest.mark.req("zot.edge.07")
def test_a_second_ready_or_hello_and_repeated_registrations_are_harmless() -> None:
    host = build_ready()
    host.receive(b'{"type":"register_tool","name":"t","description":"first"}\n{"type":"register_command","name":"t"}\n')
    assert host.receive(READY) == []
    assert receive(host, b'{"type":"register_tool","name":"t","description":"second"}') == Repeated("tool", "t")
    assert receive(host, b'{"type":"register_command","name":"t","description":"second"}') == Repeated("command", "t")
    assert isinstance(receive(host, HELLO[:-1]), Stray)
    assert host.phase == "ready"


# -- what a guest offers ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("zot.ours.3.2-schema-missing")
@pytest.mark.parametrize("schema", [b"", b',"schema":null'])
def test_a_tool_without_a_schema_takes_any_object(schema: bytes) -> None:
    assert receive(build_ready(), b'{"type":"register_tool","name":"t"' + schema + b"}") == ToolOffered("t", "", {"type": "object"})


def test_a_schema_that_is_an_object_is_kept_as_it_is() -> None:
    assert receive(build_ready(), b'{"type":"register_tool","name":"t","schema":{}}') == ToolOffered("t", "", {})
    repaired = receive(build_ready(), b'{"type":"register_tool","name":"t","schema":{"a":"\\ud800"}}')
    assert repaired == ToolOffered("t", "", {"a": "\ufffd"})


@pytest.mark.req("zot.ours.3.2-schema-not-object")
@pytest.mark.parametrize("schema", [b"[]", b'"object"', b"true", b"5", b'{"n":1e999}'])
def test_a_schema_that_is_no_object_is_refused_with_a_reason(schema: bytes) -> None:
    host = build_ready()
    refused = receive(host, b'{"type":"register_tool","name":"t","schema":' + schema + b"}")
    assert isinstance(refused, ToolRefused)
    assert refused.name == "t"
    assert "its schema is no JSON object" in refused.why
    assert isinstance(receive(host, b'{"type":"register_tool","name":"t"}'), ToolOffered)  # the name was not taken


def test_what_has_no_name_is_not_taken() -> None:
    host = build_ready()
    assert receive(host, b'{"type":"register_tool","schema":{}}') == ToolRefused("", "it has no name")
    event = receive(host, b'{"type":"register_command","description":"d"}')
    assert isinstance(event, Malformed)
    assert event.why == "register_command: it has no name"


@pytest.mark.req("zot.frame.subscribe", "zot.edge.07")
def test_subscriptions_are_united_and_names_that_cannot_be_are_told_apart() -> None:
    host = build_ready()
    first = receive(host, b'{"type":"subscribe","events":["turn_end","full_moon"],"intercept":["tool_call","turn_end"]}')
    assert first == Subscribed(frozenset({"turn_end"}), frozenset({"tool_call"}), ("full_moon", "turn_end"))
    second = receive(host, b'{"type":"subscribe","events":["turn_end","tool_call"],"intercept":["turn_start"]}')
    assert second == Subscribed(frozenset({"turn_end", "tool_call"}), frozenset({"tool_call", "turn_start"}))


def test_the_rest_of_what_a_guest_tells() -> None:
    host = build_ready()
    assert host.receive(
        b'{"type":"panel_render","panel_id":"p","title":"t","lines":["a"],"footer":"f"}\n{"type":"panel_close","panel_id":"p"}\n'
        b'{"type":"shutdown_ack"}\n{"type":"alert"}\n'
    ) == [
        PanelRendered("p", "t", ("a",), "f"),
        PanelClosed("p"),
        ShutdownAcknowledged(),
        UnknownFrame("alert", b'{"type":"alert"}'),
    ]


# -- calls -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("zot.frame.tool_call")
@pytest.mark.parametrize(("args", "written"), [({"a": [1]}, {"a": [1]}), ({}, {}), (None, {}), ([1], [1]), ("text", "text")])
def test_a_tool_call_always_has_arguments(args: object, written: object) -> None:
    call, frame = build_ready().call_tool("tide_table", args, now=0.0, timeout=60.0)
    assert json.loads(frame) == {"type": "tool_call", "id": call.id, "name": "tide_table", "args": written}
    assert call.what == "tool_call tide_table"


@pytest.mark.req("zot.frame.command_invoked", "zot.frame.event_intercept")
def test_the_other_requests_have_what_belongs_to_them_and_no_more() -> None:
    host = build_ready()
    command, frame = host.invoke_command("tide", "Cuxhaven  today", now=0.0, timeout=30.0)
    assert json.loads(frame) == {"type": "command_invoked", "id": command.id, "name": "tide", "args": "Cuxhaven  today"}
    assert "args" not in json.loads(host.invoke_command("tide", "", now=0.0, timeout=30.0)[1])
    asked, frame = host.intercept_tool_call("call_9", "bash", {"command": "ls"}, now=0.0, timeout=5.0)
    assert json.loads(frame) == {
        "type": "event_intercept", "id": asked.id, "event": "tool_call", "tool_id": "call_9", "tool_name": "bash",
        "tool_args": {"command": "ls"},
    }  # fmt: skip
    asked, frame = host.intercept_turn_start(2, now=0.0, timeout=5.0)
    assert json.loads(frame) == {"type": "event_intercept", "id": asked.id, "event": "turn_start", "step": 2}
    asked, frame = host.intercept_assistant_message("a\nb", now=0.0, timeout=5.0)
    assert json.loads(frame) == {"type": "event_intercept", "id": asked.id, "event": "assistant_message", "text": "a\nb"}
    assert asked.what == "event_intercept assistant_message"


@pytest.mark.req("zot.rule.3.1-ids")
def test_every_request_has_a_string_id_of_its_own() -> None:
    host = build_ready()
    made = [
        host.call_tool("t", {}, now=0.0, timeout=None),
        host.invoke_command("c", "", now=0.0, timeout=None),
        host.intercept_turn_start(1, now=0.0, timeout=None),
        host.call_tool("t", {}, now=0.0, timeout=None),
    ]
    assert all(json.loads(frame)["id"] == call.id != "" for call, frame in made)
    assert len({call.id for call, _ in made}) == 4


def test_a_request_that_cannot_be_written_does_not_wait() -> None:
    host = build_ready()
    with pytest.raises(TypeError):
        host.call_tool("t", object(), now=0.0, timeout=1.0)
    assert host.next_deadline() is None


def test_answers_of_each_kind_find_their_calls_in_any_order() -> None:
    host = build_ready()
    first = tool(host)
    command, _ = host.invoke_command("c", "", now=0.0, timeout=None)
    asked, _ = host.intercept_turn_start(1, now=0.0, timeout=None)
    run = (
        f'{{"type":"event_intercept_response","id":"{asked.id}","block":true}}\n'
        f'{{"type":"tool_result","id":"{first.id}","content":[{{"type":"text","text":"a"}}]}}\n'
        f'{{"type":"command_response","id":"{command.id}","action":"noop"}}\n'
    )
    assert host.receive(run.encode()) == [
        Answered(asked, EventInterceptResponse(asked.id, block=True)),
        Answered(first, ToolResult(first.id, (ContentBlock("text", "a"),))),
        Answered(command, CommandResponse(command.id, "noop")),
    ]
    assert host.lose() == []


@pytest.mark.parametrize("content", [b"", b',"content":null', b',"content":[]'])
@pytest.mark.req("zot.edge.10")
def test_a_result_without_content_is_an_answer(content: bytes) -> None:
    host = build_ready()
    call = tool(host)
    event = receive(host, b'{"type":"tool_result","id":"%s"%s}' % (call.id.encode(), content))
    assert event == Answered(call, ToolResult(call.id))


def test_late_repeated_and_unknown_answers_are_strays() -> None:
    host = build_ready()
    call, late = tool(host), tool(host, timeout=1.0)
    answer = b'{"type":"tool_result","id":"%s","content":[]}'
    receive(host, answer % call.id.encode())
    assert host.expire(1.0) == [Expired(late)]
    for id in (call.id, late.id, "never", ""):
        event = receive(host, answer % id.encode())
        assert isinstance(event, Stray)
        assert f'"{id}"' in event.why
        assert json.loads(event.raw)["id"] == id


def test_an_answer_of_another_kind_ends_nothing() -> None:
    host = build_ready()
    call = tool(host)
    for kind in (b"command_response", b"event_intercept_response"):
        assert isinstance(receive(host, b'{"type":"%s","id":"%s"}' % (kind, call.id.encode())), Stray)
    assert host.waits_for(call)
    assert host.lose() == [call]


@pytest.mark.req("zot.rule.3.1-wrong-field-type")
@pytest.mark.parametrize("content", [b'"content":"a"', b'"is_error":1', b'"content":[{"type":"text","te'])
def test_an_answer_that_cannot_be_read_is_a_bad_answer_not_a_late_one(content: bytes) -> None:
    host = build_ready()
    call = tool(host)
    line = b'{"type":"tool_result","id":"%s",%s}' % (call.id.encode(), content)
    event = receive(host, line)
    assert isinstance(event, Garbled)
    assert (event.call, event.raw) == (call, line)
    assert event.why
    assert not host.waits_for(call)
    assert isinstance(receive(host, line), Malformed)  # nobody waits any more


@pytest.mark.req("zot.rule.3.1-wrong-field-type")
def test_a_wrong_field_drops_that_frame_alone() -> None:
    host = build_ready()
    bad, good = host.receive(b'{"type":"notify","level":"info","message":{}}\n{"type":"notify","level":"info","message":"b"}\n')
    assert isinstance(bad, Malformed)
    assert bad.why.startswith("notify: ")
    assert good == Notified("info", "b")


@pytest.mark.req("zot.edge.08")
def test_a_numeric_id_is_dropped_with_the_frames_name_and_the_call_waits_on() -> None:
    host = build_ready()
    call = tool(host)
    event = receive(host, b'{"type":"tool_result","id":%s,"content":[]}' % call.id.encode())
    assert isinstance(event, Malformed)
    assert event.why == f"tool_result: its id is no string: {call.id}"
    assert host.waits_for(call)


def test_a_call_given_up_is_not_waited_for_and_not_written() -> None:
    host = build_ready()
    call = tool(host, timeout=5.0)
    assert host.waits_for(call)
    assert host.forget(call) is True
    assert host.forget(call) is False
    assert not host.waits_for(call)
    assert host.next_deadline() is None


def test_the_earliest_deadline_of_all_kinds_counts() -> None:
    host = build_ready()
    tool(host, timeout=60.0)
    asked, _ = host.intercept_turn_start(1, now=0.0, timeout=5.0)
    host.invoke_command("c", "", now=0.0, timeout=30.0)
    assert host.next_deadline() == 5.0
    assert host.expire(5.0) == [Expired(asked)]
    assert host.next_deadline() == 30.0


def test_a_guest_that_goes_gives_every_call_back_and_takes_no_more() -> None:
    host = build_ready()
    call = tool(host)
    asked, _ = host.intercept_turn_start(1, now=0.0, timeout=5.0)
    assert set(host.lose()) == {call, asked}
    with pytest.raises(Closed, match="tide_table"):
        tool(host)
    assert host.receive(b'{"type":"notify","level":"","message":"late"}\n') == []


# -- too long --------------------------------------------------------------------------------------------------------------------


def oversize(head: str) -> Oversize:
    return Oversize(5_000_000, head.encode(), 4_194_304)


@pytest.mark.req("zot.rule.5.3-oversize-call")
def test_an_oversize_answer_ends_the_call_that_its_head_names() -> None:
    host = build_ready()
    first, second, third = tool(host), tool(host), tool(host)
    assert host.oversize(oversize(f'{{"type":"tool_result","id":"{second.id}","content":[{{"type":"text","text":"aa')) == [second]
    assert host.oversize(oversize(f' {{"id":"{third.id}","content":[{{"id":"{first.id}","type":"text","te')) == [third]
    assert host.oversize(oversize('{"type":"tool_result","id":"other","content":')) == []
    assert host.lose() == [first]


@pytest.mark.req("zot.rule.5.3-oversize-call")
@pytest.mark.parametrize("head", ['{"type":"tool_result","content":[{"type":"text","text":"aaaa', '{"content":["', "aaaaaaa"])
def test_an_oversize_line_that_names_no_call_ends_all(head: str) -> None:
    host = build_ready()
    call = tool(host)
    asked, _ = host.intercept_turn_start(1, now=0.0, timeout=5.0)
    assert set(host.oversize(oversize(head))) == {call, asked}


@pytest.mark.req("zot.rule.5.3-oversize-call")
@pytest.mark.parametrize("kind", ["notify", "panel_render", "register_tool", "status"])
def test_an_oversize_frame_that_is_no_answer_ends_none(kind: str) -> None:
    host = build_ready()
    call = tool(host)
    assert host.oversize(oversize(f'{{"type":"{kind}","id":"{call.id}","message":"aaaa')) == []
    assert host.waits_for(call)


# -- taking up what was said earlier ---------------------------------------------------------------------------------------------


def test_a_replay_finds_the_calls_of_what_was_sent() -> None:
    live, again = build_ready(), HostSide()
    again.receive(HELLO)
    again.note_sent(live.welcome(HelloAck(), now=0.0), 0.0)
    assert again.phase == "registering"
    call, frame = live.call_tool("t", {}, now=0.0, timeout=1.0)
    command, more = live.invoke_command("c", "", now=0.0, timeout=1.0)
    asked, most = live.intercept_turn_start(1, now=0.0, timeout=1.0)
    again.note_sent(frame + b"rubbish\n" + more + most + b'{"type":"shutdown"}\n', 0.0)
    for kind, waits in (("tool_result", call), ("command_response", command), ("event_intercept_response", asked)):
        event = receive(again, f'{{"type":"{kind}","id":"{waits.id}"}}'.encode())
        assert isinstance(event, Answered)
        assert (event.call.id, event.call.what) == (waits.id, waits.what)
    assert int(tool(again).id) > int(asked.id)


def test_a_recording_whose_beginning_is_gone_still_replays() -> None:
    host = HostSide()
    host.note_sent(b'{"type":"tool_call","id":"abc","name":"t","args":{}}\n', 0.0)
    assert isinstance(receive(host, b'{"type":"tool_result","id":"abc"}'), Answered)


def test_all_events_are_named_in_the_union() -> None:
    structs = {value for name in events.__all__ if isinstance(value := getattr(events, name), type) and name[0].isupper()}
    assert structs == set(events.Event.__args__)
    assert messages.get_kind(ToolResult) == "tool_result"


def test_what_is_pending_counts_all_kinds() -> None:
    host = build_ready()
    assert host.pending == 0
    call = tool(host)
    host.invoke_command("c", "", now=0.0, timeout=None)
    host.intercept_turn_start(1, now=0.0, timeout=None)
    assert host.pending == 3
    host.forget(call)
    assert host.pending == 2
