"""Very long lines: they come whole, and nobody else waits while they come (spec agents 7.27).

What came is read into values on the loop, in one call that holds the interpreter's lock, so that a thread would not free it: a line
of 1 MiB takes about 3 ms in either place, one of 16 MiB about 50 ms.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from serai.model.events import ToolEnded
from tests.support.claude.scripted_sessions import program

SIZE = 16 << 20
SOURCE = f"""
greet()
init()
called("t-1", "Bash", command="cat big")
told("t-1", "x" * {SIZE})
say("result", subtype="success", is_error=False, result="done", num_turns=1)
hear()
"""


@pytest.mark.req("agents.edge.27")
async def test_the_loop_serves_others_while_a_very_long_line_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = 0
    read = os.read
    reads: list[tuple[int, int]] = []  # how often others were served by then, and how much came

    def noted(fd: int, size: int) -> bytes:
        chunk = read(fd, size)
        reads.append((served, len(chunk)))
        return chunk

    async def others() -> None:
        nonlocal served
        while True:
            served += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(os, "read", noted)
    async with program(tmp_path, SOURCE) as session:
        busy = asyncio.create_task(others())
        turn = session.turn("go")
        ended = [event async for event in turn if isinstance(event, ToolEnded)]
        busy.cancel()
    assert [len(event.result.text) for event in ended] == [SIZE]
    assert (await turn.result()).text == "done"
    assert sum(size for _, size in reads) > SIZE
    # A wire has half a millisecond at a time, in which no machine reads all of it.
    most = max(sum(size for at, size in reads if at == one) for one in {at for at, _ in reads})
    assert most < SIZE / 2
