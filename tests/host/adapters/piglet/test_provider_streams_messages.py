"""Conversations in the words of piglet, there and back."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from serai.dialects.piglet.messages import CompactMessage
from serai.host.adapters.piglet.provider_streams import encode_untagged, from_compact, read_message, to_compact, to_guest_args
from serai.model.events import Usage
from serai.model.provider import MessageOrigin, ModelMessage
from serai.model.tools import ImageBlock, TextBlock, ToolCall

AT = "2026-02-03T10:00:00Z"
CALL = ToolCall("weather", {"city": "Bern"}, "t1")
TALK = (
    ModelMessage("user", (TextBlock("look"), ImageBlock(b"png", "image/png")), made=MessageOrigin(AT)),
    ModelMessage(
        "assistant", (TextBlock("I do"),), (CALL,), thinking="hm", made=MessageOrigin(AT, "m1", "acme", Usage(5, 1), "tool_use")
    ),
    ModelMessage("tool", (TextBlock("fog"),), call_id="t1", is_error=True),
)


def plain(raw: Raw) -> Any:
    return msgspec.json.decode(raw)


def test_messages_say_their_role_and_each_item_its_type() -> None:
    user, assistant, result = map(plain, encode_untagged(TALK))
    image = {"type": "image", "data": base64.b64encode(b"png").decode(), "mimeType": "image/png"}
    assert user == {"role": "user", "content": "look", "blocks": [image], "timestamp": AT}
    assert assistant == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "I do"},
            {"type": "tool_call", "id": "t1", "name": "weather", "arguments": {"city": "Bern"}},
        ],
        "model": "m1",
        "provider": "acme",
        "usage": {"inputTokens": 5, "outputTokens": 1, "cacheReadTokens": 0, "cacheWriteTokens": 0, "cost": 0.0},
        "stopReason": "toolUse",
        "timestamp": AT,
    }
    assert result == {
        "role": "tool_result",
        "toolCallId": "t1",
        "toolName": "weather",
        "content": [{"type": "text", "text": "fog"}],
        "isError": True,
        "timestamp": "0001-01-01T00:00:00Z",  # nobody knows
    }


def test_a_result_is_of_the_tool_that_was_called_last_with_its_id() -> None:
    talk: list[ModelMessage] = []
    for name in ("one", "two"):
        talk += [ModelMessage("assistant", calls=(ToolCall(name, {}, "0"),)), ModelMessage("tool", call_id="0")]
    assert [plain(raw).get("toolName") for raw in encode_untagged([*talk, ModelMessage("tool", call_id="9")])] == [
        None,
        "one",
        None,
        "two",
        "",
    ]


def test_a_compactor_gets_each_message_with_its_type_and_they_come_back_the_same() -> None:
    compact = to_compact(TALK)
    assert [message.type for message in compact] == ["user", "assistant", "tool_result"]
    assert "role" not in plain(compact[0].data)
    back = from_compact(compact)
    assert tuple(back) == TALK
    assert back[1].made is not None
    assert (back[1].made.model, back[1].made.provider, back[1].made.usage) == ("m1", "acme", Usage(5, 1))


def test_what_a_compactor_says_that_is_no_message_is_left_out() -> None:
    answered = [
        CompactMessage("user", Raw(b'{"content":"Summary"}')),
        CompactMessage("custom_message", Raw(b'{"role":"user","content":"no"}')),
        CompactMessage("label", Raw(b"{}")),
        CompactMessage("", Raw(b'{"content":"no"}')),
        CompactMessage("assistant", Raw(b'{"content":"no list"}')),
        CompactMessage("assistant", Raw(b"null")),
        CompactMessage("assistant", Raw(b'{"content":[],"usage":{"inputTokens":1e999}}')),
        CompactMessage("tool_result", Raw(b"[]")),
        CompactMessage("assistant", Raw(b'{"content":[{"text":"ok"}]}')),
    ]
    found = from_compact(answered)
    assert [(message.role, message.content) for message in found if message.content] == [
        ("user", (TextBlock("Summary"),)),
        ("assistant", (TextBlock("ok"),)),
    ]


@pytest.mark.parametrize("nothing", [None, []])
def test_no_messages_are_none(nothing: list[CompactMessage] | None) -> None:
    assert from_compact(nothing) == []


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool_result", "", "odd"]), st.binary(max_size=40))))
def test_whatever_a_compactor_says_is_read(answered: list[tuple[str, bytes]]) -> None:
    from_compact([CompactMessage(type, Raw(data)) for type, data in answered])


@pytest.mark.parametrize(("arguments", "args"), [({}, None), (None, None), ({"a": 0}, {"a": 0}), ({"a": None}, {"a": None})])
def test_a_call_without_arguments_has_null(arguments: Any, args: Any) -> None:
    assert to_guest_args(ToolCall("t", arguments)) == args


@pytest.mark.req("piglet.fix.04")
def test_the_keys_of_a_message_match_in_any_case_but_not_those_of_arguments() -> None:
    exact = (
        b'{"content":[{"text":"hi"},{"id":"c","name":"x","arguments":{"Text":1}}],"model":"m","provider":"p",'
        b'"usage":{"inputTokens":5,"outputTokens":1,"cacheReadTokens":0,"cacheWriteTokens":0,"cost":0},"stopReason":"toolUse"}'
    )
    capitals = (
        b'{"Content":[{"Text":"hi"},{"ID":"c","Name":"x","Arguments":{"Text":1}}],"Model":"m","PROVIDER":"p",'
        b'"Usage":{"InputTokens":5,"OutputTokens":1,"CacheReadTokens":0,"CacheWriteTokens":0,"Cost":0},"StopReason":"toolUse"}'
    )
    assert read_message("assistant", Raw(capitals)) == read_message("assistant", Raw(exact))
    both = Raw(b'{"Content":"shouted","content":"said","CONTENT":"shouted"}')
    assert read_message("user", both) == read_message("user", Raw(b'{"content":"said"}'))
    [result] = from_compact([CompactMessage("tool_result", Raw(b'{"ToolCallID":"t1","Content":[{"Text":"fog"}],"IsError":true}'))])
    assert (result.call_id, result.content, result.is_error) == ("t1", (TextBlock("fog"),), True)
