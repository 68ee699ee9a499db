"""The Chat Completions API: with the real SDK, and byte by byte."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from serai.testing.models.chat_api import read
from serai.testing.models.reply import ApiRefusal, dumps
from serai.testing.models.server import FakeModels
from tests.support.model_clients import Clients, Json, read_events, send_raw, sse

TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
PROMPT = """Please look.
>> think first I look
>> say I shall look.
>> call read {"path": "a"}
>> call read {"path": "b"}
>> say They said: $results
"""


def ask(*messages: Any, **more: Any) -> Json:
    return {"model": "fake-1", "messages": list(messages), **more}


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def calls(*ids: str) -> Json:
    made = [{"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(id: str) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": "fine"}


@pytest.mark.req("resident.fakes.chat")
async def test_the_sdk_puts_the_chunks_together_to_one_message(clients: Clients) -> None:
    async with clients.openai.chat.completions.stream(**ask(user(PROMPT), tools=TOOLS)) as stream:
        completion = await stream.get_final_completion()
    [choice] = completion.choices
    assert choice.message.content == "I shall look."
    assert choice.finish_reason == "tool_calls"
    made = choice.message.tool_calls or []
    assert [(call.function.name, call.function.arguments) for call in made] == [
        ("read", '{"path": "a"}'),
        ("read", '{"path": "b"}'),
    ]
    assert len({call.id for call in made}) == 2


@pytest.mark.req("resident.fakes.chat", "resident.fakes.steps")
async def test_the_answer_sent_back_with_its_results_gets_the_next_step(clients: Clients) -> None:
    first = (await clients.openai.chat.completions.create(**ask(user(PROMPT), tools=TOOLS))).choices[0].message
    answers = [
        {"role": "tool", "tool_call_id": call.id, "content": f"content {n}"} for n, call in enumerate(first.tool_calls or [])
    ]
    second = await clients.openai.chat.completions.create(**ask(user(PROMPT), first.to_dict(), *answers, tools=TOOLS))
    assert second.choices[0].message.content == "They said: content 0\ncontent 1"
    assert second.choices[0].finish_reason == "stop"


@pytest.mark.req("resident.fakes.wire")
async def test_the_chunks_come_in_the_documented_order(server: FakeModels) -> None:
    request = ask(
        user(">> think ab\n>> say one two\n>> call read {}"), tools=TOOLS, stream=True, stream_options={"include_usage": True}
    )
    status, head, stream = await send_raw(server, "/v1/chat/completions", request)
    assert status == 200
    assert b"x-request-id: req_" in head
    found = sse(stream)
    assert {name for name, _ in found} == {""}
    *chunks, usage, done = [data for _, data in found]
    assert done == "[DONE]"
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"reasoning_content": "ab"},
        {"content": "one "},
        {"content": "two"},
        {
            "tool_calls": [
                {"index": 0, "id": "call_" + chunks[0]["id"][9:], "type": "function", "function": {"name": "read", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 6 + ["tool_calls"]
    assert [chunk["usage"] for chunk in chunks] == [None] * 7
    assert {(chunk["id"], chunk["object"]) for chunk in [*chunks, usage]} == {(usage["id"], "chat.completion.chunk")}
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]
    assert usage["usage"]["completion_tokens_details"]["reasoning_tokens"] == 1


@pytest.mark.req("resident.fakes.usage")
async def test_usage_is_streamed_only_to_who_asks_for_it(clients: Clients) -> None:
    answer = await clients.openai.chat.completions.create(**ask(user("hello")), stream=True)
    assert [chunk.usage for chunk in await read_events(answer)] == [None] * 5  # the role, three words, the end


@pytest.mark.req("resident.fakes.usage")
async def test_what_was_sent_before_counts_as_cached_within_the_prompt(clients: Clients) -> None:
    system = {"role": "system", "content": "Be kind. " * 100}
    usage = (
        await clients.openai.chat.completions.create(**ask(system, user("a"), {"role": "assistant", "content": "b"}, user("c")))
    ).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert 200 < (usage.prompt_tokens_details.cached_tokens or 0) <= usage.prompt_tokens


@pytest.mark.parametrize(("said", "reason"), [("length", "length"), ("refusal", "content_filter")])
async def test_a_script_says_why_the_answer_stops(clients: Clients, said: str, reason: str) -> None:
    completion = await clients.openai.chat.completions.create(**ask(user(f">> say well\n>> stop {said}")))
    assert completion.choices[0].finish_reason == reason


async def test_models_are_listed(clients: Clients) -> None:
    assert "fake-1" in [model.id for model in (await clients.openai.models.list()).data]


REFUSED: dict[str, tuple[Json, str]] = {
    "no model": ({"messages": [user("x")]}, "you must provide a model"),
    "no messages": ({"model": "m"}, "Missing required parameter: 'messages'"),
    "an empty list": (ask(), "Invalid 'messages': empty array"),
    "an unknown role": (ask({"role": "robot", "content": "x"}), "Invalid value: 'robot'"),
    "no role": (ask({"content": "x"}), "Missing required parameter ('messages[0].role')"),
    "no content": (ask({"role": "user"}), "Invalid value for 'messages[0].content'"),
    "an assistant that says nothing": (ask({"role": "assistant"}), "Invalid value for 'messages[0].content'"),
    "an unknown part": (ask(user([{"type": "poem"}])), "Invalid value: 'poem'"),
    "an image by the system": (ask({"role": "system", "content": [{"type": "image_url"}]}), "Invalid value: 'image_url'"),
    "no calls in a list of calls": (ask(user("x"), calls()), "Invalid 'messages[1].tool_calls': empty array"),
    "arguments that are no text": (
        ask(
            user("x"),
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "b", "arguments": {}}}]},
        ),
        "Missing required parameter: 'messages[1].tool_calls[0].function.arguments'",
    ),
    "a call without its result": (ask(user("x"), calls("a"), user("y")), "An assistant message with 'tool_calls' must be followed"),
    "a call at the end": (ask(user("x"), calls("a", "b"), result("a")), "An assistant message with 'tool_calls' must be followed"),
    "a result without calls": (ask(user("x"), result("a")), "Invalid parameter: messages with role 'tool' must be a response"),
    "a result of another call": (ask(user("x"), calls("a"), result("b")), "Invalid parameter: 'tool_call_id' of 'b' not found"),
    "a result behind the user's next words": (
        ask(user("x"), calls("a"), result("a"), user("y"), result("a")),
        "Invalid parameter: messages with role 'tool' must be a response",
    ),
    "a result without an id": (
        ask(user("x"), calls("a"), {"role": "tool", "content": "x"}),
        "Missing required parameter: 'messages[2].tool_",
    ),
    "a tool without a name": (
        ask(user("x"), tools=[{"type": "function", "function": {}}]),
        "Missing required parameter: 'tools[0].function.n",
    ),
    "a tool with a bad name": (
        ask(user("x"), tools=[{"type": "function", "function": {"name": "a b"}}]),
        "Invalid 'tools[0].function.name'",
    ),
    "a tool of no type": (ask(user("x"), tools=[{"name": "a"}]), "Missing required parameter: 'tools[0].type'"),
    "options of a stream without one": (
        ask(user("x"), stream_options={"include_usage": True}),
        "The 'stream_options' parameter is only",
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
    with pytest.raises(openai.BadRequestError) as error:
        await clients.openai.chat.completions.create(**ask(user("x"), calls("call_1")))
    assert (error.value.type, error.value.param) == ("invalid_request_error", "messages.[2].role")
    assert "call_1" in error.value.message
    assert (error.value.request_id or "").startswith("req_")


TAKEN: dict[str, Json] = {
    "results in any order": ask(user("x"), calls("a", "b"), result("b"), result("a"), user("y")),
    "calls without content": ask(user("x"), {name: value for name, value in calls("a").items() if name != "content"}, result("a")),
    "parts": ask(user([{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:"}}])),
    "a developer": ask({"role": "developer", "content": "be kind"}, user("x")),
    "an empty text": ask(user("")),
}


@pytest.mark.req("resident.fakes.validation")
@pytest.mark.parametrize("request_", TAKEN.values(), ids=TAKEN)
def test_it_takes(request_: Json) -> None:
    assert read(request_, dumps(request_), "00").model == "fake-1"
