"""The Messages API: with the real SDK, and byte by byte."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from serai.testing.models.messages_api import build_count, read
from serai.testing.models.reply import ApiRefusal, dumps
from serai.testing.models.server import FakeModels
from tests.support.model_clients import Clients, Json, body, read_events, send_raw, sse

TOOLS = [{"name": "read", "input_schema": {"type": "object"}}]
PROMPT = """Please look.
>> think first I look
>> say I shall look.
>> call read {"path": "a"}
>> call read {"path": "b"}
>> say They said: $results
"""


def ask(*messages: Json, **more: Any) -> Json:
    return {"model": "fake-1", "max_tokens": 2000, "messages": list(messages), **more}


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def assistant(content: Any) -> Json:
    return {"role": "assistant", "content": content}


def use(id: str, **more: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": "read", "input": {}, **more}


def result(id: str, content: Any = "fine") -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


@pytest.mark.req("resident.fakes.anthropic")
async def test_the_sdk_gets_thinking_text_and_parallel_calls_as_one_message(clients: Clients) -> None:
    """Its own accumulator puts them together, so order, indexes and deltas are as it needs them."""
    async with clients.anthropic.messages.stream(**ask(user(PROMPT), tools=TOOLS)) as stream:
        message = await stream.get_final_message()
    thinking, text, first, second = message.content
    assert thinking.type == "thinking"
    assert (thinking.thinking, bool(thinking.signature)) == ("first I look", True)
    assert text.type == "text"
    assert text.text == "I shall look."
    assert first.type == second.type == "tool_use"
    assert (first.name, first.input, second.input) == ("read", {"path": "a"}, {"path": "b"})
    assert first.id != second.id
    assert message.stop_reason == "tool_use"


@pytest.mark.req("resident.fakes.anthropic", "resident.fakes.steps")
async def test_the_answer_sent_back_with_its_results_gets_the_next_step(clients: Clients) -> None:
    """The whole conversation as the SDK gave it: signature, ids and all."""
    asked = user(PROMPT)
    first = await clients.anthropic.messages.create(**ask(asked, tools=TOOLS))
    calls = [block for block in first.content if block.type == "tool_use"]
    answers = [result(call.id, f"content of {call.input['path']}") for call in calls]
    history = [asked, assistant(first.to_dict()["content"]), user([*answers, {"type": "text", "text": "<system-reminder>x"}])]
    second = await clients.anthropic.messages.create(**ask(*history, tools=TOOLS))
    assert second.content[0].type == "text"
    assert second.content[0].text == "They said: content of a\ncontent of b"
    assert second.stop_reason == "end_turn"


async def test_without_a_stream_it_is_the_same_answer(clients: Clients) -> None:
    """But for the ids, which come from the request."""
    whole = await clients.anthropic.messages.create(**ask(user(PROMPT), tools=TOOLS))
    async with clients.anthropic.messages.stream(**ask(user(PROMPT), tools=TOOLS)) as stream:
        streamed = await stream.get_final_message()
    assert [_without_id(block) for block in whole.content] == [_without_id(block) for block in streamed.content]
    assert whole.stop_reason == streamed.stop_reason
    assert whole.usage.output_tokens == streamed.usage.output_tokens


def _without_id(block: Any) -> Json:
    return {name: value for name, value in block.to_dict().items() if name != "id"}


@pytest.mark.req("resident.fakes.wire")
async def test_the_events_come_in_the_documented_order(server: FakeModels) -> None:
    prompt = ">> think ab\n>> say one two\n>> call read {}"
    status, head, stream = await send_raw(server, "/v1/messages", ask(user(prompt), tools=TOOLS, stream=True))
    assert status == 200
    assert b"content-type: text/event-stream" in head
    assert b"request-id: req_" in head
    found = sse(stream)
    assert [name for name, _ in found] == [data["type"] for _, data in found]
    shape = [(name, data.get("index"), data.get("delta", {}).get("type")) for name, data in found]
    assert shape == [
        ("message_start", None, None),
        ("content_block_start", 0, None),
        ("ping", None, None),
        ("content_block_delta", 0, "thinking_delta"),
        ("content_block_delta", 0, "signature_delta"),
        ("content_block_stop", 0, None),
        ("content_block_start", 1, None),
        ("content_block_delta", 1, "text_delta"),
        ("content_block_delta", 1, "text_delta"),
        ("content_block_stop", 1, None),
        ("content_block_start", 2, None),
        ("content_block_delta", 2, "input_json_delta"),
        ("content_block_delta", 2, "input_json_delta"),
        ("content_block_stop", 2, None),
        ("message_delta", None, None),
        ("message_stop", None, None),
    ]
    start, stopped = found[0][1]["message"], found[-2][1]
    assert (start["content"], start["stop_reason"], start["usage"]["output_tokens"]) == ([], None, 1)
    assert stopped["delta"]["stop_reason"] == "tool_use"
    assert stopped["usage"]["output_tokens"] > 1


async def test_broken_arguments_are_streamed_as_they_stand(clients: Clients) -> None:
    answer = await clients.anthropic.messages.create(**ask(user('>> call read {"path": '), tools=TOOLS), stream=True)
    deltas = [event.delta for event in await read_events(answer) if event.type == "content_block_delta"]
    assert "".join(delta.partial_json for delta in deltas) == '{"path":'


@pytest.mark.parametrize(("said", "reason"), [("length", "max_tokens"), ("refusal", "refusal"), ("pause_turn", "pause_turn")])
async def test_a_script_says_why_the_answer_stops(clients: Clients, said: str, reason: str) -> None:
    message = await clients.anthropic.messages.create(**ask(user(f">> say well\n>> stop {said}")))
    assert message.stop_reason == reason


@pytest.mark.req("resident.fakes.usage")
async def test_what_is_marked_for_the_cache_is_written_first_and_found_later(clients: Clients) -> None:
    system = [{"type": "text", "text": "Be kind. " * 100, "cache_control": {"type": "ephemeral"}}]
    first = (await clients.anthropic.messages.create(**ask(user("hi"), system=system))).usage
    later = (await clients.anthropic.messages.create(**ask(user("hi"), assistant("ho"), user("hi"), system=system))).usage
    assert first.cache_creation_input_tokens == later.cache_read_input_tokens
    assert (first.cache_creation_input_tokens or 0) > 200
    assert (first.cache_read_input_tokens, later.cache_creation_input_tokens) == (0, 0)


async def test_tokens_are_counted_and_models_listed(clients: Clients) -> None:
    little = await clients.anthropic.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hi"}])
    much = await clients.anthropic.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hi" * 400}])
    assert much.input_tokens - little.input_tokens == pytest.approx(200, abs=2)
    assert "fake-1" in [model.id for model in (await clients.anthropic.models.list()).data]


async def test_a_request_for_a_title_gets_no_calls(clients: Clients) -> None:
    """Programs quote the prompt, script and all, where they offer no tools."""
    message = await clients.anthropic.messages.create(**ask(user(PROMPT.replace(">> say I shall look.\n", ""))))
    assert {block.type for block in message.content} == {"thinking"}
    message = await clients.anthropic.messages.create(**ask(user('>> call read {"path": "a"}')))
    assert [block.type for block in message.content] == ["text"]
    assert message.stop_reason == "end_turn"


@pytest.mark.req("resident.fakes.claude-code")
async def test_the_words_of_claude_code_beside_the_prompt_do_not_count_as_the_prompt(clients: Clients) -> None:
    content = [{"type": "text", "text": "<system-reminder>Today is a day.</system-reminder>"}, {"type": "text", "text": "hello"}]
    system = {"role": "system", "content": "in between"}
    message = await clients.anthropic.messages.create(**ask(user(content), system))
    assert message.content[0].type == "text"
    assert message.content[0].text == "You said: hello"


REFUSED: dict[str, tuple[Json, str]] = {
    "no model": ({"max_tokens": 1, "messages": [user("x")]}, "model: Field required"),
    "no max_tokens": ({"model": "m", "messages": [user("x")]}, "max_tokens: Field required"),
    "a max_tokens of 0": (ask(user("x"), max_tokens=0), "max_tokens: "),
    "a max_tokens that is true": (ask(user("x"), max_tokens=True), "max_tokens: "),
    "no messages": ({"model": "m", "max_tokens": 1}, "messages: Field required"),
    "an empty list": (ask(), "messages: at least one message is required"),
    "a message that is none": (ask(user("x"), "y"), "messages.1: "),  # type: ignore[arg-type]
    "an unknown role": (ask({"role": "robot", "content": "x"}), "messages.0.role: "),
    "a role that is no text": (ask({"role": ["user"], "content": "x"}), "messages.0.role: "),
    "no content": (ask({"role": "user"}), "messages.0.content: "),
    "empty content": (ask(user("")), "messages.0: all messages must have non-empty content"),
    "an empty text": (ask(user([{"type": "text", "text": ""}])), "messages: text content blocks must be non-empty"),
    "an empty text in a result": (
        ask(user("x"), assistant([use("a")]), user([result("a", [{"type": "text", "text": ""}])])),
        "messages: text content blocks must be non-empty",
    ),
    "a blank text": (
        ask(user([{"type": "text", "text": " \n"}])),
        "messages: text content blocks must contain non-whitespace text",
    ),
    "an empty system block": (
        ask(user("x"), system=[{"type": "text", "text": ""}]),
        "system: text content blocks must be non-empty",
    ),
    "an unknown block": (ask(user([{"type": "poem"}])), "messages.0.content.0: "),
    "a call by the user": (ask(user([use("a")])), "messages.0.content.0: "),
    "a result by the assistant": (ask(user("x"), assistant([result("a")])), "messages.1.content.0: "),
    "a call with arguments that are a text": (
        ask(user("x"), assistant([use("a", input="{")])),
        "messages.1.content.0.tool_use.input: ",
    ),
    "a call with a bad id": (ask(user("x"), assistant([use("a b")])), "messages.1.content.0.tool_use.id: "),
    "a call without its result": (
        ask(user("x"), assistant([use("a")]), user("y")),
        "messages.1: `tool_use` ids were found without",
    ),
    "a call at the end": (ask(user("x"), assistant([use("a")])), "messages.1: `tool_use` ids were found without"),
    "a call with one result of two": (
        ask(user("x"), assistant([use("a"), use("b")]), user([result("b")])),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a.",
    ),
    "a result behind a text": (
        ask(user("x"), assistant([use("a")]), user([{"type": "text", "text": "so"}, result("a")])),
        "messages.1: `tool_use` ids were found without",
    ),
    "a result without its call": (
        ask(user("x"), assistant("y"), user([result("a")])),
        "messages.2: unexpected `tool_use_id` found",
    ),
    "a result one turn late": (
        ask(user("x"), assistant([use("a")]), user([result("a")]), assistant("y"), user([result("a")])),
        "messages.4: unexpected `tool_use_id` found",
    ),
    "two results of one call": (
        ask(user("x"), assistant([use("a")]), user([result("a"), result("a")])),
        "messages.2: each tool_use must have a single result",
    ),
    "two calls of one id": (
        ask(user("x"), assistant([use("a"), use("a")]), user([result("a")])),
        "messages.1: `tool_use` ids must be",
    ),
    "a thought without signature": (
        ask(user("x"), assistant([{"type": "thinking", "thinking": "hm"}]), user("y")),
        "messages.1.content.0.thinking.signature: Field required",
    ),
    "a thought with a wrong signature": (
        ask(user("x"), assistant([{"type": "thinking", "thinking": "hm", "signature": "me"}]), user("y")),
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    "a tool without a name": (ask(user("x"), tools=[{"input_schema": {"type": "object"}}]), "tools.0.custom.name: Field required"),
    "a tool with a bad name": (
        ask(user("x"), tools=[{"name": "a b", "input_schema": {"type": "object"}}]),
        "tools.0.custom.name: ",
    ),
    "a tool without a schema": (ask(user("x"), tools=[{"name": "a"}]), "tools.0.custom.input_schema: Field required"),
    "two tools of one name": (ask(user("x"), tools=[*TOOLS, *TOOLS]), "tools: Tool names must be unique."),
    "a budget that is too small": (
        ask(user("x"), thinking={"type": "enabled", "budget_tokens": 1}),
        "thinking.enabled.budget_tokens: ",
    ),
    "a budget above max_tokens": (
        ask(user("x"), thinking={"type": "enabled", "budget_tokens": 3000}),
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    "too many marks for the cache": (
        ask(user([{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5)),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
}


@pytest.mark.req("resident.fakes.validation")
@pytest.mark.parametrize(("request_", "why"), REFUSED.values(), ids=REFUSED)
def test_it_refuses(request_: Json, why: str) -> None:
    with pytest.raises(ApiRefusal) as error:
        read(request_, dumps(request_), "00")
    assert error.value.message.startswith(why)


@pytest.mark.req("resident.fakes.validation")
async def test_the_sdk_sees_a_refusal_as_a_bad_request(clients: Clients) -> None:
    with pytest.raises(anthropic.BadRequestError) as error:
        await clients.anthropic.messages.create(**ask(user("x"), assistant([use("toolu_1")])))
    assert error.value.type == "invalid_request_error"
    assert "toolu_1" in error.value.message
    assert (error.value.request_id or "").startswith("req_")


TAKEN: dict[str, Json] = {
    "two users in a row": ask(user("x"), user("y")),
    "results in two messages": ask(user("x"), assistant([use("a"), use("b")]), user([result("a")]), user([result("b")])),
    "a call in two messages": ask(user("x"), assistant("y"), assistant([use("a")]), user([result("a")])),
    "a text behind results": ask(user("x"), assistant([use("a")]), user([result("a"), {"type": "text", "text": "so"}])),
    "a system message in between": ask(user("x"), assistant([use("a")]), {"role": "system", "content": "s"}, user([result("a")])),
    "a result without content": ask(user("x"), assistant([use("a")]), user([{"type": "tool_result", "tool_use_id": "a"}])),
    "the assistant's words begun": ask(user("x"), assistant("The answer is")),
    "the provider's own tool": ask(user("x"), tools=[{"type": "web_search_20250305", "name": "web_search"}]),
}


@pytest.mark.req("resident.fakes.validation")
@pytest.mark.parametrize("request_", TAKEN.values(), ids=TAKEN)
def test_it_takes(request_: Json) -> None:
    assert read(request_, dumps(request_), "00").model == "fake-1"
    without = {name: value for name, value in request_.items() if name != "max_tokens"}
    assert build_count(without, dumps(without))["input_tokens"] > 1


async def test_the_smallest_request_of_the_helpers_is_echoed(clients: Clients) -> None:
    message = await clients.send("anthropic", body("anthropic", "hello"))
    assert message.content[0].text == "You said: hello"
