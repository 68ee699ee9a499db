"""What goes wrong around the real program: the model API, its process, its conversations."""

from __future__ import annotations

import os
import signal

import pytest

from serai.errors import AgentFailed, SeraiError
from serai.model.events import Retrying, ToolEnded
from serai.testing.models.reply import Fault
from tests.support.claude.real_claude import LIMITS, Real, build_sleep_prompt, collect_events, select_events


@pytest.mark.parametrize("status", [400, 401, 500])
async def test_an_error_of_the_api_is_the_turns_error(real: Real, status: int) -> None:
    """It comes as a result of subtype success, as seen with 2.1.325."""
    async with real.agent() as session:
        turn = session.turn(f">> fail {status} it is broken")
        with pytest.raises(AgentFailed, match=str(status)):
            await turn
        assert turn.outcome is not None
        assert turn.outcome.status == "error"
        assert (await session.turn(">> say still here")).text == "still here"


async def test_a_retry_is_told(real: Real) -> None:
    environ = {"CLAUDE_CODE_MAX_RETRIES": "1"}
    real.models.fault(Fault("status", status=500))
    async with real.agent(options={"env": environ}) as session:
        turn = session.turn(">> say at last")
        seen = await collect_events(turn)
        assert (await turn).text == "at last"
    assert select_events(seen, Retrying)


async def test_a_stream_that_is_cut_is_asked_for_again(real: Real) -> None:
    real.models.fault(Fault("cut"))
    async with real.agent(options={"env": {"CLAUDE_CODE_MAX_RETRIES": "2"}}) as session:
        turn = session.turn(">> say whole again")
        seen = await collect_events(turn)
        result = await turn
    assert result.text == "whole again"
    assert result.status == "success"
    assert seen


async def test_an_output_of_a_megabyte_is_no_problem(real: Real) -> None:
    command = "python3 -c \\\"print('x' * 1000000)\\\""
    async with real.agent(options={"allowed_tools": ("Bash",)}) as session:
        turn = session.turn(f'>> call Bash {{"command": "{command}"}}\n>> say done')
        seen = await collect_events(turn)
        assert (await turn).text == "done"
    [ended] = select_events(seen, ToolEnded)
    assert not ended.result.is_error
    assert "xxxx" in ended.result.content[0].text


async def test_an_answer_of_a_megabyte_comes_whole(real: Real) -> None:
    async with real.agent() as session:
        result = await session.turn(">> repeat 100000 say 0123456789")
    assert len(result.text) == 1_000_000


@pytest.mark.req("agents.live.Z9")
async def test_an_unknown_conversation_cannot_be_gone_on_with(real: Real) -> None:
    async with real.agent(resume="11111111-2222-4333-8444-555555555555") as session:
        with pytest.raises(AgentFailed, match="No conversation found with session ID: 11111111-2222-4333-8444-555555555555"):
            await session.turn(">> say hello")


@pytest.mark.req("agents.live.Z8", "agents.must.07")
async def test_a_conversation_that_another_process_has_is_in_use(real: Real) -> None:
    id = "11111111-2222-4333-8444-666666666666"
    async with real.agent(session_id=id) as first:
        await first.turn(">> say hello")
        async with real.agent(session_id=id) as second:
            with pytest.raises(SeraiError, match="already in use") as caught:
                await second.turn(">> say hello")
    assert isinstance(caught.value, AgentFailed)
    assert caught.value.kind == "session_in_use"


async def test_a_process_that_is_killed_ends_its_turn_and_leaves_nothing(real: Real) -> None:
    async with real.agent(options={"allowed_tools": ("Bash",)}) as session:
        turn = session.turn(build_sleep_prompt())
        async with turn:
            await real.begun()
            os.kill(_program(real), signal.SIGKILL)
            with pytest.raises(SeraiError, match="SIGKILL|signal 9|killed"):
                await collect_events(turn)
        assert not await real.leftovers()
        with pytest.raises(SeraiError):
            await session.turn(">> say are you there")


@pytest.mark.req("agents.live.Z13")
async def test_a_process_that_ends_by_sigterm_has_not_succeeded(real: Real) -> None:
    async with real.agent(options={"allowed_tools": ("Bash",)}) as session:
        turn = session.turn(build_sleep_prompt())
        async with turn:
            await real.begun()
            os.kill(_program(real), signal.SIGTERM)
            with pytest.raises(SeraiError, match="143"):
                await collect_events(turn)
        assert turn.outcome is not None
        assert turn.outcome.status == "error"


async def test_what_keeps_it_from_starting_is_told(real: Real) -> None:
    async with real.agent(options={"extra": {"no-such-flag": None}}, limits=LIMITS) as session:
        with pytest.raises(SeraiError, match="no-such-flag"):
            await session.turn(">> say hello")


def _program(real: Real) -> int:
    """The process of the program itself."""
    for pid in real.processes():
        if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(real.program):
            return pid
    raise AssertionError("it does not run")
