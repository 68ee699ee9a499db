"""From the start of the real Claude Code to its first event: `python -m bench.workers.claude_first PROGRAM PAIRS`.

The variables of its API are in the environment.

Each pair is one session of Serai's and one bare start: the same command line and environment, the same two lines written at once,
and the same line waited for. Imports and the first start of each do not count.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Literal
from uuid import uuid4

import msgspec

import serai
from serai.errors import SeraiError
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Child, Launch
from serai.wire.stream import Oversize

PROMPT = ">> say hello"
QUIET = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_ERROR_REPORTING", "DISABLE_TELEMETRY")


class Noting:
    """Starts processes, and keeps how, and what they were told."""

    def __init__(self, spawner: PlainSpawner) -> None:
        self._spawner = spawner
        self.launch: Launch | None = None
        self.told: list[bytes] = []

    async def spawn(self, launch: Launch) -> Child:
        self.launch, self.told = launch, []
        return await self._spawner.spawn(launch)

    def frames(self, direction: Literal["sent", "received"], at: float, run: bytes) -> None:
        if direction == "sent":
            self.told.append(run)

    def skipped(self, at: float, frame: Oversize) -> None: ...
    def ended(self, at: float, cause: SeraiError) -> None: ...


def place(folder: Path, program: str) -> dict[str, str]:
    """An environment from nothing, in which there is one Claude Code."""
    for name in ("home", "project", "tmp", "bin"):
        (folder / name).mkdir()
    (folder / "bin" / "claude").symlink_to(program)
    api = {name: value for name, value in os.environ.items() if name.startswith("ANTHROPIC_")}
    path = os.pathsep.join((str(folder / "bin"), os.defpath))
    known = {"PATH": path, "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "LANG": "C.UTF-8", "SHELL": "/bin/sh"}
    return {**known, **api, **dict.fromkeys(QUIET, "1"), "CLAUDE_CODE_MAX_RETRIES": "0"}


def kind_of(line: Any) -> tuple[str, str]:
    frame = msgspec.json.decode(line)
    return frame["type"], str(frame.get("subtype", ""))


async def ours(noting: Noting, environ: Mapping[str, str], cwd: str) -> tuple[float, tuple[str, str]]:
    """Milliseconds to the first event of the process's own, and its line's kind."""
    start = perf_counter()
    made = serai.agent("claude", cwd=cwd, environ=environ, settings={}, spawner=noting, tap=lambda _pid: noting)
    async with made as session:
        turn = session.turn(PROMPT)
        async for event in turn:
            if event.native is not None:
                taken = (perf_counter() - start) * 1e3
                await turn.result()
                return taken, kind_of(event.native)
    raise AssertionError("nothing came of it")


def bare(noting: Noting, kind: tuple[str, str]) -> float:
    """Milliseconds to the same line of a process that is started likewise."""
    launch = noting.launch
    assert launch is not None
    argv = [f"--session-id={uuid4()}" if word.startswith("--session-id=") else word for word in launch.argv]
    assert argv != list(launch.argv), "it would be the same session once more"
    hello = b"".join(noting.told)
    assert hello.count(b"\n") == 2, "it was told more than its first two lines"
    start = perf_counter()
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(launch.env), cwd=launch.cwd
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(hello)
        process.stdin.flush()
        while kind_of(process.stdout.readline()) != kind:
            pass
        taken = (perf_counter() - start) * 1e3
        while kind_of(process.stdout.readline())[0] != "result":
            pass
        process.stdin.close()
        process.stdout.read()
    return taken


async def main(program: str, pairs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        environ = place(Path(folder), program)
        async with PlainSpawner() as spawner:
            noting = Noting(spawner)
            serais, bares = [], []
            for _ in range(pairs + 1):
                taken, kind = await ours(noting, environ, f"{folder}/project")
                serais.append(taken)
                bares.append(bare(noting, kind))
            return {
                "bare": median(bares[1:]),
                "serai": median(serais[1:]),
                "more": median(one - other for one, other in zip(serais[1:], bares[1:], strict=True)),
                "first": serais[0],
            }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2])))))
