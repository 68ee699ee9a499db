"""Messages in and out (spec piglet 6.2)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from serai.model.events import Usage
from serai.model.provider import ModelMessage
from serai.model.tools import ImageBlock, OtherBlock, TextBlock, ToolCall
from serai.store import from_model_message, to_model_message
from serai.store.messages import (
    INTERRUPTED,
    AssistantMessage,
    Item,
    StoredImage,
    StoredMessage,
    StoredText,
    StoredThinking,
    StoredToolCall,
    StoredUnknown,
    TokenUsage,
    ToolResultMessage,
    UserMessage,
    decode_message,
    decode_untagged,
    encode,
    get_role,
    place_results,
)
from serai.wire import codec
from tests.support.stored_sessions import TS, short

ZERO = "0001-01-01T00:00:00Z"


def raw(data: Any) -> Raw:
    return Raw(json.dumps(data).encode())


def decode(type: str, data: Any) -> StoredMessage:
    return decode_message(type, raw(data))


@pytest.mark.req("piglet.rule.message-content")
@pytest.mark.parametrize(
    ("item", "is_"),
    [
        ({"text": "a"}, StoredText("a")),
        ({"thinking": "b"}, StoredThinking("b")),
        ({"text": "a", "thinking": "b"}, StoredThinking("b")),
        ({"id": "1", "name": "read", "arguments": {"p": 1}}, StoredToolCall("1", "read", {"p": 1})),
        ({"id": "1", "arguments": None}, StoredToolCall("1", "", None)),
        ({"name": "read", "text": "a", "thinking": "b"}, StoredToolCall("", "read", None)),
        ({"id": "1", "name": "x", "arguments": {}, "providerMeta": {"s": 1}}, StoredToolCall("1", "x", {}, {"s": 1})),
        ({"id": "", "name": "", "thinking": ""}, StoredText("")),
        ({"id": None, "name": None, "thinking": None, "text": None}, StoredText("")),
        ({"type": "tool_call", "text": "the type is not asked"}, StoredText("the type is not asked")),
        ({}, StoredText("")),
    ],
)
def test_an_item_of_an_assistant_is_told_by_what_is_not_empty(item: Any, is_: Item) -> None:
    message = decode("assistant", {"content": [item]})
    assert isinstance(message, AssistantMessage)
    assert message.content == (is_,)


@pytest.mark.req("piglet.rule.message-content")
@pytest.mark.parametrize(("type", "key"), [("user", "blocks"), ("tool_result", "content")])
def test_an_item_of_a_user_or_a_tool_is_an_image_or_a_text(type: str, key: str) -> None:
    blocks = [{"data": "QQ==", "mimeType": "image/png"}, {"text": "a"}, {"mimeType": "", "text": "b"}, {"id": "1", "text": "c"}]
    message = decode(type, {key: blocks})
    assert getattr(message, key) == (StoredImage("QQ==", "image/png"), StoredText("a"), StoredText("b"), StoredText("c"))


@pytest.mark.parametrize("item", [{"type": "audio", "clip": 1}, {"text": 5}, 7, None, "text", ["a"]])
def test_an_item_that_nobody_knows_comes_out_as_it_went_in(item: Any) -> None:
    message = decode("assistant", {"content": [{"text": "a"}, item]})
    assert isinstance(message, AssistantMessage)
    assert isinstance(message.content[1], StoredUnknown)
    assert json.loads(bytes(encode(message)))["content"][1] == item


@pytest.mark.req("piglet.rule.message-untagged")
@pytest.mark.parametrize(
    ("data", "role"),
    [
        ({"content": "hi"}, "user"),
        ({"blocks": []}, "user"),
        ({}, "user"),
        ({"content": None, "model": ""}, "user"),
        ({"content": []}, "assistant"),
        ({"content": [{"text": "a"}]}, "assistant"),
        ({"provider": "p"}, "assistant"),
        ({"model": "m"}, "assistant"),
        ({"toolCallId": "c", "content": []}, "tool_result"),
        ({"toolCallId": "c", "model": "m"}, "tool_result"),
        ({"toolCallId": "", "content": []}, "assistant"),
    ],
)
def test_an_untagged_message_is_told_by_its_keys(data: Any, role: str) -> None:
    assert get_role(decode_untagged(raw(data))) == role


@pytest.mark.req("piglet.fix.21")
def test_a_message_that_stands_alone_says_its_role_and_every_item_its_type() -> None:
    forms = [
        json.loads(bytes(encode(message, tagged=False)))
        for message in (
            UserMessage("hi", (StoredImage("QQ==", "image/png"),)),
            AssistantMessage((StoredText("a"), StoredThinking("b"), StoredToolCall("1", "read"))),
            ToolResultMessage("1", "read", (StoredText("c"),)),
        )
    ]
    assert [form["role"] for form in forms] == ["user", "assistant", "tool_result"]
    items = [
        item["type"] for form in forms for item in form.get("blocks", []) + (form["content"] if form["role"] != "user" else [])
    ]
    assert items == ["image", "text", "thinking", "tool_call", "text"]
    assert "role" not in json.loads(bytes(encode(UserMessage("hi"))))


def test_the_keys_are_those_of_the_protocol() -> None:
    full = AssistantMessage(
        (StoredToolCall("1", "read", None, {"s": 1}),), "m", "p", TokenUsage(1, 2, 3, 4, 0.5), "error", "why", TS
    )
    assert json.loads(bytes(encode(full))) == {
        "content": [{"type": "tool_call", "id": "1", "name": "read", "arguments": None, "providerMeta": {"s": 1}}],
        "model": "m",
        "provider": "p",
        "usage": {"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 3, "cacheWriteTokens": 4, "cost": 0.5},
        "stopReason": "error",
        "error": "why",
        "timestamp": TS,
    }
    assert json.loads(bytes(encode(UserMessage()))) == {"timestamp": ZERO}
    assert json.loads(bytes(encode(ToolResultMessage("1", "read")))) == {
        "toolCallId": "1",
        "toolName": "read",
        "content": [],
        "isError": False,
        "timestamp": ZERO,
    }
    assert json.loads(bytes(encode(AssistantMessage()))).keys() == {
        "content",
        "model",
        "provider",
        "usage",
        "stopReason",
        "timestamp",
    }


def test_nulls_and_whole_floats_are_what_is_not_there_and_counts() -> None:
    data = {"content": None, "model": None, "usage": {"inputTokens": 12.0, "cost": None}, "stopReason": None, "timestamp": None}
    assert decode("assistant", data) == AssistantMessage((), usage=TokenUsage(12))
    assert decode("assistant", {"stopReason": "a new one"}) == AssistantMessage()


@pytest.mark.parametrize("data", [5, [], "text", {"content": 5}, {"timestamp": 1}])
def test_data_that_is_no_message_is_refused(data: Any) -> None:
    for type in ("user", "assistant", "tool_result"):
        with pytest.raises(codec.BAD_INPUT):
            decode(type, data)


def test_an_odd_detail_does_not_cost_the_message() -> None:
    odd = {"content": [{"text": "said"}], "model": 5, "usage": "much", "stopReason": "stop", "timestamp": []}
    assert decode("assistant", odd) == AssistantMessage((StoredText("said"),), stop_reason="stop")
    result = {"toolCallId": "c", "content": [{"text": "r"}], "isError": "yes", "code": 7}
    assert decode("tool_result", result) == ToolResultMessage("c", "", (StoredText("r"),))
    with pytest.raises(codec.BAD_INPUT):
        decode("tool_result", result | {"toolCallId": 5})


def test_text_that_no_utf8_has_is_replaced() -> None:
    assert decode_message("user", Raw(b'{"content":"a\xff"}')) == UserMessage("a\ufffd")
    assert encode(UserMessage("a\ud800b", (), TS)) == Raw('{"content":"a\ufffdb","timestamp":"%s"}'.encode() % TS.encode())


texts = st.text(max_size=20)
json_data = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(StoredToolCall, texts.filter(bool), texts, st.none() | st.dictionaries(texts, json_data), st.none() | json_data)
parts = st.one_of(st.builds(StoredText, texts), st.builds(StoredThinking, texts.filter(bool)), calls)
blocks = st.one_of(st.builds(StoredText, texts), st.builds(StoredImage, texts, texts.filter(bool)))
kept = st.one_of(
    st.builds(UserMessage, texts, st.lists(blocks).map(tuple), texts.filter(bool)),
    st.builds(
        AssistantMessage,
        st.lists(parts).map(tuple),
        texts,
        texts,
        st.builds(TokenUsage, *(st.integers(0, 2**40),) * 4, st.floats(0, 1e6)),
        st.sampled_from(["stop", "length", "toolUse", "error", "aborted", ""]),
        texts,
        texts.filter(bool),
        st.none() | json_data,
    ),
    st.builds(ToolResultMessage, texts, texts, st.lists(blocks).map(tuple), st.booleans(), texts.filter(bool), texts),
)


@given(kept)
def test_what_is_encoded_is_what_is_decoded(message: StoredMessage) -> None:
    assert decode_message(get_role(message), encode(message)) == message


@given(json_data)
def test_no_data_makes_an_untagged_list_choke(data: Any) -> None:
    try:
        assert decode_untagged(raw(data)) is not None
    except codec.BAD_INPUT:
        pass  # told, and nothing else


# -- as a model sees them

neutral_blocks = st.one_of(
    st.builds(TextBlock, texts), st.builds(ImageBlock, st.binary(max_size=20), texts), st.builds(OtherBlock, texts, json_data)
)
neutral = st.one_of(
    st.builds(ModelMessage, st.just("user"), st.lists(neutral_blocks).map(tuple)),
    st.builds(
        ModelMessage,
        st.just("assistant"),
        st.lists(neutral_blocks).map(tuple),
        st.lists(st.builds(ToolCall, texts, st.dictionaries(texts, json_data), texts.filter(bool))).map(tuple),
        thinking=texts,
        native=st.none() | json_data,
    ),
    st.builds(ModelMessage, st.just("tool"), st.lists(neutral_blocks).map(tuple), call_id=texts, is_error=st.booleans()),
)


@pytest.mark.req("store.message.neutral")
@given(neutral)
def test_what_a_model_said_is_what_it_is_shown_again(message: ModelMessage) -> None:
    stored = from_model_message(message)
    again = decode_message(get_role(stored), encode(stored))
    assert to_model_message(again) == message


@pytest.mark.req("store.message.neutral")
def test_what_a_provider_needs_again_comes_back() -> None:
    signed = {"providerMeta": {"c1": {"signature": "x"}}}
    message = ModelMessage("assistant", (TextBlock("a"),), (ToolCall("read", {}, "c1"),), native=signed)
    stored = from_model_message(
        message, model="m", provider="p", usage=Usage(1, 2, 3, 4, 0.5), stop="tool_use", error="e", timestamp=TS
    )
    assert stored == AssistantMessage(
        (StoredText("a"), StoredToolCall("c1", "read", {}, {"signature": "x"})),
        "m",
        "p",
        TokenUsage(1, 2, 3, 4, 0.5),
        "toolUse",
        "e",
        TS,
    )
    assert to_model_message(stored) == message
    result = from_model_message(ModelMessage("tool", (TextBlock("b"),), call_id="c1", is_error=True), tool="read", timestamp=TS)
    assert result == ToolResultMessage("c1", "read", (StoredText("b"),), True, TS)


def test_an_image_that_is_none_is_shown_as_something_else() -> None:
    assert to_model_message(UserMessage("", (StoredImage("%%%", "image/png"),))).content == (
        OtherBlock("image", {"data": "%%%", "mimeType": "image/png"}),
    )
    assert to_model_message(UserMessage("", (StoredUnknown(Raw(b'{"type":"audio","clip":1}')),))).content == (
        OtherBlock("audio", {"type": "audio", "clip": 1}),
    )


# -- interrupted calls


def call(*ids: str) -> AssistantMessage:
    return AssistantMessage(tuple(StoredToolCall(id, "bash") for id in ids))


def end(id: str) -> ToolResultMessage:
    return ToolResultMessage(id, "bash", (StoredText("ok"),))


@pytest.mark.req("store.message.interrupted")
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([call("a")], ["assistant: [a bash]", f"a: {INTERRUPTED}"]),
        ([call("a"), end("a")], ["assistant: [a bash]", "a: ok"]),
        ([call("a", "b"), end("b")], ["assistant: [a bash][b bash]", f"a: {INTERRUPTED}", "b: ok"]),
        ([call("a"), call("a"), end("a")], ["assistant: [a bash]", f"a: {INTERRUPTED}", "assistant: [a bash]", "a: ok"]),
        ([call("a"), UserMessage("x"), end("a")], ["assistant: [a bash]", "a: ok", "user: x"]),
        (
            [call("a"), call("b"), end("b"), UserMessage("x"), end("a")],
            ["assistant: [a bash]", "a: ok", "assistant: [b bash]", "b: ok", "user: x"],
        ),
        ([call("a", "a"), end("a")], ["assistant: [a bash][a bash]", f"a: {INTERRUPTED}", "a: ok"]),
        ([call("a"), end("a"), end("a")], ["assistant: [a bash]", "a: ok", "a: ok"]),
        ([end("a"), call("a")], ["a: ok", "assistant: [a bash]", f"a: {INTERRUPTED}"]),
    ],
)
def test_a_call_without_a_result_gets_one_right_after_it(messages: list[StoredMessage], expected: list[str]) -> None:
    found = place_results(messages)
    assert [short(message) for message in found] == expected
    assert all(m.is_error == (m.content[0] == StoredText(INTERRUPTED)) for m in found if isinstance(m, ToolResultMessage))


def test_messages_are_values() -> None:
    with pytest.raises(AttributeError):
        UserMessage("a").content = "b"  # type: ignore[misc]
    assert msgspec.structs.replace(UserMessage("a"), content="b") == UserMessage("b")
