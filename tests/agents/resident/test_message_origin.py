"""What is known of a message beside what it says: when, by which model, for how much, how it ended (spec piglet 6.2)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serai.agents.resident import conversation as resident_conversation
from serai.agents.session import Session
from serai.app.services.agent_services import dump_messages
from serai.errors import ModelFailed
from serai.model.events import Text, Usage
from serai.model.provider import Chunk, MessageOrigin, ModelMessage
from serai.model.tools import TextBlock, ToolCall
from serai.store import SessionFolder, entries, to_model_message
from serai.store.messages import AssistantMessage, UserMessage, from_model_message
from tests.support.agents.scripted_models import QUICK, Answers, Box, call, conversation, echo, reply, resident

SPENT = Usage(100, 10, 3, 4)


def get_origin(message: ModelMessage) -> MessageOrigin:
    assert message.made is not None
    return message.made


async def test_an_answer_knows_its_model_its_usage_and_its_end_and_all_know_their_time() -> None:
    before = entries.format_time()
    async with resident(Answers([reply("I look.", call("echo"), usage=SPENT)], [reply("Done.", stop="length")])) as session:
        await session.turn("hi")
    messages = conversation(session)
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    when = [get_origin(message).at for message in messages]
    assert when == sorted(when)
    assert before < when[0] < entries.format_time()
    answer = get_origin(messages[1])
    assert (answer.model, answer.provider, answer.stop, answer.error) == ("m1", "test", "tool_use", "")
    assert (answer.usage.input, answer.usage.output, answer.usage.cache_read, answer.usage.cache_write) == (100, 10, 3, 4)
    assert answer.usage.cost_usd == pytest.approx((100 * 1.0 + 10 * 2.0 + 3 * 0.1 + 4 * 1.5) / 1e6)
    assert get_origin(messages[3]).stop == "length"
    assert (get_origin(messages[0]).model, get_origin(messages[2]).usage) == ("", Usage())


@pytest.mark.parametrize("how", ["aborted", "error"])
async def test_an_answer_that_did_not_come_to_its_end_says_so(how: str) -> None:
    begun = asyncio.Event()
    last = asyncio.Event() if how == "aborted" else ModelFailed("it broke off", who="test/m1")
    async with resident(Answers([Chunk("half an an"), last])) as session:
        session.listen(lambda event: begun.set() if isinstance(event, Text) else None)
        turn = await session.send("hi")
        if how == "aborted":
            await begun.wait()
            await turn.cancel("enough")
        else:
            with pytest.raises(ModelFailed):
                await turn
    [answer] = [message for message in conversation(session) if message.role == "assistant"]
    assert (get_origin(answer).stop, get_origin(answer).model) == (how, "m1")
    assert ("it broke off" in get_origin(answer).error) is (how == "error")
    assert all(entries.parse_time(get_origin(message).at) for message in conversation(session))


async def test_it_is_the_same_on_disk_and_when_it_is_loaded_again(tmp_path: Path) -> None:
    stored = SessionFolder(str(tmp_path)).create("/app")
    parts = resident(Answers([reply("I look.", call("echo"), usage=SPENT)], [reply("Done.")]))
    async with Session(parts.driver, store=stored, limits=QUICK) as session:
        await session.turn("hi")
        now = [get_origin(message) for message in conversation(session)]
    with SessionFolder(str(tmp_path)).open(stored.id) as again:
        loaded = [to_model_message(message) for message in again.read_messages()]
        answers = [message for message in again.read_messages() if isinstance(message, AssistantMessage)]
    assert [(one.model, one.provider, one.stop_reason) for one in answers] == [("m1", "test", "toolUse"), ("m1", "test", "stop")]
    for here, there in zip(now, map(get_origin, loaded), strict=True):
        assert (here.model, here.provider, here.usage, here.stop) == (there.model, there.provider, there.usage, there.stop)
        assert entries.parse_time(there.at)
    assert get_origin(loaded[1]).at == now[1].at


async def test_what_is_compacted_keeps_it_on_disk(tmp_path: Path) -> None:
    async def compactor(messages: object) -> list[ModelMessage]:
        return conversation(session)[:2]

    stored = SessionFolder(str(tmp_path)).create("/app")
    parts = resident(Answers([reply("x" * 4000, usage=SPENT)]), compactor=compactor)
    async with Session(parts.driver, store=stored, limits=QUICK) as session:
        await session.turn("one")
        await session.turn("two")
        await session.compact()
        [asked, answer] = stored.read_messages()
        assert isinstance(asked, UserMessage)
        assert isinstance(answer, AssistantMessage)
        assert (answer.model, answer.provider, answer.usage.input_tokens, answer.stop_reason) == ("m1", "test", 100, "stop")
        assert [asked.timestamp, answer.timestamp] == [get_origin(message).at for message in conversation(session)]


def test_no_two_messages_differ_by_it_and_no_default_does_harm() -> None:
    plain = ModelMessage("user", (TextBlock("hi"),))
    stamped = ModelMessage("user", (TextBlock("hi"),), made=MessageOrigin("2026-02-03T10:00:00Z"))
    assert plain == stamped
    assert stamped == plain
    assert stamped == ModelMessage("user", (TextBlock("hi"),), made=MessageOrigin(error="x"))
    assert stamped != ModelMessage("user", (TextBlock("ho"),), made=stamped.made)
    assert hash(plain) == hash(stamped)


def test_a_result_that_never_came_is_of_the_time_of_its_call() -> None:
    asked = ModelMessage("assistant", (), (ToolCall("echo", {}, "c1"),), made=MessageOrigin("2026-02-03T10:00:00Z", "m1"))
    [_, result] = resident_conversation.repair_messages([asked])
    assert (get_origin(result).at, get_origin(result).model) == ("2026-02-03T10:00:00Z", "")


def test_what_is_said_beside_a_message_comes_first_and_a_zero_time_is_none() -> None:
    answer = ModelMessage("assistant", (), made=MessageOrigin("2026-02-03T10:00:00Z", "m1", "acme", Usage(1, 2), "length", "oh"))
    kept = from_model_message(answer, model="m2", provider="other", usage=Usage(5), stop="end", error="no", timestamp=entries.ZERO)
    assert isinstance(kept, AssistantMessage)
    assert (kept.model, kept.provider, kept.usage.input_tokens, kept.stop_reason, kept.error) == ("m2", "other", 5, "stop", "no")
    assert kept.timestamp == "2026-02-03T10:00:00Z"
    assert get_origin(to_model_message(UserMessage("hi"))).at == ""
    [shown] = dump_messages([ModelMessage("user", (TextBlock("hi"),))])
    assert shown["timestamp"] == entries.ZERO


async def test_guests_are_shown_it(tmp_path: Path) -> None:
    async with resident(Answers([reply("Done.", usage=SPENT)]), Box(echo=echo)) as session:
        await session.turn("hi")
        [asked, answer] = dump_messages(conversation(session))
    assert entries.parse_time(asked["timestamp"]) <= entries.parse_time(answer["timestamp"])
    assert (answer["model"], answer["provider"], answer["stopReason"]) == ("m1", "test", "stop")
    assert answer["usage"] == {
        "inputTokens": 100, "outputTokens": 10, "cacheReadTokens": 3, "cacheWriteTokens": 4, "cost": answer["usage"]["cost"],
    }  # fmt: skip
    assert answer["usage"]["cost"] > 0
