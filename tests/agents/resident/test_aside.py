"""Work on the side, and who waits for it, breaks it or is not there to approve it."""

from __future__ import annotations

import asyncio

import pytest

from serai.agents.resident.driver import BackgroundRuns, Resident, key_of
from serai.agents.resident.run_context import RunContext
from serai.agents.session import Session
from serai.model.events import Event
from serai.model.tools import ToolSpec
from tests.agents.resident.parts import MODEL, QUICK, Answers, Box, call, echo, kinds, resident, said, texts


def side(session: Session) -> BackgroundRuns:
    assert isinstance(session.driver, Resident)
    return session.driver.backgrounds


@pytest.mark.req("piglet.rule.background-tools")
@pytest.mark.parametrize("step_mode", [False, True])
async def test_where_a_person_would_be_asked_nothing_runs(step_mode: bool) -> None:
    box = Box(look=(ToolSpec("look", background=True), echo))
    provider = Answers([said("", call("look"))], [said("ok")])
    async with resident(provider, box, decide=None, step_mode=step_mode) as session:
        heard: list[Event] = []
        session.listen(heard.append)
        async with asyncio.timeout(5.0):
            assert (await side(session).result(side(session).start("go"))).endswith("ok")
        assert session.pending == ()
        assert kinds(heard) == ["noticed"]
    assert box.calls == []
    told = texts(provider.requests[1].messages)[-1]
    assert told == (
        "tool: Tool execution skipped by user" if step_mode else "tool: [error:PERMISSION_DENIED] nobody is there to approve it"
    )


@pytest.mark.req("piglet.rule.background-tools")
async def test_blanks_are_no_output() -> None:
    async with resident(Answers([said(" \n ")])) as session:
        assert (await side(session).result(side(session).start("go"))).endswith("\n\n(background task produced no output)")


async def test_a_defect_on_the_side_is_told_and_goes_no_further(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Box):
        def list(self) -> list[ToolSpec]:
            raise KeyError("oops")

    driver = Resident(RunContext(model=MODEL, provider=Answers([said("ok")]), limits=QUICK), Broken())
    async with Session(driver, limits=QUICK) as session:
        heard: list[Event] = []
        session.listen(heard.append)
        assert (await side(session).result(side(session).start("go"))).endswith("it failed: KeyError: 'oops'")
        assert kinds(heard) == ["noticed"]
        assert not side(session).running
    assert "a background run failed" in caplog.text


async def test_who_stops_waiting_for_it_does_not_stop_it() -> None:
    gate = asyncio.Event()
    async with resident(Answers([gate, said("ok")])) as session:
        key = side(session).start("go")
        waiting = asyncio.ensure_future(side(session).result(key))
        for _ in range(3):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert side(session).running == (key,)
        gate.set()
        assert (await side(session).result(key)).endswith("ok")


async def test_what_does_not_run_has_no_result() -> None:
    async with resident(Answers([said("ok")])) as session:
        assert await side(session).result("nothing") == ""


@pytest.mark.req("piglet.rule.background-key")
def test_a_key_is_the_prompt_or_its_first_twenty_characters() -> None:
    assert key_of("x" * 20) == "x" * 20
    assert key_of("é" * 21) == "é" * 20 + "…"
