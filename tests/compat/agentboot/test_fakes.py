"""What is shipped for tests of whatever stands around agents, and works together (spec agents 5.1)."""

from __future__ import annotations

import asyncio

import pytest

import serai
from serai.agents.drivers.mock.script import Assistant, Permission, Wait
from serai.agents.turn import run_turn
from serai.compat.agentboot.fakes import FakeFactory, FakeProcess
from serai.compat.agentboot.options import LaunchSpec
from serai.errors import ExitStatus
from serai.model.approvals import Allow, Deny
from serai.model.surface import ScriptedSurface


@pytest.mark.req("agents.must.05")
async def test_a_mock_agent_a_scripted_spawner_and_a_scripted_surface_work_together() -> None:
    """A turn that waits for a process which is none, and asks a person who is none."""
    ran = asyncio.Event()

    async def program(process: FakeProcess) -> None:
        process.write_output(b"you said " + await process.stdin_line(0))
        process.finish_output()
        process.signal_exit()
        ran.set()

    spawner = FakeFactory(lambda _spec, process: program(process))
    surface = ScriptedSurface([Allow(), Deny("enough")])
    script = [Permission(tool="run"), Wait(event=ran), Assistant(text="it ran"), Permission(tool="again")]
    async with serai.agent("mock", script=script) as session:
        turn = await session.send("go")
        turn.taken = True
        process = await spawner.start(LaunchSpec(command=["greeter", "-v"]))
        output = process.stdout
        await process.write(b"hello\n")
        result = await run_turn(turn, surface)
        assert (await output.read()).strip() == b"you said hello"
        await process.close()
    assert [spec.command for spec in spawner.specs] == [["greeter", "-v"]]
    assert (process.stdin_bytes, process.exit_status) == (b"hello\n", ExitStatus(code=0))
    assert (result.status, result.text, result.error, surface.calls) == ("denied", "it ran", "enough", 2)
