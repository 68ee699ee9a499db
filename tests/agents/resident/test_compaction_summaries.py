"""Where a conversation is cut, what the one who summarises is told, and what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from serai.agents.resident import conversation as resident_conversation
from serai.agents.resident.conversation import Conversation
from serai.agents.session import Session
from serai.errors import ModelFailed
from serai.model.events import Compacted, Event, NoticeEvent, Text, Usage, UsageReported
from serai.model.provider import Chunk, ModelMessage, ModelOptions
from serai.model.tools import ProgressCallback, TextBlock, ToolCall, ToolResult
from serai.store import SessionFolder, ToolResultMessage
from tests.support.agents.conversations import get_driver, is_whole
from tests.support.agents.scripted_models import MODEL, QUICK, Answers, Box, call, conversation, echo, kinds, reply, resident, texts

SMALL = msgspec.structs.replace(MODEL, context_window=1000)
FULL = Usage(900, 10)


async def compact(session: Session) -> list[Event]:
    """What is told while it is shortened."""
    events: list[Event] = []
    stop = session.listen(events.append)
    await session.compact()
    stop()
    return events


# -- when


@pytest.mark.parametrize(
    ("usage", "shortened"),
    [(Usage(790, 10), False), (Usage(791, 10), True), (Usage(10, 10, 700, 100), True), (Usage(10, 10, 100, 700), True)],
)
async def test_it_is_time_when_four_fifths_are_full_however_they_are_counted(usage: Usage, shortened: bool) -> None:
    provider = Answers([reply("a" * 2000, usage=usage)], [reply("brief")])
    async with resident(provider, model=SMALL) as session:
        events = [event async for event in session.turn("go")]
    assert ("compacted" in kinds(events)) is shortened


async def test_what_tools_have_answered_since_the_model_counted_is_counted_too() -> None:
    async def long(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        return ToolResult.of("z" * 4000)

    provider = Answers([reply("", call("long"), usage=Usage(100, 10))], [reply("brief")], [reply("ok")])
    async with resident(provider, Box(long=long), model=SMALL) as session:
        events = [event async for event in session.turn("go")]
    [compacted] = [event for event in events if isinstance(event, Compacted)]
    assert compacted.tokens == 110 + 1004


async def test_a_provider_that_does_not_count_leaves_it_to_a_guess() -> None:
    there = Conversation([resident_conversation.build_user_message("x" * 400), resident_conversation.build_user_message("y" * 400)])
    there.record_usage(Usage(500, 20))
    there.messages.append(resident_conversation.build_user_message("z" * 400))
    assert there.count_tokens() == 520 + 104
    there.record_usage(Usage())
    assert there.count_tokens() == 3 * 104


async def test_afterwards_it_is_as_long_as_what_is_left() -> None:
    async with resident(Answers([reply("x" * 4000, usage=Usage(5000, 10))], [reply("brief")])) as session:
        await session.turn("tell me")
        await session.compact()
        assert get_driver(session).conversation.count_tokens() == resident_conversation.estimate_tokens(conversation(session))


# -- by a compactor


async def test_a_compactor_that_hangs_is_given_up_and_that_is_told() -> None:
    async def compactor(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        await asyncio.Event().wait()
        raise AssertionError

    provider = Answers([reply("x" * 4000)], [reply("brief")])
    async with resident(provider, compactor=compactor, limits=QUICK.but(compact=0.02)) as session:
        await session.turn("tell me")
        async with asyncio.timeout(5.0):
            events = await compact(session)
        assert texts(conversation(session))[0].endswith("brief")
    [notice] = [event.notice.text for event in events if isinstance(event, NoticeEvent)]
    assert notice.endswith("summarised instead: TimeoutError")


async def test_what_a_compactor_leaves_is_made_whole() -> None:
    async def compactor(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        orphan = ModelMessage("tool", (TextBlock("whose?"),), call_id="gone")
        return [orphan, ModelMessage("assistant", (), (ToolCall("echo", {}, "c9"),))]

    async with resident(Answers([reply("x" * 4000)]), compactor=compactor) as session:
        await session.turn("tell me")
        await session.compact()
        assert is_whole(conversation(session))
        assert [message.role for message in conversation(session)] == ["assistant", "tool"]


async def test_what_a_compactor_makes_longer_is_not_taken() -> None:
    async def compactor(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        return [*messages, resident_conversation.build_user_message("and more")]

    async with resident(Answers([reply("x" * 4000)]), compactor=compactor) as session:
        await session.turn("tell me")
        before = list(conversation(session))
        assert await compact(session) == []
        assert conversation(session) == before


async def test_a_model_is_not_asked_again_about_what_could_not_be_shortened() -> None:
    async def compactor(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        return [*messages, resident_conversation.build_user_message("and more")]

    provider = Answers([ModelFailed("prompt is too long", status=400, too_long=True)])
    async with resident(provider, compactor=compactor) as session:
        with pytest.raises(ModelFailed, match="too long"):
            await session.turn("first")
    assert len(provider.requests) == 1


# -- by a summary


async def test_a_result_whose_call_goes_is_summarised_with_it() -> None:
    async def work(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        return ToolResult.of("z" * 1500 if call.id == "c1" else "THE RESULT")

    provider = Answers([reply("", call("work", "c1"), call("work", "c2"))], [reply("end", usage=FULL)], [reply("brief")])
    async with resident(provider, Box(work=work), model=SMALL) as session:
        await session.turn("go")
    assert "THE RESULT" in texts(provider.requests[-1].messages)[0]
    assert texts(conversation(session))[1:] == ["assistant: end"]


async def test_what_the_one_who_summarises_is_told_is_bounded_and_names_the_calls() -> None:
    messages = [*([reply("y" * 3000, call("echo", f"c{n}", path=f"file{n}"))] for n in range(4)), [reply("e", usage=FULL)]]
    provider = Answers(*messages, [reply("brief")])
    big = msgspec.structs.replace(MODEL, context_window=3000)
    async with resident(provider, model=big) as session:
        await session.turn("go")
        await session.compact()
    [told] = [text for text in texts(provider.requests[-1].messages) if "<conversation>" in text]
    said_of_it = told[told.index("<conversation>") :]
    assert len(said_of_it) < 3000 * 0.8 * 2 + 100
    assert "\n[…]\n" in said_of_it
    assert "y" * 2000 + "…" in said_of_it
    assert "y" * 2001 not in said_of_it
    assert "Assistant:\n  " in said_of_it
    assert "file3" in said_of_it or "calls echo" in said_of_it


async def test_a_call_is_told_to_the_one_who_summarises() -> None:
    provider = Answers([reply("look", call("echo", path="a.txt"))], [reply("x" * 4000)], [reply("brief")])
    async with resident(provider) as session:
        await session.turn("go")
        await session.compact()
    assert "calls echo {'path': 'a.txt'}" in texts(provider.requests[-1].messages)[0]


async def test_a_summary_costs_what_it_costs_and_is_asked_for_as_the_person_wishes_but_not_streamed() -> None:
    provider = Answers([reply("x" * 4000, usage=Usage(100, 10))], [Chunk("brief"), reply("brief", usage=Usage(50, 5))])
    options = ModelOptions(temperature=0.5)
    async with resident(provider, options=options) as session:
        await session.turn("tell me")
        events = await compact(session)
        assert get_driver(session).conversation.usage.input == 150
    [reported] = [event for event in events if isinstance(event, UsageReported)]
    assert reported.usage.input == 50
    assert reported.usage.cost_usd == pytest.approx(0.00006)
    assert reported.total is not None
    assert reported.total.input == 150
    assert not any(isinstance(event, Text) for event in events)
    assert provider.requests[-1].options == options


async def test_an_empty_summary_is_none() -> None:
    provider = Answers([reply("x" * 400)], [reply("y" * 4000)], [reply("  \n")])
    async with resident(provider) as session:
        await session.turn("first")
        await session.turn("second")
        events = await compact(session)
        assert texts(conversation(session))[0] == "user: first"
        assert not any("Summary" in text for text in texts(conversation(session)))
    assert any("it gave no summary" in event.notice.text for event in events if isinstance(event, NoticeEvent))


async def test_results_that_stay_are_kept_with_the_names_of_their_tools(tmp_path: Path) -> None:
    provider = Answers([reply("x" * 4000)], [reply("", call("echo", "c1"))], [reply("end")], [reply("brief")])
    stored = SessionFolder(str(tmp_path)).create("/app")
    made = resident(provider, Box(echo=echo))
    async with Session(made.driver, store=stored, limits=QUICK) as session:
        await session.turn("one")
        await session.turn("two")
        await session.compact()
        assert "tool: echo: {}" in texts(conversation(session))
    with SessionFolder(str(tmp_path)).open(stored.id) as again:
        [result] = [message for message in again.read_messages() if isinstance(message, ToolResultMessage)]
    assert result.tool_name == "echo"
