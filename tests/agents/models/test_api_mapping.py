"""What becomes of a request in each API, and of events that the fakes do not send: the parts without IO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.agents.models import anthropic_api, openai_chat, openai_responses
from serai.agents.models.api_provider import (
    AnswerBuilder,
    StreamDecoder,
    ToolNameMap,
    add_price,
    build_schema,
    clean_id,
    parse_arguments,
)
from serai.agents.models.http_client import EndpointErrors
from serai.errors import ModelFailed
from serai.limits import Limits
from serai.model.events import Usage
from serai.model.provider import Completion, Cost, Model, ModelMessage, ModelOptions, ModelRequest
from serai.model.tools import OtherBlock, TextBlock, ToolCall, ToolSpec
from tests.support.profiles import examples

MODEL = Model("m", api="openai", provider="google", reasoning=True, max_tokens=10_000)
FOLDINGS: dict[str, Callable[[AnswerBuilder], StreamDecoder]] = {
    "anthropic": anthropic_api.AnthropicDecoder,
    "openai": openai_chat.OpenAIChatDecoder,
    "openai-responses": openai_responses.OpenAIResponsesDecoder,
}


def request(*messages: ModelMessage, model: Model = MODEL, **options: Any) -> ModelRequest:
    return ModelRequest(model, messages, options=ModelOptions(**options))


def fold_events(api: str, *events: dict[str, Any] | bytes, model: Model = MODEL) -> Completion:
    decoder = FOLDINGS[api](AnswerBuilder(request(model=model), EndpointErrors("m", Limits())))
    for event in events:
        decoder.feed(event if isinstance(event, bytes) else msgspec.json.encode(event))
    return decoder.answer.build()


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


@pytest.mark.req("resident.models.compatible")
def test_calls_of_servers_that_give_no_index_or_the_same_to_all_are_kept_apart() -> None:
    one = {"id": "a", "function": {"name": "x", "arguments": '{"n":'}}
    same = fold_events(
        "openai",
        delta(tool_calls=[{"index": 0, **one}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]),
        delta(tool_calls=[{"index": 0, "id": "b", "function": {"name": "y", "arguments": "{}"}}]),
    )
    none = fold_events(
        "openai",
        delta(tool_calls=[one]),
        delta(tool_calls=[{"function": {"arguments": "1}"}}]),
        delta(tool_calls=[{"id": "b", "function": {"name": "y", "arguments": "{}"}}]),
    )
    for completion in (same, none):
        assert completion.message.calls == (ToolCall("x", {"n": 1}, "a"), ToolCall("y", {}, "b"))
        assert completion.stop == "tool_use"


@pytest.mark.req("resident.models.compatible")
def test_calls_without_an_id_or_with_one_twice_get_their_own() -> None:
    calls = [{"index": n, "id": id, "function": {"name": "x"}} for n, id in enumerate(["", "", "a", "a"])]
    completion = fold_events("openai", delta(tool_calls=calls[:2]), *(delta(tool_calls=[call]) for call in calls[2:]))
    ids = [call.id for call in completion.message.calls]
    assert len(set(ids)) == len(ids) == 4
    assert ids[2] == "a"
    assert all(ids)
    assert [call.arguments for call in completion.message.calls] == [{}] * 4


@pytest.mark.req("resident.models.compatible")
def test_thinking_of_compatible_servers_is_known_by_both_its_names() -> None:
    completion = fold_events("openai", delta(reasoning_content="a"), delta(reasoning="b"), delta(content="c", reasoning=None))
    assert completion.message.thinking == "ab"
    assert completion.message.content == (TextBlock("c"),)


@pytest.mark.req("resident.models.replay")
def test_what_a_provider_gave_with_a_call_is_sent_again_to_it_alone() -> None:
    extra = {"google": {"thought_signature": "sig"}}
    call = {"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}, "extra_content": extra}
    message = fold_events("openai", delta(tool_calls=[call])).message
    (sent,) = openai_chat.encode_request(request(message))["messages"]
    assert sent["tool_calls"][0]["extra_content"] == extra
    other = msgspec.structs.replace(MODEL, provider="acme")
    (plain,) = openai_chat.encode_request(request(message, model=other))["messages"]
    assert "extra_content" not in plain["tool_calls"][0]
    changed = msgspec.structs.replace(message, calls=(*message.calls, ToolCall("y", {}, "b")))
    assert "extra_content" not in str(openai_chat.encode_request(request(changed)))  # somebody has changed the calls


@pytest.mark.req("resident.models.usage")
def test_what_came_from_the_cache_is_not_counted_twice() -> None:
    chat = {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}}
    assert fold_events("openai", chat).usage == Usage(40, 7, 60)
    details = {"cached_tokens": 60, "cache_write_tokens": 10}
    response = {"usage": {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": details}}
    assert fold_events("openai-responses", {"type": "response.completed", "response": response}).usage == Usage(30, 7, 60, 10)
    start = {"usage": {"input_tokens": 40, "output_tokens": 1, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 5}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
    assert fold_events("anthropic", {"type": "message_start", "message": start}, end).usage == Usage(40, 7, 60, 5)


@pytest.mark.req("resident.models.usage")
def test_a_price_that_is_not_known_is_not_zero() -> None:
    assert add_price(Usage(1_000_000, 1_000_000), Cost()).cost_usd is None
    assert add_price(Usage(1_000_000, 1_000_000, 2_000_000, 1_000_000), Cost(1, 2, 0.5, 4)).cost_usd == 8.0


def test_items_that_were_not_streamed_are_taken_whole() -> None:
    completion = fold_events(
        "openai-responses",
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "content": [{"text": "hello"}]}},
        {"type": "response.output_item.done", "output_index": 1, "item": {"type": "function_call", "call_id": "a", "name": "x"}},
        {"type": "response.output_item.done", "output_index": 2, "item": {"type": "surprise", "n": 1}},
    )
    assert completion.message.content == (TextBlock("hello"), OtherBlock("surprise", {"type": "surprise", "n": 1}))
    assert completion.message.calls == (ToolCall("x", {}, "a"),)


def test_thinking_that_is_hidden_is_kept_where_it_stood() -> None:
    model = Model("m", api="anthropic", provider="anthropic")
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    begun = [
        {"type": "text", "text": "a"},
        hidden,
        {"type": "tool_use", "id": "t", "name": "x", "input": {"n": 1}},
        {"type": "new"},
    ]
    events = [{"type": "content_block_start", "index": n, "content_block": block} for n, block in enumerate(begun)]
    message = fold_events("anthropic", *events, model=model).message
    assert message.calls == (ToolCall("x", {"n": 1}, "t"),)
    body = anthropic_api.encode_request(request(message, model=model))
    assert [block["type"] for block in body["messages"][0]["content"]] == ["text", "redacted_thinking", "tool_use"]


@pytest.mark.parametrize(
    ("id", "level", "most", "thinking"),
    [
        ("claude-haiku-4-5", "low", 0, {"type": "enabled", "budget_tokens": 2048}),
        ("claude-sonnet-4-5-20250929", "high", 4096, {"type": "enabled", "budget_tokens": 3072}),
        ("claude-haiku-4-5", "high", 1500, None),
        ("claude-opus-5-5", "medium", 0, {"type": "adaptive", "display": "summarized"}),
        ("claude-opus-4-6", "medium", 0, {"type": "adaptive", "display": "summarized"}),
        ("claude-opus-5-5", "off", 0, None),
    ],
)
def test_thinking_is_asked_for_as_the_model_takes_it(id: str, level: str, most: int, thinking: Any) -> None:
    model = Model(id, api="anthropic", provider="anthropic", reasoning=True)
    body = anthropic_api.encode_request(request(model=model, thinking=level, max_tokens=most or None, temperature=0.5))
    assert body.get("thinking") == thinking
    assert ("temperature" in body) == (thinking is None)  # who thinks chooses none
    assert body["max_tokens"] == (most or 8192)
    assert body.get("output_config") == ({"effort": level} if thinking and thinking["type"] == "adaptive" else None)


def test_the_length_of_an_answer_has_the_name_that_the_server_knows() -> None:
    asked = request(max_tokens=50_000)
    assert openai_chat.encode_request(asked)["max_tokens"] == 10_000  # no more than the model can
    assert openai_chat.encode_request(asked, theirs=True)["max_completion_tokens"] == 10_000
    assert openai_responses.encode_request(asked)["max_output_tokens"] == 10_000
    assert "max_tokens" not in openai_chat.encode_request(request())


def test_a_deferred_tool_is_offered_without_its_parameters() -> None:
    schema = {"properties": {"path": {"type": "string"}}}
    assert build_schema(ToolSpec("x", schema=schema)) == {**schema, "type": "object"}
    assert build_schema(ToolSpec("x", schema=schema, deferred=True)) == {"type": "object", "properties": {}}


def test_names_and_ids_become_what_every_api_takes_and_stay_apart() -> None:
    odd = ["a.b", "a:b", "a b", "é" * 100, "", "x" * 65]
    names = ToolNameMap(ToolSpec(name) for name in [*odd, "plain"])
    sent = [names.encode(name) for name in odd]
    assert len(set(sent)) == len(odd)
    assert all(len(name) <= 64 and name.replace("_", "a").replace("-", "a").isalnum() and name.isascii() for name in sent)
    assert [names.decode(name) for name in sent] == odd
    assert names.encode("plain") == names.decode("plain") == "plain"
    assert clean_id("toolu_01-x") == "toolu_01-x"
    assert clean_id("a|b") != clean_id("a b")
    assert len(clean_id("x" * 500)) < 40


@pytest.mark.req("resident.models.names")
def test_a_name_stands_for_one_tool_also_when_another_takes_what_it_would_become() -> None:
    taken: list[str] = []
    for _ in range(3):  # each time somebody takes the name that `weather.get` has now
        tools = [ToolSpec(name) for name in ("weather.get", *taken)]
        taken.append(ToolNameMap(tools).encode("weather.get"))
    every = ["weather.get", *taken]
    for order in (every, every[::-1]):
        names = ToolNameMap(ToolSpec(name) for name in order)
        assert len({names.encode(name) for name in every}) == len(every)
        assert [names.decode(names.encode(name)) for name in every] == every
        assert [names.encode(name) for name in taken] == taken  # who can be called by its name is


@pytest.mark.req("resident.models.tools")
@pytest.mark.parametrize("depth", [50, 99, 100, 970, 5000])
def test_arguments_that_are_nested_too_deep_are_kept_as_text(depth: int) -> None:
    text = '{"a":' + "[" * depth + "]" * depth + "}"
    assert (parse_arguments(text) == text) == (depth >= 100)  # and one level for the object


@pytest.mark.req("resident.models.replay")
def test_what_a_provider_wants_again_is_not_kept_when_it_is_nested_too_deep() -> None:
    nested: Any = "x"
    for _ in range(300):
        nested = [nested]
    claude = Model("m", api="anthropic", provider="anthropic")
    blocks = [{"type": "redacted_thinking", "data": nested}, {"type": "new", "more": nested}]
    events = [{"type": "content_block_start", "index": n, "content_block": block} for n, block in enumerate(blocks)]
    message = fold_events("anthropic", *events, model=claude).message
    assert (message.native, message.content) == (None, (OtherBlock("new", None),))
    call = {"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}, "extra_content": nested}
    assert fold_events("openai", delta(tool_calls=[call])).message.native is None
    stored = ModelMessage(
        "assistant", native={"api": "anthropic", "provider": "anthropic", "order": [{"type": "odd", "n": nested}]}
    )
    assert anthropic_api.encode_request(request(stored, model=claude))["messages"] == []  # as an older session may have it


@pytest.mark.parametrize(
    ("text", "arguments"), [("", {}), (" ", {}), ('{"a": 1}', {"a": 1}), ("[1]", "[1]"), ("{", "{"), ("1", "1")]
)
def test_arguments_are_an_object_or_the_text_that_is_none(text: str, arguments: Any) -> None:
    assert parse_arguments(text) == arguments
    assert parse_arguments("[" * 100_000) == "[" * 100_000


@pytest.mark.parametrize("api", FOLDINGS)
def test_messages_without_anything_to_say_are_not_sent(api: str) -> None:
    empty = (ModelMessage("user", (TextBlock(" "),)), ModelMessage("assistant"), ModelMessage("user", (OtherBlock("x"),)))
    build = {
        "anthropic": anthropic_api.encode_request,
        "openai": openai_chat.encode_request,
        "openai-responses": openai_responses.encode_request,
    }[api]
    body = build(request(*empty, ModelMessage("user", (TextBlock("hi"),))))
    assert len(body["input" if api == "openai-responses" else "messages"]) == 1


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["", "x", "text", "tool_use", "thinking", "message", "reasoning"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "id", "name", "input"]), inner),
    max_leaves=5,
)
TYPES = [
    "message_start", "message_delta", "content_block_start", "content_block_delta", "content_block_stop", "error",
    "response.output_item.added", "response.output_item.done", "response.output_text.delta", "response.completed",
    "response.failed", "response.function_call_arguments.delta", "response.reasoning_summary_part.added",
]  # fmt: skip
FIELDS = [
    "index", "delta", "content_block", "message", "usage", "error", "choices", "item", "response", "output_index", "code",
]  # fmt: skip
EVENT = st.builds(lambda kind, rest: {"type": kind, **rest}, st.sampled_from(TYPES), st.dictionaries(st.sampled_from(FIELDS), JSON))


@pytest.mark.req("resident.models.total")
@pytest.mark.parametrize("api", FOLDINGS)
@settings(max_examples=examples(50))
@given(events=st.lists(EVENT, max_size=6))
def test_whatever_comes_is_an_answer_or_a_clear_failure(api: str, events: list[dict[str, Any]]) -> None:
    decoder = FOLDINGS[api](AnswerBuilder(request(), EndpointErrors("m", Limits())))
    for event in events:
        try:
            decoder.feed(msgspec.json.encode(event))
        except (ModelFailed, ValueError):
            break
    completion = decoder.answer.build()
    assert msgspec.json.encode(completion)
    for build in (anthropic_api.encode_request, openai_chat.encode_request, openai_responses.encode_request):
        assert msgspec.json.encode(build(request(completion.message)))
