"""The Responses API: with the real SDK, and byte by byte."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from serai.testing.models.reply import ApiRefusal, dumps
from serai.testing.models.responses_api import read
from serai.testing.models.server import FakeModels
from tests.support.model_clients import Clients, Json, read_events, send_raw, sse

TOOLS = [{"type": "function", "name": "read", "parameters": {"type": "object"}}]
SEALED = {"include": ["reasoning.encrypted_content"]}
PROMPT = """Please look.
>> think first I look
>> say I shall look.
>> call read {"path": "a"}
>> call read {"path": "b"}
>> say They said: $results
"""


def ask(*given: Any, **more: Any) -> Json:
    return {"model": "fake-1", "input": list(given), **more}


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def call(id: str, **more: Any) -> Json:
    return {"type": "function_call", "call_id": id, "name": "read", "arguments": "{}", **more}


def output(id: str, text: Any = "fine") -> Json:
    return {"type": "function_call_output", "call_id": id, "output": text}


@pytest.mark.req("resident.fakes.responses")
async def test_the_sdk_puts_the_events_together_to_one_response(clients: Clients) -> None:
    async with clients.openai.responses.stream(**ask(user(PROMPT), tools=TOOLS, **SEALED)) as stream:
        response = await stream.get_final_response()
    thought, message, first, second = response.output
    assert thought.type == "reasoning"
    assert thought.summary[0].text == "first I look"
    assert thought.encrypted_content
    assert message.type == "message"
    assert response.output_text == "I shall look."
    assert first.type == second.type == "function_call"
    assert (first.arguments, second.arguments) == ('{"path": "a"}', '{"path": "b"}')
    assert first.call_id != second.call_id
    assert response.status == "completed"
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens > 0


@pytest.mark.req("resident.fakes.responses", "resident.fakes.steps")
@pytest.mark.parametrize("beside", [False, True], ids=["outputs behind all calls", "each output behind its call"])
async def test_the_answer_sent_back_with_its_results_gets_the_next_step(clients: Clients, beside: bool) -> None:
    first = await clients.openai.responses.create(**ask(user(PROMPT), tools=TOOLS, **SEALED))
    history: list[Any] = [user(PROMPT)]
    later: list[Any] = []
    for item in first.to_dict()["output"]:  # type: ignore[attr-defined]
        history.append(item)
        if item["type"] == "function_call":
            (history if beside else later).append(output(item["call_id"], f"content of {item['arguments']}"))
    second = await clients.openai.responses.create(**ask(*history, *later, tools=TOOLS, **SEALED))
    assert second.output_text == 'They said: content of {"path": "a"}\ncontent of {"path": "b"}'


@pytest.mark.req("resident.fakes.wire")
async def test_the_events_come_in_the_documented_order(server: FakeModels) -> None:
    request = ask(user(">> think ab\n>> say one two\n>> call read {}"), tools=TOOLS, stream=True)
    status, head, stream = await send_raw(server, "/v1/responses", request)
    assert status == 200
    assert b"x-request-id: req_" in head
    found = sse(stream)
    assert [name for name, _ in found] == [data["type"] for _, data in found]
    assert [data["sequence_number"] for _, data in found] == list(range(len(found)))
    assert [(name.removeprefix("response."), data.get("output_index")) for name, data in found] == [
        ("created", None),
        ("in_progress", None),
        ("output_item.added", 0),
        ("reasoning_summary_part.added", 0),
        ("reasoning_summary_text.delta", 0),
        ("reasoning_summary_text.done", 0),
        ("reasoning_summary_part.done", 0),
        ("output_item.done", 0),
        ("output_item.added", 1),
        ("content_part.added", 1),
        ("output_text.delta", 1),
        ("output_text.delta", 1),
        ("output_text.done", 1),
        ("content_part.done", 1),
        ("output_item.done", 1),
        ("output_item.added", 2),
        ("function_call_arguments.delta", 2),
        ("function_call_arguments.done", 2),
        ("output_item.done", 2),
        ("completed", None),
    ]
    items = [data["item"] for name, data in found if name == "response.output_item.done"]
    last = found[-1][1]["response"]
    assert last["output"] == items
    assert (found[0][1]["response"]["status"], found[0][1]["response"]["usage"], last["status"]) == (
        "in_progress",
        None,
        "completed",
    )
    within = [data for name, data in found if "item_id" in data]
    assert [data["item_id"] for data in within] == [items[data["output_index"]]["id"] for data in within]


@pytest.mark.req("resident.fakes.codex")
async def test_a_custom_tool_is_called_with_a_text(clients: Clients) -> None:
    request = ask(user(">> call apply_patch *** Begin Patch"), tools=[{"type": "custom", "name": "apply_patch"}])
    response = await clients.openai.responses.create(**request)
    [made] = response.output
    assert made.type == "custom_tool_call"
    assert made.input == "*** Begin Patch"
    kinds = [event.type for event in await read_events(await clients.openai.responses.create(**request, stream=True))]
    assert kinds[2:-1] == [
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
    ]
    back = [made.to_dict(), {"type": "custom_tool_call_output", "call_id": made.call_id, "output": "patched"}]
    assert (await clients.openai.responses.create(**ask(*request["input"], *back))).output_text == "The tools said: patched"


@pytest.mark.parametrize(("said", "reason"), [("length", "max_output_tokens"), ("refusal", "content_filter")])
async def test_a_script_says_why_the_answer_is_incomplete(clients: Clients, said: str, reason: str) -> None:
    answer = await clients.openai.responses.create(**ask(user(f">> say well\n>> stop {said}")), stream=True)
    last = (await read_events(answer))[-1]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details.reason == reason


async def test_a_long_answer_is_whole_at_its_end(server: FakeModels) -> None:
    """Longer than what is put together at once."""
    request = ask(user(">> repeat 5000 say x \n>> say end"), stream=True)
    last = sse((await send_raw(server, "/v1/responses", request))[2])[-1][1]
    assert last["response"]["output"][0]["content"][0]["text"] == "x " * 5000 + "end"


async def test_instructions_and_a_plain_input_are_understood(clients: Clients) -> None:
    response = await clients.openai.responses.create(model="m", input=">> say $system", instructions="four")
    assert response.output_text == "4"


REFUSED: dict[str, tuple[Json, str]] = {
    "no model": ({"input": "x"}, "Missing required parameter: 'model'"),
    "no input": ({"model": "m"}, "Missing required parameter: 'input'"),
    "an input that is none": ({"model": "m", "input": 7}, "Invalid type for 'input'"),
    "an unknown role": (ask({"role": "robot", "content": "x"}), "Invalid value: 'robot'"),
    "a role of Chat": (ask({"role": "tool", "content": "x"}), "Invalid value: 'tool'"),
    "an item without a type": (ask({"text": "x"}), "Missing required parameter: 'input[0].type'"),
    "a message without content": (ask({"role": "user"}), "Missing required parameter: 'input[0].content'"),
    "a part of Chat": (ask(user([{"type": "text", "text": "x"}])), "Invalid value: 'text'"),
    "input said by the assistant": (
        ask({"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}),
        "Invalid value: 'input_text'",
    ),
    "an output without its call": (ask(user("x"), output("a")), "No tool call found for function call output with call_id a."),
    "an output before its call": (
        ask(user("x"), output("a"), call("a")),
        "No tool call found for function call output with call_id a.",
    ),
    "a call without its output": (ask(user("x"), call("a"), user("y")), "No tool output found for function call a."),
    "a call without an id": (
        ask(user("x"), {"type": "function_call", "name": "b", "arguments": "{}"}),
        "Missing required parameter: 'input[1].call_",
    ),
    "arguments that are no text": (ask(user("x"), call("a", arguments={})), "Missing required parameter: 'input[1].arguments'"),
    "an output that is none": (ask(user("x"), call("a"), output("a", None)), "Missing required parameter: 'input[2].output'"),
    "thoughts that led to nothing": (
        ask(user("x"), {"type": "reasoning", "id": "rs_1", "summary": []}, user("y")),
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    ),
    "thoughts of somebody else": (
        ask(
            user("x"),
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "me"},
            {"role": "assistant", "content": "y"},
        ),
        "The encrypted content for item rs_1 could not be verified",
    ),
    "a response from before": (
        {"model": "m", "input": "x", "previous_response_id": "resp_1"},
        "Previous response with id 'resp_1' not found.",
    ),
    "a tool without a name": (ask(user("x"), tools=[{"type": "function"}]), "Missing required parameter: 'tools[0].name'"),
    "a tool of Chat": (
        ask(user("x"), tools=[{"type": "function", "function": {"name": "a"}}]),
        "Missing required parameter: 'tools[0].name'",
    ),
    "too few tokens": (ask(user("x"), max_output_tokens=1), "Invalid 'max_output_tokens'"),
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
        await clients.openai.responses.create(**ask(user("x"), call("call_1")))
    assert (error.value.type, error.value.param) == ("invalid_request_error", "input")
    assert "call_1" in error.value.message


TAKEN: dict[str, Json] = {
    "a plain text": {"model": "fake-1", "input": "x"},
    "calls and their outputs": ask(user("x"), call("a"), call("b"), output("b"), output("a")),
    "an item of the provider's own": ask(user("x"), {"type": "web_search_call", "id": "ws_1", "status": "completed"}),
    "the provider's own tool": ask(user("x"), tools=[{"type": "web_search"}]),
    "a developer": ask({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be kind"}]}, user("x")),
}


@pytest.mark.req("resident.fakes.validation")
@pytest.mark.parametrize("request_", TAKEN.values(), ids=TAKEN)
def test_it_takes(request_: Json) -> None:
    assert read(request_, dumps(request_), "00").model == "fake-1"
