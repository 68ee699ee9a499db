"""A real guest that streams models: its wire, who is served, and what becomes of a stream that fails (spec piglet 5.9)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from serai.app.app import App
from serai.errors import ModelFailed, TurnLimit
from serai.host.guest import GuestState
from serai.model.contributions import Provider
from serai.model.events import NoticeEvent, Retrying, Text, Thinking, ToolInput
from serai.model.provider import Chunk, Completion, Model, ModelMessage, ModelRequest
from serai.model.tools import TextBlock
from tests.support.agents.scripted_models import conversation, texts
from tests.support.app.apps import PATIENT, Person, build_environ, open_app
from tests.support.host import zot_guests
from tests.support.host.zot_guests import pid_of, wait_for_state
from tests.support.piglet.journals import ONE_LOOP, SLOW_RESTART, read_messages, read_params, wait_for_note, write_models
from tests.support.piglet_guests.guest_folder import write
from tests.support.piglet_guests.steps import Step, crash, delta, fault, note, relay, result, say, throw, wait

pytestmark = ONE_LOOP

MODELS = """
[[models]]
id = "m1"
name = "M One"
provider = "acme"
api = "acme-api"
context_window = 80000
max_tokens = 500
[[models]]
id = "m2"
provider = "acme"
api = "other-api"
base_url = "http://127.0.0.1:9/v1"
[[models]]
id = "m3"
provider = "acme"
api = "openai"
"""
KEY = "sk-ant-api03-nobody-gets-to-see-this-one"
REQUEST = ModelRequest(Model("m1", provider="acme", api="acme-api"), (ModelMessage("user", (TextBlock("hi"),)),))
MESSAGE: dict[str, Any] = {
    "content": [{"text": "what counts"}],
    "model": "m1",
    "provider": "acme",
    "usage": {"inputTokens": 7, "outputTokens": 2, "cacheReadTokens": 0, "cacheWriteTokens": 0, "cost": 0},
    "stopReason": "stop",
    "timestamp": "2026-02-03T10:00:01Z",
}


def write_acme(tmp_path: Path, steps: Sequence[Step], **more: Any) -> Path:
    """A guest that answers for the model `acme/m1` with these steps."""
    write_models(tmp_path, MODELS)
    return write(tmp_path, "acme", providers={"acme-api": list(steps)}, journal=tmp_path / "journal", **more)


async def submit(app: App, prompt: str = "hello") -> str:
    done = await app.submit(prompt)
    assert done is not None
    return done.text


async def pieces(host: Any, request: ModelRequest = REQUEST) -> list[Chunk | Completion]:
    return [piece async for piece in host.provider("acme-api").stream(request)]


def answer_with_call(text: str, name: str, **arguments: object) -> list[Step]:
    """An answer with a call of a tool; there is no second one, so it is for a single step."""
    content = [{"text": text}, {"id": "c1", "name": name, "arguments": arguments}]
    return [result({"message": {**MESSAGE, "content": content, "stopReason": "toolUse"}})]


# -- what is asked


@pytest.mark.req("piglet.fix.21")
@pytest.mark.req("piglet.method.provider/stream")
async def test_a_model_call_is_asked_for_with_everything_but_a_key(tmp_path: Path) -> None:
    folder = write_acme(tmp_path, [say("hello "), say("you")], tools={"host": [relay()]})
    environ = {**build_environ(tmp_path), "ANTHROPIC_API_KEY": KEY, "ACME_API_KEY": KEY}
    async with open_app(tmp_path, folder, model="acme/m1", environ=environ) as app:
        assert await submit(app, "first") == "hello you"
        assert await submit(app, "second") == "hello you"
        asked = {
            "method": "host/chat",
            "params": {"system": "Title it", "messages": [{"role": "user", "content": "x"}], "maxTokens": 30},
        }
        await app.host.call_tool("host", asked)
        journal = tmp_path / "journal"
        requests = read_messages(journal, "provider/stream")
        first, second, chat = (request["params"] for request in requests)
    assert [sorted(request) for request in requests] == [["id", "jsonrpc", "method", "params"]] * 3
    assert sorted(second) == ["messages", "model", "options", "requestId", "system", "tools"]
    cost = {"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0}
    size = {"contextWindow": 80000, "maxTokens": 500}
    about = {"id": "m1", "name": "M One", "api": "acme-api", "provider": "acme", "reasoning": False, **size, "cost": cost}
    assert first["model"] == about
    assert all(isinstance(request["params"]["requestId"], int) for request in requests)
    assert len({request["params"]["requestId"] for request in requests}) == 3
    # Untagged: the message itself, no {type, data}; its role beside the fields that a session keeps.
    [said, answered, again] = second["messages"]
    assert (said["content"], said["role"], again["content"]) == ("first", "user", "second")
    assert (answered["role"], answered["content"][0]["text"], answered["usage"]["inputTokens"]) == ("assistant", "hello you", 5)
    assert not any("data" in message for message in second["messages"])
    tools = {tool["name"]: tool for tool in first["tools"]}
    assert {"read", "bash", "host"} <= set(tools)
    assert sorted(tools["read"]) == ["description", "name", "parameters"]
    assert tools["read"]["parameters"]["type"] == "object"
    assert first["system"]
    assert ("tools" in chat, chat["system"], chat["options"]) == (False, "Title it", {"maxTokens": 30})
    assert KEY not in journal.read_text()


@pytest.mark.req("piglet.method.provider/stream", "piglet.edge.07")
async def test_the_message_of_the_answer_counts_whatever_was_streamed(tmp_path: Path) -> None:
    thinking = {"content": [{"thinking": "hm"}, {"text": "what counts"}]}
    folder = write_acme(tmp_path, [delta("something "), delta("else"), result({"message": {**MESSAGE, **thinking}})])
    person = Person()
    async with open_app(tmp_path, folder, model="acme/m1", surface=person) as app:
        done = await app.submit("hello")
        assert done is not None
        assert done.text == "what counts"
        assert (done.usage.input, done.usage.output) == (7, 2)
        assert texts(conversation(app.session)) == ["user: hello", "assistant: what counts"]
        assert "".join(one.text for one in person.events if isinstance(one, Text)) == "something else"
    folder = write_acme(tmp_path, [delta("half"), result({"message": MESSAGE, "error": "quota exceeded"})])
    async with open_app(tmp_path, folder, model="acme/m1", limits={**PATIENT, "model_attempts": 1}) as app:
        with pytest.raises(ModelFailed, match="acme/m1: quota exceeded"):
            await app.submit("hello")


@pytest.mark.req("piglet.method.provider/stream")
async def test_the_calls_of_its_answer_are_run_and_their_results_are_in_the_next_request(tmp_path: Path) -> None:
    folder = write_acme(tmp_path, answer_with_call("looking", "weather", city="Bern"), tools={"weather": "$city: fog"})
    async with open_app(tmp_path, folder, model="acme/m1", limits={**PATIENT, "steps": 2}) as app:
        with pytest.raises(TurnLimit):  # it wants to go on for ever
            await app.submit("hello")
        [_, second] = read_params(tmp_path / "journal", "provider/stream")
        assert [one["args"] for one in read_params(tmp_path / "journal", "tool/execute")] == [{"city": "Bern"}] * 2
    [_, called, told] = second["messages"]
    [_, call] = called["content"]
    assert (call["id"], call["name"], call["arguments"], call["type"]) == ("c1", "weather", {"city": "Bern"}, "tool_call")
    assert (told["role"], told["toolCallId"], told["toolName"], told["isError"]) == ("tool_result", "c1", "weather", False)
    assert told["content"][0]["text"] == "Bern: fog"


# -- what is streamed


@pytest.mark.req("piglet.edge.37")
@pytest.mark.req("piglet.method.provider/delta", "piglet.edge.07")
async def test_deltas_of_all_types_come_in_order_and_those_of_nobody_are_ignored(tmp_path: Path) -> None:
    tool = {"id": "t1", "name": "weather", "arguments": '{"city":"Bern"}'}
    steps = [
        delta("Hel"),
        delta(requestId=999, delta="for nobody"),
        delta("hm", type="thinking_delta", index=1),
        delta('{"city":', type="toolcall_delta", index=2, tool={"id": "t1", "name": "weather"}),
        delta('"Bern"}', type="toolcall_delta", index=2),
        delta(type="toolcall_end", index=2, tool=tool),
        delta("odd", type="brand_new"),
        delta("lo"),
    ]
    person = Person()
    folder = write_acme(tmp_path, [*steps, result({"message": MESSAGE})])
    async with zot_guests.open_host(tmp_path, folder) as host:
        *streamed, end = await pieces(host)
        assert streamed == [
            Chunk("Hel", "text", 0),
            Chunk("hm", "thinking", 1),
            Chunk('{"city":', "tool_input", 2),
            Chunk('"Bern"}', "tool_input", 2),
            Chunk("lo", "text", 0),
        ]
        assert isinstance(end, Completion)
        assert texts([end.message]) == ["assistant: what counts"]
    async with open_app(tmp_path, folder, model="acme/m1", surface=person) as app:
        assert await submit(app) == "what counts"
    assert ["".join(one.text for one in person.events if isinstance(one, kind)) for kind in (Text, Thinking, ToolInput)] == [
        "Hello", "hm", '{"city":"Bern"}',
    ]  # fmt: skip


@pytest.mark.req("piglet.method.provider/delta")
async def test_ten_thousand_deltas_come_in_order_and_none_is_lost(tmp_path: Path) -> None:
    words = [f"{number} " for number in range(10_000)]
    folder = write_acme(tmp_path, [*map(delta, words)])
    heard: list[str] = []
    async with open_app(tmp_path, folder, model="acme/m1") as app:
        *streamed, end = await pieces(app.host)
        assert [piece.text for piece in streamed if isinstance(piece, Chunk)] == words
        assert isinstance(end, Completion)
        app.session.listen(lambda event: heard.append(event.text) if isinstance(event, Text) else None)
        assert await submit(app) == "".join(words)
    assert "".join(heard) == "".join(words)


@pytest.mark.req("piglet.edge.07", "piglet.rule.envelope-ids")
async def test_deltas_go_to_the_stream_of_their_request_id_and_all_numbers_are_of_one_counter(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    folder = write_acme(tmp_path, [say("$requestId"), wait(tmp_path / "go"), say(" of $requestId")], tools=["look"])
    async with zot_guests.open_host(tmp_path, folder) as host:
        await host.call_tool("look")
        streams = [asyncio.create_task(pieces(host)) for _ in range(3)]
        while len(asked := read_messages(journal, "provider/stream")) < 3:
            await asyncio.sleep(0.002)
        (tmp_path / "go").touch()
        told = ["".join(piece.text for piece in await stream if isinstance(piece, Chunk)) for stream in streams]
    numbers = [one["params"]["requestId"] for one in asked]
    assert told == [f"{number} of {number}" for number in numbers]
    [look] = read_messages(journal, "tool/execute")
    assert sorted([*numbers, *(one["id"] for one in asked)]) == list(range(look["id"] + 1, look["id"] + 7))


@pytest.mark.req("piglet.edge.07")
async def test_a_delta_under_the_envelope_id_is_nobodys(tmp_path: Path) -> None:
    """`initialize` is 1, so the stream is 2 and its request 3."""
    folder = write_acme(tmp_path, [delta("right"), delta(requestId=3, delta="wrong"), result({"message": MESSAGE})])
    async with zot_guests.open_host(tmp_path, folder) as host:
        *streamed, _ = await pieces(host)
        [asked] = read_messages(tmp_path / "journal", "provider/stream")
        assert (asked["params"]["requestId"], asked["id"]) == (2, 3)
        assert streamed == [Chunk("right", "text", 0)]


# -- who is served


@pytest.mark.req("piglet.rule.provider-selection", "piglet.method.register/provider")
async def test_turns_work_on_the_side_chats_and_private_agents_are_all_served_by_it(tmp_path: Path) -> None:
    folder = write_acme(tmp_path, [say("from the guest")], tools={"host": [relay()]})
    journal = tmp_path / "journal"

    async def ask(method: str, **given: object) -> Any:
        answer = await app.host.call_tool("host", {"method": method, "params": given})
        return json.loads(answer.text)["result"]

    person = Person()
    async with open_app(tmp_path, folder, model="acme/m1", surface=person) as app:
        assert await submit(app) == "from the guest"
        await ask("host/runBackground", prompt="look around")
        told = await person.saw_a(NoticeEvent)
        assert isinstance(told, NoticeEvent)
        assert told.notice.text == "Background task: look around\n\nfrom the guest"
        # Inside its own tool: the stream comes back on the wire on which its call is still open.
        chat = await ask("host/chat", messages=[{"role": "user", "content": "hi"}], model="acme/m1")
        assert chat == {"text": "from the guest", "usage": {"input": 5, "output": 1}}
        run = await ask("host/agent.run", task="count", model="m1", tools="all")
        assert (run["text"], run["turns"]) == ("from the guest", 1)
        streams = read_params(journal, "provider/stream")
        assert [(one["model"]["id"], one["model"]["api"]) for one in streams] == [("m1", "acme-api")] * 4
        assert [one["messages"][-1]["content"] for one in streams] == ["hello", "look around", "hi", "count"]
        # A model of another API is not its own.
        refused = json.loads((await app.host.call_tool("host", _chat_with("acme/m2"))).text)
        assert refused["error"]["message"].startswith("chat error: ")
        assert len(read_messages(journal, "provider/stream")) == 4


def _chat_with(model: str) -> dict[str, Any]:
    return {"method": "host/chat", "params": {"messages": [{"role": "user", "content": "hi"}], "model": model}}


@pytest.mark.req("piglet.method.register/provider")
@pytest.mark.parametrize(("api", "model"), [("anthropic", "claude"), ("openai", "acme/m3"), ("acme-api", "acme/m1")])
async def test_every_model_of_a_registered_api_is_streamed_by_it(tmp_path: Path, api: str, model: str) -> None:
    write_models(tmp_path, MODELS)
    folder = write(tmp_path, "acme", providers={api: [say("streamed")]}, journal=tmp_path / "journal")
    async with open_app(tmp_path, folder, model=model) as app:  # no key of anybody is there
        assert app.host.guest("acme").contributions.providers == (Provider(api),)
        assert await submit(app) == "streamed"
    assert [one["model"]["api"] for one in read_params(tmp_path / "journal", "provider/stream")] == [api]


# -- what goes wrong


ODD = {"message": {"content": 7}}


@pytest.mark.req("piglet.rule.provider-failure")
@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([delta("half"), throw("overloaded")], "overloaded"),
        ([delta("half"), result({"message": MESSAGE, "error": "quota exceeded"})], "quota exceeded"),
        ([result(ODD)], "the message of its answer cannot be read: "),
        ([result("no object")], "its answer to provider/stream cannot be read: "),
        ([fault("raw", line='{"jsonrpc":"2.0","id":3}'), wait()], "its answer to provider/stream cannot be read: "),
    ],
    ids=["rpc error", "error", "message", "answer", "empty"],
)
async def test_what_fails_is_tried_again_as_often_as_with_any_model(tmp_path: Path, steps: list[Step], why: str) -> None:
    person = Person()
    async with open_app(
        tmp_path, write_acme(tmp_path, steps), model="acme/m1", surface=person, limits={**PATIENT, "model_attempts": 2}
    ) as app:
        if steps[-1:] == [wait()]:  # it said so under the id of the first request alone
            turn = asyncio.create_task(app.submit("hello"))
            await person.saw_a(Retrying)
            await app.abort()
            await turn
        else:
            with pytest.raises(ModelFailed, match=why):
                await app.submit("hello")
            assert len(read_messages(tmp_path / "journal", "provider/stream")) == 2
        [again] = [one.error for one in person.events if isinstance(one, Retrying)]
        assert again.startswith(f"acme/m1: {why}")
        assert app.host.guest("acme").state is GuestState.READY


@pytest.mark.req("piglet.rule.provider-failure")
async def test_a_crash_amid_a_stream_is_tried_again_and_the_turn_ends_well(tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    folder = write_acme(tmp_path, [delta("half of "), note(begun), wait(go), crash()])
    person = Person()
    limits = {**PATIENT, "model_attempts": 100_000, "model_wait_most": 0.01}  # it is asked until it is back
    async with open_app(tmp_path, folder, model="acme/m1", surface=person, limits=limits) as app:
        turn = asyncio.create_task(submit(app))
        await wait_for_note(begun)
        write_acme(tmp_path, [say("all of "), say("it")])  # what its next process will do
        go.touch()
        assert await turn == "all of it"
        assert texts(conversation(app.session)) == ["user: hello", "assistant: all of it"]
        first, *_ = [one.error for one in person.events if isinstance(one, Retrying)]
        assert first.startswith("acme/m1: extension acme crashed")


@pytest.mark.req("piglet.rule.provider-failure")
async def test_when_it_does_not_come_back_the_turn_fails_and_says_who_crashed(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    folder = write_acme(tmp_path, [delta("half"), note(begun), wait()])
    limits = {**PATIENT, **SLOW_RESTART, "model_attempts": 1}
    async with open_app(tmp_path, folder, model="acme/m1", limits=limits) as app:
        turn = asyncio.create_task(app.submit("hello"))
        await wait_for_note(begun)
        os.kill(pid_of(app.host, "acme"), signal.SIGKILL)
        with pytest.raises(ModelFailed, match="extension acme crashed") as raised:
            await turn
        assert "SIGKILL" in str(raised.value.exit)
        await wait_for_state(app.host, "acme", GuestState.BACKING_OFF)
        with pytest.raises(ModelFailed, match="piglet:acme is backing off"):
            await app.submit("again")


@pytest.mark.req("piglet.rule.cancel-outgoing")
async def test_who_gives_up_amid_a_stream_tells_the_guest_by_the_envelope_id(tmp_path: Path) -> None:
    begun, done, journal = tmp_path / "begun", tmp_path / "done", tmp_path / "journal"
    # Cancelled, it goes on to say a piece and answers all the same.
    folder = write_acme(tmp_path, [delta("half"), note(begun), wait(), note(done), say("too late")], tools={"look": "fine"})
    person = Person()
    async with open_app(tmp_path, folder, model="acme/m1", surface=person) as app:
        turn = asyncio.create_task(app.submit("hello"))
        await wait_for_note(begun)
        await app.abort()
        result = await turn
        assert result is not None
        assert result.status == "cancelled"
        await wait_for_note(done)
        assert (await app.host.call_tool("look")).text == "fine"
        [asked] = read_messages(journal, "provider/stream")
        assert read_params(journal, "$/cancelRequest") == [{"id": asked["id"]}]
        assert asked["id"] != asked["params"]["requestId"]
        assert "too late" not in "".join(texts(conversation(app.session)))
        assert "too late" not in "".join(one.text for one in person.events if isinstance(one, Text))
        running = app.host.guest("acme").running
        assert running is not None
        await running.idle()  # nothing waits for it any more
