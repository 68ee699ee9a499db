"""However the real program is ended, nothing that it started is left: its tools run in sessions of their own."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

from serai.errors import PeerTimeout
from serai.model.approvals import Approval
from serai.model.events import Text
from tests.support.claude.real_claude import LIMITS, Real, build_sleep_prompt

BASH = {"allowed_tools": ("Bash",)}
HOST = """
import asyncio, serai
from serai.agents.drivers.claude.options import ClaudeOptions

async def main():
    options = ClaudeOptions(model="claude-sonnet-4-5", allowed_tools=("Bash",))
    async with serai.agent("claude", cwd=".", settings={}, options=options) as session:
        await session.turn(open("prompt").read())

asyncio.run(main())
"""


@pytest.mark.req("agents.live.Z14", "agents.must.08")
async def test_a_turn_that_is_interrupted_leaves_no_tool(real: Real) -> None:
    async with real.agent(options=BASH) as session:
        before: set[int] = set()
        turn = session.turn(build_sleep_prompt())
        async with turn:
            await real.begun()
            before = real.processes()
            await turn.cancel("enough")
        assert turn.outcome is not None
        assert turn.outcome.status == "cancelled"
        await real.until(lambda: len(real.processes()) == 1)  # the program itself
        assert len(before) > 1
        assert (await session.turn(">> say and on")).text == "and on"
    assert not await real.leftovers()


async def test_an_interrupt_withdraws_what_is_asked(real: Real) -> None:
    async with real.agent() as session:
        turn = session.turn('>> call Bash {"command": "echo one > made"}\n>> say done')
        async with turn:
            async for event in turn:
                if isinstance(event, Approval):
                    break
            [asked] = session.pending
            await turn.cancel("enough")
        assert asked.answered
        assert not session.pending
        assert (await session.turn(">> say and on")).text == "and on"
    assert not (real.cwd / "made").exists()


async def test_an_interrupt_while_text_comes_ends_the_turn(real: Real) -> None:
    async with real.agent() as session:
        turn = session.turn(">> say a b c\n>> hang")
        async with turn:
            async for event in turn:
                if isinstance(event, Text):
                    break
            await turn.cancel("enough")
        assert turn.outcome is not None
        assert turn.outcome.status == "cancelled"
        assert (await session.turn(">> say and on")).text == "and on"


async def test_leaving_a_session_in_the_middle_of_a_tool_leaves_nothing(real: Real) -> None:
    async with real.agent(options=BASH) as session:
        await session.send(build_sleep_prompt())
        await real.begun()
    assert not await real.leftovers()


async def test_a_session_leaves_no_tool_of_the_background(real: Real) -> None:
    async with real.agent(options=BASH) as session:
        assert (await session.turn(build_sleep_prompt(background=True))).text == "slept"
        await real.begun()
        assert len(real.processes()) > 1
    assert not await real.leftovers()


async def test_a_turn_that_takes_too_long_is_ended_with_its_tool(real: Real) -> None:
    async with real.agent(options=BASH, limits=LIMITS.but(agent_turn=4.0)) as session:
        turn = session.turn(build_sleep_prompt())
        with pytest.raises(PeerTimeout, match="agent_turn"):
            await turn
        assert turn.outcome is not None
        assert turn.outcome.status == "error"
    assert not await real.leftovers()


@pytest.mark.req("agents.rule.78")
async def test_a_close_that_is_cancelled_still_ends_everything(real: Real) -> None:
    session = real.agent(options=BASH)
    await session.open()
    await session.send(build_sleep_prompt())
    await real.begun()
    closing = asyncio.ensure_future(session.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await real.until(lambda: not real.processes())
    await session.close()


@pytest.mark.req("agents.rule.78")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_is_left_when_the_host_is_killed(real: Real, number: signal.Signals) -> None:
    (real.cwd / "prompt").write_text(build_sleep_prompt())
    host = await asyncio.create_subprocess_exec(sys.executable, "-c", HOST, cwd=real.cwd, env=real.environ)
    await real.begun()
    assert len(real.processes()) > 2
    host.send_signal(number)
    await host.wait()
    assert not await real.leftovers()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_nothing_is_left_of_a_run_that_is_ended(real: Real, number: signal.Signals) -> None:
    options = ("--agent", "claude", "--model", "claude-sonnet-4-5", "--mode", "skip")
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "serai", "run", *options, build_sleep_prompt()),
        cwd=real.cwd,
        env={**real.environ, "SERAI_HOME": str(real.root / "serai")},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    reading = asyncio.ensure_future(run.communicate())
    await real.begun()
    run.send_signal(number)
    output, _ = await reading
    assert run.returncode in (-number, 128 + number), output.decode()
    assert not await real.leftovers()
