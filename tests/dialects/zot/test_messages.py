"""Every frame of the protocol, as it is written and as it is read."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from msgspec import Raw

from serai.dialects.zot import messages
from serai.dialects.zot.messages import (
    FROM_GUEST,
    FROM_HOST,
    Broken,
    CommandInvoked,
    CommandResponse,
    ContentBlock,
    Event,
    EventIntercept,
    EventInterceptResponse,
    Frame,
    FrameReader,
    FromGuest,
    FromHost,
    Hello,
    HelloAck,
    Malformed,
    Notify,
    PanelClose,
    PanelKey,
    PanelRender,
    PanelResize,
    PanelSpec,
    Ready,
    RegisterCommand,
    RegisterTool,
    Shutdown,
    ShutdownAck,
    Subscribe,
    ToolCall,
    ToolResult,
    UnknownFrame,
)
from serai.wire.codec import encode
from serai.wire.stream import Framer, Oversize

GUEST = (FROM_GUEST, get_args(FromGuest))
HOST = (FROM_HOST, get_args(FromHost))
SCHEMA = Raw(b'{"type": "object", "x": [1, null]}')


def read(line: bytes, side: Any = GUEST) -> Any:
    [found] = FrameReader(*side).read(line + b"\n")
    return found


# Each frame with all it can say, and with nothing but what must be said.
FROM_GUESTS = [
    pytest.param(
        Hello("tides", "0.3.1", ("commands", "tools")),
        '{"type":"hello","name":"tides","version":"0.3.1","capabilities":["commands","tools"]}',
        Hello("tides"),
        '{"type":"hello","name":"tides","version":""}',
        marks=pytest.mark.req("zot.frame.hello"),
    ),
    pytest.param(
        RegisterCommand("tide", "next high water"),
        '{"type":"register_command","name":"tide","description":"next high water"}',
        RegisterCommand("tide"),
        '{"type":"register_command","name":"tide"}',
        marks=pytest.mark.req("zot.frame.register_command"),
    ),
    pytest.param(
        RegisterTool("tide_table", "For one day.", SCHEMA),
        '{"type":"register_tool","name":"tide_table","description":"For one day.","schema":{"type": "object", "x": [1, null]}}',
        RegisterTool("tide_table"),
        '{"type":"register_tool","name":"tide_table","schema":null}',
        marks=pytest.mark.req("zot.frame.register_tool"),
    ),
    pytest.param(
        Subscribe(("turn_end", "tool_call"), ("tool_call",)),
        '{"type":"subscribe","events":["turn_end","tool_call"],"intercept":["tool_call"]}',
        Subscribe(),
        '{"type":"subscribe"}',
        marks=pytest.mark.req("zot.frame.subscribe"),
    ),
    pytest.param(Ready(), '{"type":"ready"}', Ready(), '{"type":"ready"}', marks=pytest.mark.req("zot.frame.ready")),
    pytest.param(
        CommandResponse("7", "open_panel", "p", "i", "d", PanelSpec("tides", "Tides", ("a", "b"), "esc"), "e"),
        '{"type":"command_response","id":"7","action":"open_panel","prompt":"p","insert":"i","display":"d",'
        '"open_panel":{"id":"tides","title":"Tides","lines":["a","b"],"footer":"esc"},"error":"e"}',
        CommandResponse("7", open_panel=PanelSpec()),
        '{"type":"command_response","id":"7","action":"","open_panel":{"id":""}}',
        marks=pytest.mark.req("zot.frame.command_response"),
    ),
    pytest.param(
        ToolResult("7", (ContentBlock("text", "HW"), ContentBlock("image", mime_type="image/png", data="AAAA")), True),
        '{"type":"tool_result","id":"7","content":[{"type":"text","text":"HW"},'
        '{"type":"image","mime_type":"image/png","data":"AAAA"}],"is_error":true}',
        ToolResult("7"),
        '{"type":"tool_result","id":"7","content":[]}',
        marks=pytest.mark.req("zot.frame.tool_result"),
    ),
    pytest.param(
        EventInterceptResponse("7", True, "closed", Raw(b'{"command": "ls"}'), "new"),
        '{"type":"event_intercept_response","id":"7","block":true,"reason":"closed",'
        '"modified_args":{"command": "ls"},"replace_text":"new"}',
        EventInterceptResponse("7"),
        '{"type":"event_intercept_response","id":"7"}',
        marks=pytest.mark.req("zot.frame.event_intercept_response"),
    ),
    pytest.param(
        PanelRender("tides", "Tides", ("a",), "esc"),
        '{"type":"panel_render","panel_id":"tides","title":"Tides","lines":["a"],"footer":"esc"}',
        PanelRender("tides"),
        '{"type":"panel_render","panel_id":"tides"}',
        marks=pytest.mark.req("zot.frame.panel_render"),
    ),
    pytest.param(
        PanelClose("tides"),
        '{"type":"panel_close","panel_id":"tides"}',
        PanelClose(),
        '{"type":"panel_close","panel_id":""}',
        marks=pytest.mark.req("zot.frame.panel_close-from-guest"),
    ),
    pytest.param(
        Notify("warn", "old"),
        '{"type":"notify","level":"warn","message":"old"}',
        Notify(),
        '{"type":"notify","level":"","message":""}',
        marks=pytest.mark.req("zot.frame.notify"),
    ),
    pytest.param(
        ShutdownAck(),
        '{"type":"shutdown_ack"}',
        ShutdownAck(),
        '{"type":"shutdown_ack"}',
        marks=pytest.mark.req("zot.frame.shutdown_ack"),
    ),
]
FROM_HOSTS = [
    pytest.param(
        HelloAck(1, "0.1.0", "openai", "gpt-5", "/src", "/x", "/x"),
        '{"type":"hello_ack","protocol_version":1,"zot_version":"0.1.0","provider":"openai","model":"gpt-5","cwd":"/src",'
        '"extension_dir":"/x","data_dir":"/x"}',
        HelloAck(),
        '{"type":"hello_ack","protocol_version":1,"zot_version":"","provider":"","model":"","cwd":""}',
        marks=pytest.mark.req("zot.frame.hello_ack"),
    ),
    pytest.param(
        CommandInvoked("7", "tide", "Cuxhaven  today"),
        '{"type":"command_invoked","id":"7","name":"tide","args":"Cuxhaven  today"}',
        CommandInvoked("7", "tide"),
        '{"type":"command_invoked","id":"7","name":"tide"}',
        marks=pytest.mark.req("zot.frame.command_invoked"),
    ),
    pytest.param(
        ToolCall("7", "tide_table", Raw(b'{"harbour": "Husum"}')),
        '{"type":"tool_call","id":"7","name":"tide_table","args":{"harbour": "Husum"}}',
        ToolCall("7", "tide_table"),
        '{"type":"tool_call","id":"7","name":"tide_table","args":{}}',
        marks=pytest.mark.req("zot.frame.tool_call"),
    ),
    pytest.param(
        Event("turn_end", 2, "tool_use", "e", "call_9", "bash", Raw(b'{"command":"ls"}'), "said"),
        '{"type":"event","event":"turn_end","step":2,"stop":"tool_use","error":"e","tool_id":"call_9","tool_name":"bash",'
        '"tool_args":{"command":"ls"},"text":"said"}',
        Event("session_start"),
        '{"type":"event","event":"session_start"}',
        marks=pytest.mark.req("zot.frame.event"),
    ),
    pytest.param(
        EventIntercept("7", "tool_call", "call_9", "bash", Raw(b'{"command":"ls"}'), 3, "said"),
        '{"type":"event_intercept","id":"7","event":"tool_call","tool_id":"call_9","tool_name":"bash",'
        '"tool_args":{"command":"ls"},"step":3,"text":"said"}',
        EventIntercept("7", "turn_start"),
        '{"type":"event_intercept","id":"7","event":"turn_start"}',
        marks=pytest.mark.req("zot.frame.event_intercept"),
    ),
    pytest.param(
        PanelKey("tides", "rune", "ü"),
        '{"type":"panel_key","panel_id":"tides","key":"rune","text":"ü"}',
        PanelKey("tides", "up"),
        '{"type":"panel_key","panel_id":"tides","key":"up"}',
        marks=pytest.mark.req("zot.frame.panel_key"),
    ),
    pytest.param(
        PanelClose("tides"),
        '{"type":"panel_close","panel_id":"tides"}',
        PanelClose(),
        '{"type":"panel_close","panel_id":""}',
        marks=pytest.mark.req("zot.frame.panel_close-from-host"),
    ),
    pytest.param(
        PanelResize("tides", 96, 28),
        '{"type":"panel_resize","panel_id":"tides","width":96,"height":28}',
        PanelResize("tides"),
        '{"type":"panel_resize","panel_id":"tides","width":0,"height":0}',
        marks=pytest.mark.req("zot.frame.panel_resize"),
    ),
    pytest.param(Shutdown(), '{"type":"shutdown"}', Shutdown(), '{"type":"shutdown"}', marks=pytest.mark.req("zot.frame.shutdown")),
]


@pytest.mark.req("zot.rule.3.1-zero-values")
@pytest.mark.parametrize(("full", "text", "least", "least_text"), FROM_GUESTS)
def test_a_frame_of_the_guest_is_written_and_read(full: Frame, text: str, least: Frame, least_text: str) -> None:
    assert encode(full) == text.encode() + b"\n"
    assert encode(least) == least_text.encode() + b"\n"
    assert read(text.encode()) == full
    assert read(least_text.encode()) == least


@pytest.mark.req("zot.rule.3.1-zero-values")
@pytest.mark.parametrize(("full", "text", "least", "least_text"), FROM_HOSTS)
def test_a_frame_of_the_host_is_written_and_read(full: Frame, text: str, least: Frame, least_text: str) -> None:
    assert encode(full) == text.encode() + b"\n"
    assert encode(least) == least_text.encode() + b"\n"
    assert read(text.encode(), HOST) == full
    assert read(least_text.encode(), HOST) == least


def test_no_frame_is_missing_here() -> None:
    for tested, union in ((FROM_GUESTS, FromGuest), (FROM_HOSTS, FromHost)):
        assert {type(param.values[0]) for param in tested} == set(get_args(union))


# -- reading ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("zot.rule.3.1-zero-values")
@pytest.mark.parametrize("side", [GUEST, HOST], ids=["guest", "host"])
def test_what_is_absent_or_null_reads_as_its_zero_value(side: Any) -> None:
    for frame in side[1]:
        kind = messages.get_kind(frame)
        opaque = messages._OPAQUE.get(kind)
        nulls = {field.encode_name: None for field in msgspec.structs.fields(frame) if field.encode_name != opaque}
        assert read(json.dumps({"type": kind}).encode(), side) == frame()
        assert read(json.dumps({"type": kind} | nulls).encode(), side) == frame()


@pytest.mark.req("zot.rule.3.1-zero-values")
@pytest.mark.parametrize(
    ("line", "frame"),
    [
        (b'{"type":"command_response","id":"1","open_panel":null}', CommandResponse("1")),
        (
            b'{"type":"command_response","id":"1","open_panel":{"id":"p","title":null,"lines":[null,"a"],"footer":null,"x":null}}',
            CommandResponse("1", open_panel=PanelSpec("p", lines=("", "a"))),
        ),
        (
            b'{"type":"tool_result","id":"1","content":[{"type":"text","text":"a","data":null},{"type":null},null],"is_error":null}',
            ToolResult("1", (ContentBlock("text", "a"), ContentBlock(), ContentBlock())),
        ),
        (b'{"type":"subscribe","events":["turn_end",null],"intercept":null}', Subscribe(("turn_end", ""))),
        (b'{"type":"panel_render","panel_id":"p","title":null,"lines":["a",null]}', PanelRender("p", lines=("a", ""))),
    ],
)
def test_null_is_absence_also_inside_a_panel_a_block_and_a_list(line: bytes, frame: Frame) -> None:
    assert read(line) == frame


@pytest.mark.parametrize(
    ("side", "line", "frame"),
    [
        (GUEST, b'{"type":"register_tool","name":"a","description":null,"schema":{"x":null,"y":[null]}}', b'{"x":null,"y":[null]}'),
        (GUEST, b'{"type":"event_intercept_response","id":"1","reason":null,"modified_args":null}', b"null"),
        (HOST, b'{"type":"tool_call","id":"1","name":null,"args":null}', b"null"),
        (HOST, b'{"type":"event_intercept","id":"1","event":null,"tool_args":[null]}', b"[null]"),
        (HOST, b'{"type":"event","event":null,"tool_args":{"lines":[null]}}', b'{"lines":[null]}'),
    ],
)
def test_null_stays_null_in_what_is_opaque(side: Any, line: bytes, frame: bytes) -> None:
    found = read(line, side)
    assert bytes(getattr(found, messages._OPAQUE[messages.get_kind(found)])) == frame


def test_the_table_of_opaque_members_names_them_all() -> None:
    frames = {*GUEST[1], *HOST[1]}
    opaque = {
        messages.get_kind(frame): field.name for frame in frames for field in msgspec.structs.fields(frame) if field.type is Raw
    }
    assert opaque == messages._OPAQUE


@pytest.mark.req("zot.rule.3.1-unknown-fields")
@pytest.mark.parametrize("side", [GUEST, HOST], ids=["guest", "host"])
def test_unknown_fields_are_ignored(side: Any) -> None:
    for frame in side[1]:
        more = {"type": messages.get_kind(frame), "context": {"a": [1, None]}, "details": None, "Name": "no folding of case"}
        assert read(json.dumps(more).encode(), side) == frame()


@pytest.mark.req("zot.rule.3.1-malformed")
@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "a blank line"),
        (b" \t\r", "a blank line"),
        (b"starting up...", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON"),
        (b'{"name":"a"}', "its type is missing or no string"),
        (b'{"type":5}', "its type is missing or no string"),
        (b'{"type":null}', "its type is missing or no string"),
    ],
)
def test_a_line_that_is_no_frame_is_malformed(line: bytes, why: str) -> None:
    found = read(line)
    assert isinstance(found, Malformed)
    assert why in found.why
    assert found.raw == line.strip()


@pytest.mark.req("zot.rule.3.1-malformed")
def test_a_flood_of_blank_lines_is_one_event_and_the_frames_between_are_read() -> None:
    found = FrameReader(*GUEST).read(b'\n\n{"type":"ready"}\n \n{"type":"shutdown_ack"}\n' + b"\n" * 1000)
    assert found == [Ready(), ShutdownAck(), Malformed(b"", "1003 blank lines")]


@pytest.mark.req("zot.rule.5.3-unknown-type")
def test_an_unknown_type_is_kept_with_its_bytes() -> None:
    line = b'{"type":"set_status","text":"hi", "x":[1]}'
    found = read(line)
    assert found == UnknownFrame("set_status", line)
    assert found.why == 'unknown frame type "set_status"'
    assert isinstance(read(b'{"type":"tool_call","id":"1"}'), UnknownFrame)  # the other direction's


@pytest.mark.req("zot.edge.08")
@pytest.mark.parametrize("id", ["5", "1.5", "true", "[]", "{}"])
@pytest.mark.parametrize("kind", ["tool_result", "command_response", "event_intercept_response", "notify", "ready"])
def test_an_id_that_is_no_string_drops_the_frame_whose_name_is_told(kind: str, id: str) -> None:
    line = f'{{"type":"{kind}","id":{id},"message":null}}'.encode()
    found = read(line)
    assert isinstance(found, Broken)
    assert found.to_malformed() == Malformed(line, f"{kind}: its id is no string: {id}")


@pytest.mark.req("zot.rule.3.1-wrong-field-type")
@pytest.mark.parametrize(
    ("line", "kind", "id"),
    [
        (b'{"type":"tool_result","id":"7","content":"text"}', "tool_result", "7"),
        (b'{"type":"tool_result","id":"7","content":["text"]}', "tool_result", "7"),
        (b'{"type":"tool_result","id":"7","content":[{"type":"text","text":5}]}', "tool_result", "7"),
        (b'{"type":"tool_result","id":"7","is_error":"yes","content":[]}', "tool_result", "7"),
        (b'{"type":"command_response","id":"7","open_panel":[1]}', "command_response", "7"),
        (b'{"type":"command_response","open_panel":{"lines":"a"}}', "command_response", ""),
        (b'{"type":"notify","level":1,"message":null}', "notify", ""),
        (b'{"type":"subscribe","events":"turn_end"}', "subscribe", ""),
        (b'{"type":"tool_result","id":"7","content":[{"type":"te', "tool_result", "7"),  # cut off
        (b'{"type":"tool_result","id":"7"} and more', "tool_result", "7"),
    ],
)
def test_a_known_frame_that_cannot_be_read_says_what_it_was(line: bytes, kind: str, id: str) -> None:
    found = read(line)
    assert isinstance(found, Broken)
    assert (found.kind, found.id, found.raw) == (kind, id, line)
    assert found.why


def test_text_that_no_strict_parser_reads_is_repaired_not_lost() -> None:
    assert read(b'{"type":"notify","level":null,"message":"a\\ud800b\xff"}') == Notify("", "a\ufffdb\ufffd")
    assert read(b'\xef\xbb\xbf{"type":"notify","level":"info","message":"a"}') == Notify("info", "a")


@pytest.mark.req("zot.rule.3.1-line-ends")
def test_a_carriage_return_is_stripped_and_a_last_line_without_a_newline_counts() -> None:
    framer = Framer(messages.MAX_LINE)
    runs = [*framer.feed(b'{"type":"ready"}\r\n{"type":"notify","message":"a"}'), *framer.feed_eof()]
    assert not any(isinstance(run, Oversize) for run in runs)
    reader = FrameReader(*GUEST)
    assert [frame for run in runs if isinstance(run, bytes) for frame in reader.read(run)] == [Ready(), Notify("", "a")]


@pytest.mark.req("zot.rule.3.1-max-line")
def test_a_line_of_just_the_limit_is_read_and_one_byte_more_is_oversized() -> None:
    frame = encode(Notify("info", "x" * (messages.MAX_LINE - len(encode(Notify("info"))))))
    assert len(frame) == messages.MAX_LINE == 4194304
    framer = Framer(messages.MAX_LINE)
    [run] = framer.feed(frame)
    assert isinstance(run, bytes)
    assert isinstance(read(run[:-1]), Notify)
    [longer] = framer.feed(frame[:-3] + b'x"}\n')
    assert isinstance(longer, Oversize)
    assert longer.size == messages.MAX_LINE + 1


def test_nested_nulls_of_a_hostile_line_end_in_an_event_not_in_an_error() -> None:
    depth = 600
    line = b'{"type":"command_response","id":"1","open_panel":' + b'{"open_panel":' * depth + b"null" + b"}" * depth + b"}"
    assert read(line) == CommandResponse("1", open_panel=PanelSpec())


@pytest.mark.req("zot.rule.9-names")
def test_the_names_of_the_protocol() -> None:
    assert set(messages.EVENTS) == {"session_start", "turn_start", "turn_end", "tool_call", "assistant_message"}
    assert set(messages.INTERCEPTABLE) == {"tool_call", "turn_start", "assistant_message"}
    assert messages.PROTOCOL_VERSION == 1
