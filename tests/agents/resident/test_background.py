"""Work on the side."""

from __future__ import annotations

import asyncio

import pytest

from serai.agents.resident.driver import Resident
from serai.agents.session import Session
from serai.errors import ModelFailed, NotAllowed
from serai.model.events import Event, NoticeEvent
from serai.model.tools import ProgressCallback, ToolCall, ToolResult, ToolSpec
from tests.agents.resident.parts import QUICK, Answers, Box, call, conversation, echo, resident, said, texts


def backgrounds(session: Session) -> Resident:
    assert isinstance(session.driver, Resident)
    return session.driver


@pytest.mark.req("piglet.rule.background-tools")
async def test_it_has_only_the_tools_that_may_run_unseen_keeps_nothing_and_tells_its_answer() -> None:
    used: list[str] = []

    async def look(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        used.append(call.name)
        return ToolResult.of("seen")

    box = Box(look=(ToolSpec("look", background=True), look), guest=echo)
    provider = Answers([said("", call("look", "c1"), call("guest", "c2"))], [said("all is well")])
    async with resident(provider, box) as session:
        heard: list[Event] = []
        session.listen(heard.append)
        driver = backgrounds(session)
        key = driver.backgrounds.start("look after it")
        said_at_end = await driver.backgrounds.result(key)
        assert said_at_end == "Background task: look after it\n\nall is well"
        assert used == ["look"]
        assert [tool.name for tool in provider.requests[0].tools] == ["look"]
        assert texts(provider.requests[1].messages)[-1] == "tool: unknown tool: guest"
        assert [event.notice.text for event in heard if isinstance(event, NoticeEvent)] == [said_at_end]
        assert len(heard) == 1
        assert conversation(session) == []
        assert not driver.backgrounds.running


@pytest.mark.req("piglet.rule.background-tools")
async def test_one_that_says_nothing_and_one_that_fails_say_so() -> None:
    provider = Answers([said("")], [ModelFailed("down")])
    async with resident(provider) as session:
        side = backgrounds(session).backgrounds
        assert await side.result(side.start("quiet")) == "Background task: quiet\n\n(background task produced no output)"
        assert "it failed: down" in await side.result(side.start("loud"))


@pytest.mark.req("piglet.rule.background-key")
async def test_one_of_each_key_runs_and_others_beside_it() -> None:
    gate = asyncio.Event()
    provider = Answers([gate, said("done")])
    async with resident(provider) as session:
        side = backgrounds(session).backgrounds
        first = side.start("12345678901234567890 and more")
        assert first == "12345678901234567890…"
        with pytest.raises(NotAllowed, match='background task "12345678901234567890…" already running'):
            side.start("12345678901234567890 and something else")
        second = side.start("another")
        assert second == "another"
        assert list(side.running) == [first, second]
        gate.set()
        await side.idle()
        assert not side.running
        assert side.start("another") == "another"
        await side.idle()


@pytest.mark.req("piglet.rule.loop-limits")
async def test_it_has_five_steps() -> None:
    box = Box(look=(ToolSpec("look", background=True), echo))
    provider = Answers([said("again", call("look"))])
    async with resident(provider, box) as session:
        side = backgrounds(session).backgrounds
        assert "limit steps = 5" in await side.result(side.start("go"))
    assert len(provider.requests) == 5


async def test_it_can_be_cancelled_and_ends_with_the_session() -> None:
    before = asyncio.all_tasks()
    provider = Answers([asyncio.Event()])
    async with resident(provider, limits=QUICK) as session:
        side = backgrounds(session).backgrounds
        side.start("one")
        side.start("two")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await side.cancel("one")
        assert list(side.running) == ["two"]
    assert not side.running
    assert asyncio.all_tasks() == before
    assert provider.closed == len(provider.requests)


async def test_a_turn_runs_beside_it() -> None:
    gate = asyncio.Event()
    provider = Answers([gate, said("side")], [said("main")])
    async with resident(provider) as session:
        side = backgrounds(session).backgrounds
        key = side.start("on the side")
        while not provider.requests:
            await asyncio.sleep(0)
        assert (await session.turn("go")).text == "main"
        gate.set()
        assert (await side.result(key)).endswith("side")
