"""Between zot's frames and the neutral words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from serai.dialects.zot import messages, neutral
from serai.dialects.zot.events import Answered, PanelRendered
from serai.dialects.zot.host_side import HostSide
from serai.dialects.zot.messages import NOTHING, CommandResponse, ContentBlock, EventInterceptResponse, PanelRender, PanelSpec
from serai.dialects.zot.neutral import CommandError
from serai.errors import BadFrame
from serai.model import events
from serai.model.actions import Display, Insert, NoAction, Notice, OpenPanel, Panel, SubmitPrompt
from serai.model.contributions import Pass, Refuse, Rewrite
from serai.model.tools import ImageBlock, TextBlock, ToolCall, ToolResult
from serai.wire.codec import encode


def result(*blocks: ContentBlock, is_error: bool = False) -> ToolResult:
    return neutral.to_tool_result(messages.ToolResult("1", blocks, is_error), "tides", "tool_call table")


def text(said: str) -> ContentBlock:
    return ContentBlock("text", said)


# -- tool results (spec zot 4.1) ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_error", [False, True])
def test_text_and_images_come_through(is_error: bool) -> None:
    assert result(text("HW 02:10"), is_error=is_error) == ToolResult((TextBlock("HW 02:10"),), is_error)
    both = result(text("a"), ContentBlock("image", mime_type="image/png", data="AAH/"), text(""), text("b"), is_error=is_error)
    assert both == ToolResult((TextBlock("a"), ImageBlock(b"\0\1\xff", "image/png"), TextBlock("b")), is_error)


@pytest.mark.req("zot.edge.10", "zot.edge.11")
@pytest.mark.parametrize("blocks", [(), (text(""),), (text(""), text(""))])
def test_where_nothing_is_said_the_model_is_told_so(blocks: tuple[ContentBlock, ...]) -> None:
    assert result(*blocks) == ToolResult.of("(extension returned no content)")


@pytest.mark.req("zot.edge.12")
@pytest.mark.parametrize(("data", "image"), [("", b""), ("AA==", b"\0"), ("+/+/", b"\xfb\xff\xbf"), ("AAAA\nAAAA\r\n", b"\0" * 6)])
def test_an_image_is_base64_of_the_standard_alphabet_with_padding(data: str, image: bytes) -> None:
    assert result(ContentBlock("image", data=data)) == ToolResult((ImageBlock(image),))


@pytest.mark.req("zot.edge.12", "zot.rule.4.1-bad-blocks")
@pytest.mark.parametrize("data", ["AA", "AA=", "AAAA=", "-_-_", "AA==AAAA", "AA A", "=AAA", "é===", "AAAA===="])
def test_an_image_that_cannot_be_decoded_becomes_a_text_and_an_error(data: str) -> None:
    said = result(text("see"), ContentBlock("image", data=data))
    assert said.is_error
    assert said.content[0] == TextBlock("see")
    assert said.text.split("\n")[1].startswith("extension tides/table returned undecodable image: ")


@pytest.mark.req("zot.rule.4.1-bad-blocks")
def test_a_block_of_unknown_type_becomes_a_text() -> None:
    assert result(ContentBlock("audio", data="AA==")) == ToolResult.of('[unknown block type "audio" from extension tides]')
    assert not result(ContentBlock("")).is_error


# -- interceptors (spec zot 4.4) ------------------------------------------------------------------------------------------------


def verdict(event: str = "tool_call", asked: object = None, **said: Any) -> Pass | Refuse | Rewrite:
    if "modified_args" in said:
        said["modified_args"] = Raw(said["modified_args"])
    return neutral.read_verdict(event, EventInterceptResponse("1", **said), asked)


@pytest.mark.parametrize("event", ["tool_call", "turn_start", "assistant_message"])
def test_nothing_said_is_the_one_pass(event: str) -> None:
    assert verdict(event) is neutral.PASS
    assert verdict(event, reason="for no block") is neutral.PASS


@pytest.mark.req("zot.edge.16")
@pytest.mark.parametrize(
    ("event", "default"),
    [
        ("tool_call", "tool call refused by extension guard"),
        ("turn_start", "turn blocked by extension guard"),
        ("assistant_message", ""),
    ],
)
def test_a_block_has_its_reason_or_the_default(event: str, default: str) -> None:
    assert verdict(event, block=True) == Refuse(default)
    assert verdict(event, block=True, reason="harbour closed") == Refuse("harbour closed")


@pytest.mark.req("zot.edge.15")
@pytest.mark.parametrize("event", ["tool_call", "assistant_message"])
def test_block_wins_over_rewrites(event: str) -> None:
    assert verdict(event, {}, block=True, reason="no", modified_args=b'{"a":1}', replace_text="b") == Refuse("no")
    assert verdict(event, {}, block=True, reason="no", modified_args=b'{"a":1e999}') == Refuse("no")


@pytest.mark.req("zot.ours.4.4-args-objects-only")
def test_new_arguments_are_a_rewrite() -> None:
    assert verdict(asked={"command": "rm"}, modified_args=b'{"command":"ls"}') == Rewrite({"command": "ls"})
    assert verdict(asked={"command": "rm"}, modified_args=b"{}") == Rewrite({})
    assert verdict(asked=[1], modified_args=b'{"a":[1]}') == Rewrite({"a": [1]})
    assert verdict(asked={"a": 1}, modified_args=b'{"a":true}') == Rewrite({"a": True})  # to Python these are equal
    assert verdict(asked={}, modified_args=b'{"a":"\\ud800"}') == Rewrite({"a": "\ufffd"})


@pytest.mark.req("zot.edge.13", "zot.ours.4.4-args-null-absent", "zot.ours.4.4-args-objects-only")
@pytest.mark.parametrize("args", [b"null", b"[]", b'["a"]', b'"text"', b"5", b"true"])
def test_what_is_no_object_is_no_rewrite(args: bytes) -> None:
    assert verdict(asked={"a": 1}, modified_args=args) is neutral.PASS


@pytest.mark.req("zot.edge.14")
@pytest.mark.parametrize("args", [b'{"a":1,"b":{"c":[1,null],"d":"x"}}', b'{ "b": {"d":"\\u0078", "c" : [1, null]},\t"a": 1}'])
def test_the_same_in_other_words_is_no_change(args: bytes) -> None:
    assert verdict(asked={"b": {"c": [1, None], "d": "x"}, "a": 1}, modified_args=args) is neutral.PASS


def test_arguments_that_cannot_be_read_are_a_bad_answer() -> None:
    with pytest.raises(BadFrame, match="modified_args"):
        verdict(asked={}, modified_args=b'{"a":1e999}')


@pytest.mark.parametrize("event", ["turn_start", "assistant_message"])
def test_arguments_count_only_for_tool_calls(event: str) -> None:
    assert verdict(event, modified_args=b'{"a":1}') is neutral.PASS


@pytest.mark.req("zot.rule.4.4-empty-replace")
def test_a_text_replaces_only_a_message_and_an_empty_one_nothing() -> None:
    assert verdict("assistant_message", replace_text="new") == Rewrite("new")
    assert verdict("assistant_message", replace_text="") is neutral.PASS
    assert verdict("tool_call", {}, replace_text="new") is neutral.PASS
    assert verdict("turn_start", replace_text="new") is neutral.PASS


# -- commands (spec zot 4.2) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "wanted"),
    [
        (CommandResponse("1", "prompt", prompt="go"), SubmitPrompt("go")),
        (CommandResponse("1", "prompt", prompt=" \n"), NoAction()),
        (CommandResponse("1", "insert", insert="here"), Insert("here")),
        (CommandResponse("1", "display", display="a\nb"), Display("a\nb", source="tides")),
        (CommandResponse("1", "open_panel", open_panel=PanelSpec("p", "T")), OpenPanel(Panel("p", "T", owner="zot:tides"))),
        (CommandResponse("1", "open_panel"), NoAction()),
        (CommandResponse("1", "noop", prompt="not asked for"), NoAction()),
        (CommandResponse("1", ""), NoAction()),
        (CommandResponse("1", "dance"), CommandError("unknown action dance")),
        (CommandResponse("1", "prompt", prompt="go", error="no tide"), CommandError("no tide")),
    ],
)
def test_what_a_command_wants_done(frame: CommandResponse, wanted: object) -> None:
    assert neutral.to_action(frame, source="tides", owner="zot:tides") == wanted


# -- notices and panels (spec zot 4.5, 4.6) -------------------------------------------------------------------------------------


@pytest.mark.req("zot.frame.notify")
@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("info", "info"),
        ("success", "success"),
        ("warn", "warn"),
        ("error", "error"),
        ("", "info"),
        ("WARN", "info"),
        ("loud", "info"),
    ],
)
def test_a_notice_has_a_known_level(level: str, shown: Any) -> None:
    assert neutral.to_notice(level, "old", "tides") == Notice("old", shown, source="tides")


def test_an_empty_notice_is_none() -> None:
    assert neutral.to_notice("error", "", "tides") is None


@pytest.mark.req("zot.edge.29")
@pytest.mark.parametrize("frame", [PanelRender, PanelRendered])
def test_a_render_keeps_the_title_and_replaces_the_rest(frame: Any) -> None:
    panel = neutral.to_panel(PanelSpec("p", "Tides", ("a", "b"), "esc"), "zot:tides")
    assert panel == Panel("p", "Tides", ("a", "b"), "esc", "zot:tides")
    assert neutral.render_panel(panel, frame("p", "", ("c",), "")) == Panel("p", "Tides", ("c",), "", "zot:tides")
    assert neutral.render_panel(panel, frame("p", "New", (), "f")) == Panel("p", "New", (), "f", "zot:tides")


def test_a_panel_without_a_title_has_the_guests_name() -> None:
    assert neutral.to_panel(PanelSpec("p"), "zot:tides").title == "tides"


def test_there_are_fourteen_keys_and_esc_is_none_of_them() -> None:
    assert len(set(neutral.KEYS)) == 14
    assert "esc" not in neutral.KEYS


# -- events (spec zot 4.3) ------------------------------------------------------------------------------------------------------


def encode_event(event: events.Event) -> dict[str, Any]:
    frame = neutral.to_event(event)
    assert frame is not None
    said: dict[str, Any] = json.loads(encode(frame))
    assert said.pop("type") == "event"
    return said


@pytest.mark.req("zot.frame.event")
@pytest.mark.parametrize(
    ("event", "said"),
    [
        (events.SessionStarted(messages=3), {"event": "session_start"}),
        (events.StepStarted(step=2), {"event": "turn_start", "step": 2}),
        (
            events.ToolCalled(call=ToolCall("bash", {"command": "ls"}, "call_9")),
            {"event": "tool_call", "tool_id": "call_9", "tool_name": "bash", "tool_args": {"command": "ls"}},
        ),
        (events.StepEnded(stop="error", error="why"), {"event": "turn_end", "stop": "error", "error": "why"}),
        (events.StepEnded(stop="tool_use"), {"event": "turn_end", "stop": "tool_use"}),
    ],
)
def test_what_a_guest_is_told(event: events.Event, said: dict[str, Any]) -> None:
    assert encode_event(event) == said


@pytest.mark.req("zot.edge.22")
def test_a_turn_that_ends_normally_stops_with_end() -> None:
    assert encode_event(events.StepEnded()) == {"event": "turn_end", "stop": "end"}


@pytest.mark.req("zot.ours.4.4-text-joined")
def test_the_text_blocks_of_a_message_are_joined_by_newlines() -> None:
    content = (TextBlock("a"), ImageBlock(b""), TextBlock("b"))
    assert encode_event(events.Message(content=content)) == {"event": "assistant_message", "text": "a\nb"}


@pytest.mark.req("zot.edge.18")
def test_a_message_of_tool_calls_only_is_told_without_text() -> None:
    assert encode_event(events.Message()) == {"event": "assistant_message"}


def test_zot_has_no_word_for_the_rest() -> None:
    assert neutral.to_event(events.Text(text="a")) is None
    assert neutral.to_event(events.TurnStarted(prompt="p")) is None
    assert neutral.to_event(events.ToolEnded(call=ToolCall("bash"), result=ToolResult.of("a"))) is None


@pytest.mark.req("zot.rule.9-names")
def test_every_name_of_the_protocol_has_its_neutral_word() -> None:
    assert set(neutral.KINDS) == set(messages.EVENTS)
    assert set(neutral.STAGES) == set(messages.INTERCEPTABLE)
    samples: list[events.Event] = [
        events.SessionStarted(),
        events.StepStarted(step=1),
        events.Message(),
        events.ToolCalled(call=ToolCall("t")),
        events.StepEnded(),
    ]
    for sample in samples:
        assert neutral.KINDS[encode_event(sample)["event"]] == events.event_kind(sample)


def test_absent_arguments_are_the_one_nothing() -> None:
    assert EventInterceptResponse("1").modified_args is NOTHING


@pytest.mark.req("zot.rule.4.1-bad-blocks")
def test_a_block_of_another_type_spoils_nothing_whatever_its_members_are() -> None:
    side = HostSide()
    side.receive(b'{"type":"hello","name":"tides"}\n')
    side.call_tool("table", {}, now=0, timeout=None)
    content = b'[{"type":"json","data":{"a":1},"text":5},{"type":"text","text":"hi"}]'
    [answered] = side.receive(b'{"type":"tool_result","id":"1","content":' + content + b"}\n")
    assert isinstance(answered, Answered)
    assert isinstance(answered.frame, messages.ToolResult)
    result = neutral.to_tool_result(answered.frame, "tides", "tool_call table")
    assert result.text == '[unknown block type "json" from extension tides]\nhi'
