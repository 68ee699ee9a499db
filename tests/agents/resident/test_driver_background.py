"""Background runs of the resident driver: what they do, who waits for them, cancels them or is not there to approve."""

from __future__ import annotations

import asyncio

import pytest

from serai.agents.resident.driver import BackgroundRuns, Resident, make_key
from serai.agents.resident.run_context import RunContext
from serai.agents.session import Session
from serai.errors import ModelFailed, NotAllowed
from serai.model.events import Event, NoticeEvent
from serai.model.tools import ProgressCallback, ToolCall, ToolResult, ToolSpec
from tests.support.agents.conversations import get_driver
from tests.support.agents.scripted_models import MODEL, QUICK, Answers, Box, call, conversation, echo, kinds, reply, resident, texts


@pytest.mark.req("piglet.rule.background-tools")
async def test_it_has_only_the_tools_that_may_run_unseen_keeps_nothing_and_tells_its_answer() -> None:
    used: list[str] = []

    async def look(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        used.append(call.name)
        return ToolResult.of("seen")

    box = Box(look=(ToolSpec("look", background=True), look), guest=echo)
    provider = Answers([reply("", call("look", "c1"), call("guest", "c2"))], [reply("all is well")])
    async with resident(provider, box) as session:
        heard: list[Event] = []
        session.listen(heard.append)
        driver = get_driver(session)
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
    provider = Answers([reply("")], [ModelFailed("down")])
    async with resident(provider) as session:
        side = get_driver(session).backgrounds
        assert await side.result(side.start("quiet")) == "Background task: quiet\n\n(background task produced no output)"
        assert "it failed: down" in await side.result(side.start("loud"))


@pytest.mark.req("piglet.rule.background-key")
async def test_one_of_each_key_runs_and_others_beside_it() -> None:
    gate = asyncio.Event()
    provider = Answers([gate, reply("done")])
    async with resident(provider) as session:
        side = get_driver(session).backgrounds
        first = side.start("12345678901234567890 and more")
        assert first == "12345678901234567890…"
        with pytest.raises(NotAllowed, match='background task "12345678901234567890…" already running'):
            side.start("12345678901234567890 and something else")
        second = side.start("another")
        assert second == "another"
        assert list(side.running) == [first, second]
        gate.set()
        await side.wait_idle()
        assert not side.running
        assert side.start("another") == "another"
        await side.wait_idle()


@pytest.mark.req("piglet.rule.loop-limits")
async def test_it_has_five_steps() -> None:
    box = Box(look=(ToolSpec("look", background=True), echo))
    provider = Answers([reply("again", call("look"))])
    async with resident(provider, box) as session:
        side = get_driver(session).backgrounds
        assert "limit steps = 5" in await side.result(side.start("go"))
    assert len(provider.requests) == 5


async def test_it_can_be_cancelled_and_ends_with_the_session() -> None:
    before = asyncio.all_tasks()
    provider = Answers([asyncio.Event()])
    async with resident(provider, limits=QUICK) as session:
        side = get_driver(session).backgrounds
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
    provider = Answers([gate, reply("side")], [reply("main")])
    async with resident(provider) as session:
        side = get_driver(session).backgrounds
        key = side.start("on the side")
        while not provider.requests:
            await asyncio.sleep(0)
        assert (await session.turn("go")).text == "main"
        gate.set()
        assert (await side.result(key)).endswith("side")


def get_runs(session: Session) -> BackgroundRuns:
    assert isinstance(session.driver, Resident)
    return session.driver.backgrounds


@pytest.mark.req("piglet.rule.background-tools")
@pytest.mark.parametrize("step_mode", [False, True])
async def test_where_a_person_would_be_asked_nothing_runs(step_mode: bool) -> None:
    box = Box(look=(ToolSpec("look", background=True), echo))
    provider = Answers([reply("", call("look"))], [reply("ok")])
    async with resident(provider, box, decide=None, step_mode=step_mode) as session:
        heard: list[Event] = []
        session.listen(heard.append)
        async with asyncio.timeout(5.0):
            assert (await get_runs(session).result(get_runs(session).start("go"))).endswith("ok")
        assert session.pending == ()
        assert kinds(heard) == ["noticed"]
    assert box.calls == []
    told = texts(provider.requests[1].messages)[-1]
    assert told == (
        "tool: Tool execution skipped by user" if step_mode else "tool: [error:PERMISSION_DENIED] nobody is there to approve it"
    )


@pytest.mark.req("piglet.rule.background-tools")
async def test_blanks_are_no_output() -> None:
    async with resident(Answers([reply(" \n ")])) as session:
        assert (await get_runs(session).result(get_runs(session).start("go"))).endswith("\n\n(background task produced no output)")


async def test_a_defect_on_the_side_is_told_and_goes_no_further(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Box):
        def list(self) -> list[ToolSpec]:
            raise KeyError("oops")

    driver = Resident(RunContext(model=MODEL, provider=Answers([reply("ok")]), limits=QUICK), Broken())
    async with Session(driver, limits=QUICK) as session:
        heard: list[Event] = []
        session.listen(heard.append)
        assert (await get_runs(session).result(get_runs(session).start("go"))).endswith("it failed: KeyError: 'oops'")
        assert kinds(heard) == ["noticed"]
        assert not get_runs(session).running
    assert "a background run failed" in caplog.text


async def test_who_stops_waiting_for_it_does_not_stop_it() -> None:
    gate = asyncio.Event()
    async with resident(Answers([gate, reply("ok")])) as session:
        key = get_runs(session).start("go")
        waiting = asyncio.ensure_future(get_runs(session).result(key))
        for _ in range(3):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert get_runs(session).running == (key,)
        gate.set()
        assert (await get_runs(session).result(key)).endswith("ok")


async def test_what_does_not_run_has_no_result() -> None:
    async with resident(Answers([reply("ok")])) as session:
        assert await get_runs(session).result("nothing") == ""


@pytest.mark.req("piglet.rule.background-key")
def test_a_key_is_the_prompt_or_its_first_twenty_characters() -> None:
    assert make_key("x" * 20) == "x" * 20
    assert make_key("é" * 21) == "é" * 20 + "…"
