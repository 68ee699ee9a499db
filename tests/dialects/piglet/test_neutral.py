"""Between piglet's objects and the neutral words, both ways."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from serai.dialects.piglet import messages, neutral
from serai.dialects.piglet.messages import (
    ActionResult,
    ContentBlock,
    InterceptorAfterResult,
    InterceptorBeforeResult,
    RegisterShortcutParams,
    RegisterToolParams,
    ToolExecuteResult,
)
from serai.dialects.piglet.methods import METHODS, decode_result
from serai.model import actions
from serai.model.contributions import (
    Command,
    Compactor,
    EventHandler,
    InputTransformer,
    Interceptor,
    MessageHook,
    Pass,
    PromptSection,
    Provider,
    Refuse,
    Rewrite,
    Shortcut,
)
from serai.model.tools import Block, ImageBlock, OtherBlock, TextBlock, ToolResult, ToolSpec
from tests.support.piglet.message_strategies import opaque, text

PNG = b"\x89PNG"


def tool_result(**result: object) -> ToolResult:
    return neutral.to_tool_result(decode_result("tool/execute", json.dumps(result).encode()))


# -- registrations --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "offered"),
    [
        (messages.RegisterCommandParams("c", "d", immediate=True), Command("c", "d", immediate=True)),
        (messages.RegisterPromptSectionParams("t", "c", 4, 5), PromptSection("t", "c", 4, 5)),
        (
            messages.RegisterInterceptorParams("i", 2000),
            Interceptor("i", frozenset({"tool_call", "tool_result"}), 2000, "closed"),
        ),
        (messages.RegisterEventHandlerParams("h", 3, ["EventTurnEnd"]), EventHandler("h", frozenset({"EventTurnEnd"}), 3)),
        (messages.RegisterShortcutParams("Shift+ctrl+G", "d"), Shortcut("ctrl+shift+g", "d")),
        (messages.RegisterMessageHookParams("m", 1), MessageHook("m", 1)),
        (messages.RegisterInputTransformerParams("x", 2), InputTransformer("x", 2)),
        (messages.RegisterCompactorParams("c", 50000), Compactor("c", 50000)),
        (messages.RegisterProviderParams("anthropic"), Provider("anthropic")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_registration_has_its_neutral_word(params: messages.Wire, offered: object) -> None:
    assert neutral.find_fault(params) == ""
    assert neutral.to_contribution(params) == offered


def test_only_registrations_offer_something() -> None:
    with pytest.raises(TypeError, match="AbortParams registers nothing"):
        neutral.to_contribution(messages.AbortParams())


@pytest.mark.req("piglet.edge.15")
@pytest.mark.parametrize("events", [None, []])
def test_no_events_are_all_events(events: list[str] | None) -> None:
    assert neutral.to_contribution(messages.RegisterEventHandlerParams("h", 0, events)) == EventHandler("h")


@pytest.mark.parametrize(
    "schema",
    [{}, {"type": "array"}, {"type": "object", "properties": {"Name": {"$ref": "#/x"}}, "X-odd": [1]}, {"oneOf": []}],
)
def test_a_tools_schema_is_passed_on_unmodified(schema: dict[str, Any]) -> None:
    params = RegisterToolParams("t", "d", schema, "hint", deferred=True, interrupt_behavior="block")
    assert neutral.to_contribution(params) == ToolSpec("t", "d", schema, "hint", deferred=True, interrupt="block")


def test_a_tool_without_a_schema_takes_any_object() -> None:
    assert neutral.to_contribution(RegisterToolParams("t")) == ToolSpec("t", schema={"type": "object"})


@pytest.mark.parametrize("behavior", ["", "cancel", "BLOCK", "other"])
def test_anything_but_block_means_cancel(behavior: str) -> None:
    offered = neutral.to_contribution(RegisterToolParams("t", interrupt_behavior=behavior))
    assert isinstance(offered, ToolSpec)
    assert offered.interrupt == "cancel"


@pytest.mark.parametrize(("schema", "taken"), [(True, {"type": "object"}), (False, {"not": {}})])
def test_a_schema_may_be_true_or_false(schema: bool, taken: dict[str, object]) -> None:
    params = RegisterToolParams("t", parameters=schema)
    assert neutral.find_fault(params) == ""
    assert neutral.to_contribution(params) == ToolSpec("t", "", taken)


@pytest.mark.parametrize("schema", [[1], "object", 7])
def test_parameters_that_are_no_object_are_refused(schema: object) -> None:
    assert "no JSON object" in neutral.find_fault(RegisterToolParams("t", parameters=schema))


@pytest.mark.parametrize(
    ("key", "normal"),
    [
        ("ctrl+g", "ctrl+g"),
        ("CTRL+G", "ctrl+g"),
        ("shift+alt+ctrl+z", "ctrl+alt+shift+z"),
        (" alt+a ", "alt+a"),
        ("g", None),
        ("ctrl+1", None),
        ("ctrl+gg", None),
        ("ctrl+", None),
        ("ctrl+ctrl+g", None),
        ("super+g", None),
        ("ctrl g", None),
        ("ctrl+é", None),
        ("", None),
        ("+", None),
        ("ctrl++", None),
    ],
)
def test_a_key_has_one_spelling(key: str, normal: str | None) -> None:
    assert neutral.parse_shortcut_key(key) == normal
    assert bool(neutral.find_fault(RegisterShortcutParams(key))) == (normal is None)


@given(st.text(alphabet="ctrlalshif+ gz1", max_size=16) | text)
def test_a_key_in_its_one_spelling_stays_so(key: str) -> None:
    normal = neutral.parse_shortcut_key(key)
    assert normal is None or neutral.parse_shortcut_key(normal) == normal


# -- tools ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.rule.tool-error-prefix")
@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"content": [{"type": "text", "text": "no"}], "errorCode": "IO_ERROR"}, "[error:IO_ERROR] no"),
        ({"content": [{"type": "text", "text": "no"}], "errorCode": "X", "errorHint": "try"}, "[error:X] no\nhint: try"),
        ({"content": [{"type": "text", "text": "[error:Y] no"}], "errorCode": "X", "errorHint": "try"}, "[error:Y] no"),
        ({"content": [{"type": "text", "text": "no"}], "errorHint": "try"}, "no"),
        ({"content": [{"type": "odd", "text": "no"}], "errorCode": "X"}, "[error:X] no"),
        ({"content": [{"type": "text", "text": ""}], "errorCode": "X"}, "[error:X] "),
    ],
)
def test_a_code_stands_before_the_first_text(result: dict[str, object], said: str) -> None:
    read = tool_result(**result)
    assert read.content == (TextBlock(said),)
    assert (read.code, read.hint) == (result.get("errorCode", ""), result.get("errorHint", ""))


@pytest.mark.req("piglet.rule.tool-error-prefix")
def test_a_code_stands_before_a_first_text_only() -> None:
    image = {"type": "image", "data": b64encode(PNG).decode(), "mime": "image/png"}
    read = tool_result(content=[image, {"type": "text", "text": "a"}], errorCode="X")
    assert read.content == (ImageBlock(PNG, "image/png"), TextBlock("a"))
    assert tool_result(content=[], errorCode="X") == ToolResult((), code="X")
    assert tool_result(content=None, errorCode="X", isError=True) == ToolResult((), is_error=True, code="X")


def test_is_error_counts() -> None:
    assert tool_result(content=[{"type": "text", "text": "a"}], isError=True) == ToolResult((TextBlock("a"),), is_error=True)
    assert not tool_result(content=[{"type": "text", "text": "a"}]).is_error


@pytest.mark.req("piglet.rule.tool-unknown-block")
@pytest.mark.parametrize("kind", ["", "Text", "audio", "tool_use"])
def test_a_block_of_unknown_type_is_its_text(kind: str) -> None:
    assert tool_result(content=[{"type": kind, "text": "a", "data": "b"}]).content == (TextBlock("a"),)


@pytest.mark.req("piglet.edge.01")
def test_blocks_with_capital_keys_are_the_same_content() -> None:
    data = b64encode(PNG).decode()
    capital = [{"Type": "text", "Text": "a", "Data": "", "Mime": ""}, {"Type": "image", "Text": "", "Data": data, "Mime": "m"}]
    lower = [{"type": "text", "text": "a"}, {"type": "image", "data": data, "mime": "m"}]
    assert tool_result(Content=capital) == tool_result(content=lower) == ToolResult((TextBlock("a"), ImageBlock(PNG, "m")))


@pytest.mark.parametrize("data", ["!", "aGk", "aGk===", "aG=k"])
def test_an_image_that_cannot_be_decoded_is_told_and_an_error(data: str) -> None:
    read = tool_result(content=[{"type": "image", "data": data, "mime": "m"}])
    assert read.is_error
    assert read.text.startswith("[an image that cannot be decoded: ")


blocks = st.builds(TextBlock, text) | st.builds(ImageBlock, st.binary(max_size=8), text)


@given(st.lists(blocks, max_size=4))
def test_blocks_go_both_ways(content: list[Block]) -> None:
    assert neutral.to_blocks(neutral.to_content_blocks(content)) == tuple(content)


def test_what_piglet_has_no_block_for_is_text() -> None:
    assert neutral.to_content_blocks([OtherBlock("audio", {"a": [1]})]) == [ContentBlock("text", '{"a":[1]}')]


# -- interceptors ---------------------------------------------------------------------------------------------------------------


def before(answer: bytes, asked: object = None) -> object:
    return neutral.read_before(decode_result("interceptor/before", answer), "guard", {"a": 1} if asked is None else asked)


@pytest.mark.parametrize("answer", [b"{}", b"null", b'{"allow":false}', b'{"allow":null}', b'{"args":{"a":2}}', b'{"Allow":false}'])
def test_without_allow_a_call_is_blocked_and_that_is_no_error(answer: bytes) -> None:
    assert before(answer) == Refuse("blocked by interceptor: guard", is_error=False)


def test_the_preview_is_that_of_the_answer_alone() -> None:
    assert before(b'{"allow":false,"preview":"no deletion"}') == Refuse("no deletion", is_error=False)
    assert before(b'{"allow":false}') == Refuse("blocked by interceptor: guard", is_error=False)
    assert before(b'{"allow":true,"preview":"x"}') == Pass()


@pytest.mark.parametrize("answer", [b'{"allow":true}', b'{"allow":true,"args":null}', b'{"allow":true,"args":{"a":1}}'])
def test_arguments_that_are_null_or_the_same_change_nothing(answer: bytes) -> None:
    assert before(answer) == Pass()


def test_half_a_surrogate_pair_is_what_it_becomes_on_the_wire() -> None:
    said = {"b": 1, "a": "x\ufffd"}
    assert neutral.read_before(InterceptorBeforeResult(True, said), "guard", {"a": "x\udc80", "b": 1}) == Pass()
    assert neutral.read_before(InterceptorBeforeResult(True, said), "guard", {"a": "y\udc80", "b": 1}) == Rewrite(said)


@pytest.mark.parametrize("args", [{}, {"a": 1.5}, {"a": True}, {"A": 1}])
def test_other_arguments_take_the_place_of_those_asked_about(args: dict[str, object]) -> None:
    verdict = before(json.dumps({"allow": True, "args": args}).encode())
    assert isinstance(verdict, Rewrite)
    assert json.dumps(verdict.value) == json.dumps(args)


SHOWN = ToolResult((TextBlock("long text"), ImageBlock(PNG, "m")), code="X")


def after(details: Any, shown: ToolResult = SHOWN) -> object:
    return neutral.read_after(InterceptorAfterResult(details), shown)


def test_without_details_the_content_is_shown_and_given_back_changes_nothing() -> None:
    details = neutral.build_details(ToolResult((TextBlock("a"),), is_error=True))
    assert details == {"content": [{"type": "text", "text": "a"}], "isError": True}
    assert after(neutral.build_details(SHOWN)) == Pass()
    assert after(None) == Pass()
    assert after(neutral.build_details(SHOWN) | {"isError": 7}) == Pass()


@pytest.mark.parametrize(
    "details",
    [
        {"content": [{"type": "text", "text": "short"}]},
        {"content": [{"Type": "text", "Text": "short", "Data": "", "Mime": ""}], "isError": False, "saved": 3},
        {"content": [{"text": "short"}]},
    ],
)
def test_a_content_list_replaces_what_the_model_sees(details: object) -> None:
    assert after(details) == Rewrite(ToolResult((TextBlock("short"),), code="X"))


@pytest.mark.parametrize("details", [{"content": "short"}, {"output": "short"}, {"content": None, "output": "short"}])
def test_a_string_replaces_the_text_the_model_sees(details: object) -> None:
    assert after(details) == Rewrite(ToolResult((TextBlock("short"), ImageBlock(PNG, "m")), code="X"))


@pytest.mark.parametrize("details", [{"files": 1}, {"content": 7}, {"content": [7]}, {"output": ["x"]}, [1], "short", 0, False])
def test_anything_else_is_metadata(details: object) -> None:
    assert after(details) == Rewrite(msgspec.structs.replace(SHOWN, details=details))


def test_details_of_a_tool_stay_metadata() -> None:
    shown = ToolResult((TextBlock("edited"),), details={"files": 1})
    assert neutral.build_details(shown) == {"files": 1}
    assert after({"files": 1}, shown) == Pass()
    for details in ({"files": 2}, {"content": "other"}, {"content": [{"type": "text", "text": "x"}]}, None):
        assert after(details, shown) == Rewrite(ToolResult((TextBlock("edited"),), details=details))


@given(opaque)
def test_whatever_an_after_interceptor_answers_is_a_verdict(details: Any) -> None:
    assert isinstance(after(details), Pass | Rewrite)
    assert isinstance(after(details, ToolResult.of("a")), Pass | Rewrite)


# -- actions --------------------------------------------------------------------------------------------------------------------


def action(type: str, payload: object) -> actions.Action | None:
    return neutral.to_action(ActionResult(type, Raw(json.dumps(payload).encode())), "weather")


@pytest.mark.parametrize(
    ("type", "payload", "wanted"),
    [
        ("notify", {"message": "hi"}, actions.Notice("hi", "info", source="weather")),
        ("notify", {"Message": "hi", "LEVEL": "warn"}, actions.Notice("hi", "warn", source="weather")),
        ("notify", {"message": "hi", "level": "error"}, actions.Notice("hi", "error", source="weather")),
        ("notify", {"message": "hi", "level": "loud"}, actions.Notice("hi", "info", source="weather")),
        ("notify", {"message": ""}, actions.NoAction()),
        ("showMessage", {"Text": "a\nb"}, actions.Display("a\nb", source="weather")),
        ("setSessionTitle", {"Title": "T"}, actions.SetTitle("T")),
        ("setSessionTitle", {"title": ""}, actions.NoAction()),
        ("setSessionTitle", {"title": " \n"}, actions.NoAction()),
        ("setStatus", {"key": "k", "TEXT": "t"}, actions.SetStatus("k", "t")),
        ("setStatus", {"key": "k", "text": None}, actions.SetStatus("k", "")),
        ("attachImage", {"data": "iVBORw==", "MIMETYPE": "m"}, actions.AttachImage(ImageBlock(PNG, "m"))),
        ("detachImage", None, actions.DetachImage()),
        ("detachImage", {"x": 1}, actions.DetachImage()),
        ("sendMessage", {"content": "/go"}, actions.SubmitPrompt("/go")),
        ("sendMessage", {"content": "  "}, actions.NoAction()),
        ("quit", None, actions.Quit()),
    ],
)
def test_each_action_has_its_neutral_word(type: str, payload: object, wanted: actions.Action) -> None:
    assert action(type, payload) == wanted


@pytest.mark.parametrize(
    ("type", "payload"),
    [
        ("", {}),
        ("Notify", {"message": "hi"}),
        ("runCode", {"x": 1}),
        ("notify", {"message": 7}),
        ("notify", "hi"),
        ("setStatus", []),
        ("attachImage", {"data": "!"}),
        ("attachImage", {"data": "éééé"}),
        ("quit", 7),
    ],
)
def test_an_unknown_action_or_a_bad_payload_is_none(type: str, payload: object) -> None:
    assert action(type, payload) is None


def test_an_action_without_a_payload_has_an_empty_one() -> None:
    assert neutral.to_action(ActionResult("quit"), "weather") == actions.Quit()
    assert neutral.to_action(ActionResult("setStatus"), "weather") == actions.SetStatus("", "")


@given(st.sampled_from(["notify", "showMessage", "setStatus", "attachImage", "sendMessage", "quit"]) | text, opaque)
def test_whatever_an_action_says_is_an_action_or_none(type: str, payload: Any) -> None:
    assert action(type, payload) is None or isinstance(action(type, payload), actions.Action)


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        (messages.NotifyParams("hi", "warn"), actions.Notice("hi", "warn", source="weather")),
        (messages.NotifyParams(""), actions.NoAction()),
        (messages.ShowMessageParams("hi"), actions.Display("hi", source="weather")),
        (messages.SetWidgetParams("k", "below-status", "c"), actions.SetWidget("k", "below-status", "c")),
        (messages.SetWidgetParams("k", "above-input", ""), actions.SetWidget("k", "above-input", "")),
        (messages.SetWidgetParams("k", "elsewhere", "c"), actions.SetWidget("k", "above-input", "c")),
        (
            messages.ShowOverlayParams("k", "t", "c", "Top_right", "50%"),
            actions.ShowOverlay(actions.Overlay("k", "t", "c", actions.Anchor("right", "top"), actions.Width(50))),
        ),
        (messages.ShowOverlayParams("k", content="c"), actions.ShowOverlay(actions.Overlay("k", content="c"))),
        (messages.CloseOverlayParams("k"), actions.CloseOverlay("k")),
        (messages.SetInputTextParams("/x "), actions.SetInput("/x ")),
        (messages.SteerParams("s"), None),
        (messages.SendMessageParams("s"), None),
        (messages.AbortParams(), None),
        (messages.LogParams("info", "m"), None),
    ],
)
def test_what_a_guest_wants_seen_is_an_action_and_the_rest_is_none(params: messages.Wire, wanted: actions.Action | None) -> None:
    [method] = [method for method, row in METHODS.items() if row.params is type(params)]
    assert neutral.notification_to_action(method, params, "weather") == wanted


def test_tool_results_without_content_are_empty() -> None:
    assert neutral.to_tool_result(ToolExecuteResult()) == ToolResult()
