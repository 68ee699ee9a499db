"""The agent's conversation in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serai.agents.session import Session
from serai.app.services.agent_services import ConversationService
from serai.errors import BadRequest, TurnInFlight
from serai.model.events import Usage
from serai.model.tools import ToolSpec
from serai.store import entries
from serai.store.messages import INTERRUPTED
from serai.store.session_folder import SessionFolder
from tests.support.agents.conversations import get_driver
from tests.support.agents.scripted_models import Answers, Box, call, conversation, echo, reply, texts
from tests.support.app.service_requests import ServiceCaller, resident


def caller(session: Session) -> ServiceCaller:
    return ServiceCaller(ConversationService(lambda: get_driver(session), session.must_be_idle))


async def test_messages_say_whose_they_are_and_what_their_parts_are() -> None:
    async with resident(Answers([reply("I look.", call("echo", x=1))], [reply("Done.")])) as session:
        await session.turn("hi")
        messages = (await caller(session)("messages"))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool_result", "assistant"]
    assert messages[0] == {"role": "user", "content": "hi", "timestamp": messages[0]["timestamp"]}
    assert all(entries.parse_time(message["timestamp"]) for message in messages)
    assert messages[1]["content"] == [
        {"type": "text", "text": "I look."},
        {"type": "tool_call", "id": "c1", "name": "echo", "arguments": {"x": 1}},
    ]
    assert (messages[2]["toolCallId"], messages[2]["toolName"], messages[2]["isError"]) == ("c1", "echo", False)


async def test_what_is_read_can_be_set_again() -> None:
    async with resident(Answers([reply("I look.", call("echo", x=1))], [reply("Done.")])) as session:
        await session.turn("hi")
        ask = caller(session)
        before = conversation(session).copy()
        messages = (await ask("messages"))["messages"]
        await ask("set", messages=None)
        assert conversation(session) == []
        await ask("set", messages=[{"type": message["role"], "data": message} for message in messages])
        assert texts(conversation(session)) == texts(before)


async def test_a_conversation_is_replaced_in_memory_and_the_session_stays(tmp_path: Path) -> None:
    with SessionFolder(tmp_path).create(str(tmp_path)) as stored:
        provider = Answers([reply("Hello.")])
        async with resident(provider, store=stored) as session:
            await session.turn("hi")
            messages = [
                {"type": "user", "data": {"content": "fresh"}},
                {"type": "label", "data": {"targetId": "x"}},
                {"type": "assistant", "data": {"content": [{"id": "c7", "name": "echo", "arguments": {}}]}},
            ]
            assert await caller(session)("set", messages=messages) == {}
            assert texts(conversation(session)) == ["user: fresh", "assistant: echo()", f"tool: {INTERRUPTED}"]
            assert [type(message).__name__ for message in stored.read_messages()] == ["UserMessage", "AssistantMessage"]
            await session.turn("and now?")
            assert len(provider.requests[-1].messages) == 4


@pytest.mark.parametrize("data", [7, "text", None, {"content": 7}])
async def test_a_message_that_is_none_is_refused_and_nothing_is_lost(data: object) -> None:
    async with resident(Answers([reply("Hello.")])) as session:
        await session.turn("hi")
        with pytest.raises(BadRequest, match=r"messages\[1\] is no message"):
            await caller(session)("set", messages=[{"type": "user", "data": {"content": "a"}}, {"type": "user", "data": data}])
        assert len(conversation(session)) == 2


async def test_a_conversation_is_not_replaced_while_a_turn_runs() -> None:
    go = asyncio.Event()
    async with resident(Answers([go, reply("Hello.")])) as session:
        turn = await session.send("hi")
        with pytest.raises(TurnInFlight):
            await caller(session)("set", messages=None)
        go.set()
        assert (await turn).ok


async def test_a_snapshot_is_what_the_next_call_would_carry() -> None:
    box = Box(zap=(ToolSpec("zap", "Zaps", hint="with care", deferred=True), echo), look=echo, hidden=echo)
    async with resident(Answers([reply("Hello.")]), box) as session:
        await session.turn("hi")
        get_driver(session).tools.restrict({"zap", "look"})
        snapshot = await caller(session)("snapshot")
    assert "## zap — with care" in snapshot["system"]
    assert [message["role"] for message in snapshot["messages"]] == ["user", "assistant"]
    assert snapshot["tools"] == [
        {"name": "look", "description": "", "schema": {"type": "object"}},
        {"name": "zap", "description": "Zaps", "schema": {"type": "object"}},
    ]


async def test_the_last_text_is_that_of_the_newest_answer_that_has_one() -> None:
    async with resident(Answers([reply("I look.")], [reply("", call("echo"))], [reply("")])) as session:
        ask = caller(session)
        assert await ask("last_text") == {"text": ""}
        await session.turn("one")
        await session.turn("two")
        assert await ask("last_text") == {"text": "I look."}


async def test_what_it_took_is_summed_up() -> None:
    async with resident(Answers([reply("a", usage=Usage(100, 10, 3, 4))], [reply("b", usage=Usage(200, 11))])) as session:
        await session.turn("one")
        await session.turn("two")
        stats = await caller(session)("stats")
    cost = stats.pop("total_cost")
    assert cost > 0
    assert stats == {
        "turn_count": 2,
        "total_input_tokens": 300,
        "total_output_tokens": 21,
        "total_cache_read_tokens": 3,
        "total_cache_write_tokens": 4,
        "model": "test/m1",
    }
