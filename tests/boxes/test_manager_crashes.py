"""Whoever is killed at whatever moment: the next start leaves no box, no process and no unrevoked hook state behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import serai
from serai.boxes import Box, Boxes, ownership
from serai.boxes.backends.local import find_processes
from serai.boxes.box_records import BoxRecord, BoxStore
from serai.errors import BoxFailed, BoxRefused, PeerError, SeraiError
from serai.wire import process_tree
from tests.support.boxes.harness import Harness, kill_box_server, read_output

ROOT = Path(__file__).parents[2]
MOST = 200  # steps; there are fewer
# Where a program finds us, and what we were found with.
PLACES = [str(ROOT), str(Path(serai.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]


async def check_settled(harness: Harness) -> None:
    """The next start alone leaves nothing but tombstones and what has a keeper. That is ended here, once it was seen to live.

    A keeper whose creator died may be settling its box at the same moment: that one comes to its end by itself.
    """
    async with harness.boxes():
        pass
    store = BoxStore(harness.home)
    async with asyncio.timeout(30):
        while not all([await _is_settled(harness, store, record) for record in store.list_all()]):
            await asyncio.sleep(0.01)
    living = [record for record in store.list_all() if record.lifecycle != "terminated"]
    store.close()
    assert harness.tokens == [token for record in living for token in record.hook_state.values()]
    assert living or harness.left() == []
    async with harness.boxes() as boxes:
        for record in living:
            assert await read_output(await boxes.get(record.generation), "echo alive") == "alive\n"
        for record in await boxes.list():
            await boxes.destroy(record.generation)
        assert await boxes.list() == []
    assert (harness.tokens, harness.left()) == ([], [])
    assert harness.events == [] or (harness.events[0] == "box.create" and set(harness.events[1:]) == {"box.destroy"})


async def _is_settled(harness: Harness, store: BoxStore, record: BoxRecord) -> bool:
    """A tombstone, or kept by a keeper that was told to; not yet, when somebody is at it. With nobody there it never will be."""
    if record.lifecycle == "terminated":
        return True
    if not process_tree.is_alive(record.owner):
        assert store.find_by_generation(record.generation) != record, f"{record} was not settled"
        return False  # until a moment ago somebody was
    answer = await ownership.ask_keeper(os.path.join(harness.home, record.generation), "state", timeout=30)
    return answer is not None and bool(answer["kept"])


def run_to_step(harness: Harness, kind: str, step: int | str) -> bool:
    """Whether it lived through all its steps."""
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(PLACES)}
    command = [sys.executable, "-m", "tests.support.boxes.crash_program", str(harness.folder), kind, str(step)]
    ran = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=50, check=False)
    assert ran.returncode in (0, -signal.SIGKILL), ran.stderr
    return ran.returncode == 0 and ran.stdout == "done\n"


@pytest.mark.needs("namespaces")
@pytest.mark.req("hooks.box.manager-killed")
@pytest.mark.req("hooks.rule.2.4-intent", "hooks.rule.2.4-intent-replay", "hooks.scenario.backend-06", "hooks.naive.29")
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(1, 8))])
@pytest.mark.parametrize("kind", ["owned", "kept"])
def test_a_manager_killed_at_any_step_leaves_nothing(tmp_path: Path, kind: str, first: int) -> None:
    """Each eighth step from the first on, until one run reaches its end."""
    for step in range(first, MOST, 8):
        (tmp_path / str(step)).mkdir()
        harness = Harness(tmp_path / str(step))
        lived = run_to_step(harness, kind, step)
        _ = harness.generations  # of what it left: that is looked for when it is settled
        try:
            asyncio.run(check_settled(harness))
        finally:
            asyncio.run(harness.clear())
        if lived:
            assert step > 16  # or it had no steps to be killed at
            return
    pytest.fail("it never reached its end")


@pytest.mark.needs("namespaces")
@pytest.mark.slow
@pytest.mark.req("hooks.rule.3.5-paused-safe")
@pytest.mark.parametrize("first", range(4))
def test_a_manager_killed_at_any_step_of_a_pause_or_a_resume_costs_no_disk(tmp_path: Path, first: int) -> None:
    """Whatever it was doing: the box is paused or runs, it can be brought to run, and it has its data and its time to live."""
    for step in range(first, MOST, 4):
        (tmp_path / str(step)).mkdir()
        harness = Harness(tmp_path / str(step))
        lived = run_to_step(harness, "halting", step)
        try:
            asyncio.run(_check_data(harness))
        finally:
            asyncio.run(harness.clear())
        if lived:
            assert step > 8
            return
    pytest.fail("it never reached its end")


async def _check_data(harness: Harness) -> None:
    async with asyncio.timeout(30):
        while await _read_data(harness) != "data\n":
            pass
    async with harness.boxes() as boxes:
        box = await boxes.get("web")
        assert box.record.expires_at is not None
        await box.destroy()
    assert harness.events == ["box.create", "box.destroy"]


async def _read_data(harness: Harness) -> str:
    """What is on its disk; nothing while its keeper, whose caller was killed, is still in the middle of a pause."""
    async with harness.boxes() as boxes:
        [record] = await boxes.list()
        alive = process_tree.is_alive(record.owner)
        if record.state == "paused" and not alive:
            await boxes.resume("web")
        elif record.state == "running" and alive:
            try:
                return await read_output(await boxes.get("web"), "cat /workspace/data")
            except (BoxRefused, BoxFailed, PeerError):
                pass
    return ""


@pytest.mark.req("hooks.rule.2.3-hooks-done", "hooks.rule.2.4-intent-replay")
async def test_a_manager_killed_between_two_destroy_hooks_told_the_first_for_good(harness: Harness) -> None:
    """The second hook kills whoever runs it, the first time. The next start runs that one again and no other."""
    assert not run_to_step(harness, "owned", "hook")
    assert (harness.folder / "killings").read_text() == "killed\n"
    store = BoxStore(harness.home)
    assert [record.hooks_done for record in store.list_all()] == [["mint"]]
    store.close()
    async with harness.boxes():
        pass
    assert (harness.folder / "killings").read_text() == "killed\ntold\n"
    assert harness.events == ["box.create", "box.destroy"]
    await check_settled(harness)


# -- the keeper -------------------------------------------------------------------------------------------------------------------


async def create_kept_box(boxes: Boxes) -> Box:
    return await boxes.create("web", kept=True)


async def wait_until_gone(boxes: Boxes, box: Box) -> None:
    """Its keeper has settled it: a tombstone, or nothing."""
    async with asyncio.timeout(30):
        while (record := await boxes.do(BoxStore.get, box.generation)) and record.lifecycle != "terminated":
            await asyncio.sleep(0.01)


@pytest.mark.req("hooks.box.keeper-killed")
async def test_a_killed_keeper_takes_its_box_along_and_the_next_start_settles_it(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await create_kept_box(boxes)
        os.kill(process_tree.parse_identity_pid(box.record.owner), signal.SIGKILL)
        await _wait_until_no_processes(box)
        assert len(harness.tokens) == 1
    async with harness.boxes() as boxes:
        [record] = await boxes.list()
        assert (record.lifecycle, record.last_error) == ("terminated", "its keeper died")
    assert (harness.tokens, harness.left(), harness.events) == ([], [], ["box.create", "box.destroy"])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(3))
async def test_a_keeper_killed_at_any_step_of_settling_leaves_the_rest_to_the_next_start(
    tmp_path: Path, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "tests/support/boxes/crash_startup"), *PLACES]))
    for step in range(first, MOST, 3):
        (tmp_path / str(step)).mkdir()
        harness = Harness(tmp_path / str(step))
        monkeypatch.setenv("SERAI_DOOM", str(step))
        async with harness.boxes(hooks=[harness.mint]) as boxes:
            box = await create_kept_box(boxes)
        pid = process_tree.parse_identity_pid(box.record.owner)
        os.kill(pid, signal.SIGTERM)
        async with asyncio.timeout(30):
            while process_tree.is_alive(box.record.owner):
                await asyncio.sleep(0.01)
        store = BoxStore(harness.home)
        record = store.get("web")
        store.close()
        lived = record is not None and record.lifecycle == "terminated" and record.last_error == "its keeper was told to end"
        try:
            await check_settled(harness)
        finally:
            await harness.clear()
        assert len(harness.events) >= 2
        if lived:
            return
    pytest.fail("it never reached its end")


@pytest.mark.req("hooks.box.creator-killed")
@pytest.mark.parametrize("call", ["KeeperHolder.start", "BoxClient.init"])
async def test_a_creator_that_dies_before_the_box_is_there_leaves_it_to_the_keeper(harness: Harness, call: str) -> None:
    """Nobody starts again here: the keeper alone sees to it."""
    assert not run_to_step(harness, "kept", call)
    store = BoxStore(harness.home)
    async with asyncio.timeout(30):
        while store.list_all() or harness.left():
            await asyncio.sleep(0.02)
    store.close()
    assert (harness.tokens, harness.events) == ([], ["box.create", "box.destroy"])


# -- the box server ----------------------------------------------------------------------------------------------------------------


async def _wait_until_no_processes(box: Box) -> None:
    async with asyncio.timeout(30):
        while find_processes(box.generation):
            await asyncio.sleep(0.01)


@pytest.mark.req("hooks.box.porter-killed")
@pytest.mark.parametrize("keep", [False, True], ids=["owned", "kept"])
async def test_a_killed_box_server_ends_its_box_with_its_hooks(harness: Harness, keep: bool) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        box = await boxes.create("web", kept=keep)
        running = asyncio.create_task(box.exec("sleep 1000"))
        await asyncio.sleep(0)
        kill_box_server(box.generation)
        with pytest.raises(SeraiError):
            await running
        await wait_until_gone(boxes, box)
        record = await boxes.record("web")
        assert record.last_error.startswith("its processes ended")
        assert (harness.tokens, harness.left(), harness.events) == ([], [], ["box.create", "box.destroy"])


async def test_a_box_server_killed_while_its_script_runs_fails_the_create(harness: Harness) -> None:
    async with harness.boxes(hooks=[harness.mint]) as boxes:
        making = asyncio.create_task(boxes.create("web", script=b"#!/bin/sh\nexec sleep 1000\n"))
        async with asyncio.timeout(30):
            while not (found := _find_scripts(harness)):
                await asyncio.sleep(0.01)
        for generation in found:
            kill_box_server(generation)
        with pytest.raises(SeraiError):
            await making
        assert (harness.tokens, harness.left(), await boxes.list()) == ([], [], [])


def _find_scripts(harness: Harness) -> list[str]:
    """The generations of boxes whose init script has begun."""
    names = [name for name in os.listdir(harness.home) if len(name) == 16]
    return [name for name in names if _is_sleeping(name)]


def _is_sleeping(generation: str) -> bool:
    pids = {process.pid for process in find_processes(generation)}
    return any(_read_command(pid).startswith(b"sleep\0") for pid in process_tree.walk_children(pids))


def _read_command(pid: int) -> bytes:
    return process_tree.read_proc_file(f"/proc/{pid}/cmdline")
