"""How things end: silence, processes, the time of a turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic

from serai.errors import AgentFailed, PeerTimeout
from serai.model.approvals import Allow
from serai.model.events import Event, StateChanged, ToolEnded
from serai.testing.claude.script import Script
from tests.support.claude.interceptors import make_judge
from tests.support.claude.scripted_sessions import AGENT, ASKS, QUICK, driver_of, play, program, scripted_session, wait_for


async def test_one_that_says_that_it_takes_our_hook_needs_no_version(tmp_path: Path) -> None:
    source = """
first = hear()
reply(first, {"hooks_applied": True})
hear()
say("system", subtype="init", model="fake")
result("one")
rest()
"""
    async with program(tmp_path, source, judge=make_judge(Allow())) as session:
        assert (await play(session)).result.text == "one"


async def test_between_two_turns_silence_is_no_stall(tmp_path: Path) -> None:
    _, session = scripted_session(tmp_path, Script().init().result("one"))
    told: list[StateChanged] = []
    async with session:
        await play(session)

        def listen(event: Event) -> None:
            if isinstance(event, StateChanged):
                told.append(event)

        session.listen(listen)
        driver_of(session).on_tick(monotonic() + 10_000)
    assert "stalled" not in [event.state for event in told]


async def test_what_a_sub_agent_called_has_an_end_when_the_process_is_gone(tmp_path: Path) -> None:
    source = AGENT.format(before=ASKS, after='hear()\nos._exit(3)\ndecided = ""')
    async with program(tmp_path, source) as session:
        await play(session, answer=None)
        ended = asyncio.ensure_future(wait_for(session, lambda event: isinstance(event, ToolEnded) and event.lane == "t1"))
        await asyncio.sleep(0)
        driver_of(session).steer("go on")
        event = await ended
        assert not driver_of(session).translator.tasks
    assert isinstance(event, ToolEnded)
    assert (event.call.id, event.result.code) == ("t2", "TOOL_INTERRUPTED")


async def test_an_end_without_a_kind_of_its_own_says_how_it_ended(tmp_path: Path) -> None:
    _, session = scripted_session(tmp_path, Script().init().exits(3))
    async with session:
        seen = await play(session)
    assert isinstance(seen.error, AgentFailed)
    assert "ended (exit status 3)" in str(seen.error)


async def test_the_time_of_a_turn_can_be_said_with_its_options(tmp_path: Path) -> None:
    async with program(tmp_path, "greet()\ninit()\nrest()\n", limits=QUICK, timeout=1.0) as session:
        seen = await play(session)
    assert isinstance(seen.error, PeerTimeout)
    assert seen.error.limit is not None
    assert (seen.error.limit.name, seen.error.limit.value) == ("agent_turn", 1.0)


async def test_no_time_said_is_the_usual_one(tmp_path: Path) -> None:
    async with program(
        tmp_path, "greet()\ninit()\nresult('one')\nrest()\n", limits=QUICK.but(agent_turn=77.0), timeout=0.0
    ) as session:
        assert driver_of(session).context.limits.agent_turn == 77.0
        assert (await play(session)).result.text == "one"
