"""A program that is to outlive us, and a child whose stdout is a file of ours."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from pathlib import Path

import pytest

from serai.errors import SpawnFailed
from serai.wire import process_tree
from serai.wire.plain_process import DetachedProcess, PlainSpawner
from serai.wire.process import Launch
from tests.support.processes import lives

pytestmark = pytest.mark.loops

TELLS = """
import json, os, sys
told = {"session": os.getsid(0), "pid": os.getpid(), "tag": os.environ.get("SERAI_RUN"), "mine": os.environ.get("MINE")}
print(json.dumps(told), flush=True)
sys.stdin.read()
"""


async def read_line(descriptor: int) -> bytes:
    os.set_blocking(descriptor, True)
    return await asyncio.to_thread(os.read, descriptor, 4096)


@pytest.mark.req("wire.detached.outlives")
async def test_it_has_a_session_of_its_own_and_no_tag_and_ends_when_its_input_does(
    python: list[str], environ: dict[str, str]
) -> None:
    env = environ | {process_tree.TAG: "somebody", "MINE": "yes"}
    program = DetachedProcess(Launch(argv=[*python, TELLS], env=env))
    told = json.loads(await read_line(program.stdout))
    assert told == {"session": program.pid, "pid": program.pid, "tag": None, "mine": "yes"}
    await program.end(30)
    assert process_tree.read_process(program.pid) is None  # reaped, too
    program.let_go()


@pytest.mark.req("wire.detached.outlives")
async def test_a_spawner_that_closes_does_not_take_it_along(python: list[str], environ: dict[str, str]) -> None:
    async with PlainSpawner():
        program = DetachedProcess(Launch(argv=[*python, TELLS], env=environ))
        await read_line(program.stdout)
    assert lives(program.pid)
    await program.end(30)


async def test_one_that_does_not_end_is_killed(python: list[str], environ: dict[str, str]) -> None:
    program = DetachedProcess(Launch(argv=[*python, "print('there', flush=True)\nwhile True: pass"], env=environ))
    await read_line(program.stdout)
    await program.end(0.05)
    assert not lives(program.pid)


async def test_what_it_says_goes_to_a_file_where_wanted(python: list[str], environ: dict[str, str], tmp_path: Path) -> None:
    with open(tmp_path / "log", "ab") as log:
        program = DetachedProcess(Launch(argv=[*python, "import sys; sys.stderr.write('words')"], env=environ, stderr=log.fileno()))
    await program.end(30)
    assert (tmp_path / "log").read_text() == "words"


async def test_what_cannot_be_started_is_told_and_leaves_nothing(environ: dict[str, str]) -> None:
    gc.collect()  # what others left would be closed in between
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(SpawnFailed, match="/nowhere/program does not exist"):
        DetachedProcess(Launch(argv=["/nowhere/program"], env=environ))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.req("wire.process.stdout-file")
async def test_a_childs_stdout_may_be_a_file_of_ours(spawner: PlainSpawner, environ: dict[str, str], tmp_path: Path) -> None:
    with open(tmp_path / "answer", "wb") as file:
        child = await spawner.spawn(
            Launch(argv=["sh", "-c", "echo to the file; echo to us >&2"], env=environ, stdout=file.fileno())
        )
    assert child.stdout == -1
    assert (await child.exited).ok
    assert child.stderr.text() == "to us\n"
    await child.close()
    assert (tmp_path / "answer").read_text() == "to the file\n"


async def test_who_goes_first_keeps_no_descriptor_of_it(python: list[str], environ: dict[str, str]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    program = DetachedProcess(Launch(argv=[*python, "import signal; signal.pause()"], env=environ))
    program.forget()
    program.forget()
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the loop's own may have come
    assert lives(program.pid)
    os.kill(program.pid, 9)
    os.waitpid(program.pid, 0)
