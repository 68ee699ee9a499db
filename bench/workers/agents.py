"""Driven agents: what a session, a turn and an approval cost beside the agent.

agents mock SESSIONS STEPS      so many mock sessions at once, each with so many approvals
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter, process_time

import serai
from serai.agents.drivers.mock.script import build_linear
from serai.agents.turn import run_turn
from serai.model.approvals import Allow
from serai.model.surface import ScriptedSurface


async def mock(sessions: int, steps: int) -> dict[str, float]:
    script = build_linear(steps)

    async def one(number: int) -> int:
        surface = ScriptedSurface(default=Allow())
        async with serai.agent("mock", script=script) as session:
            result = await run_turn(session.turn(f"number {number}"), surface)
        assert result.ok
        return surface.calls

    await one(0)  # imports
    wall, cpu = perf_counter(), process_time()
    answered = sum(await asyncio.gather(*map(one, range(sessions))))
    wall, cpu = perf_counter() - wall, process_time() - cpu
    assert answered == sessions * steps, "a session that lost an approval gets no number"
    return {"per_second": answered / wall, "cpu_us": cpu / answered * 1e6}


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    print(json.dumps(asyncio.run({"mock": mock}[what](*map(int, arguments)))))
