"""Calls that are given up: what has begun is finished, what has not never begins, and nobody else waits."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from serai.limits import Limits
from serai.model.tools import ToolCall
from serai.tools.tool import CallAbandoned, CancelCheck, FileThreads, ToolJob
from serai.tools.workspace import FileSnapshots, HeldFile
from serai.wire.plain_process import PlainSpawner
from tests.conftest import QUICK
from tests.support.tool_harness import Tools, is_failure

PATIENT = QUICK.but(interrupt=30, tool=60)
MANY = 40  # more than there are threads anywhere


class Gate:
    """Where a thread is held up: `await reached()`, then `open()`."""

    def __init__(self) -> None:
        self._here, self._open = threading.Event(), threading.Event()

    def hold(self) -> bool:
        """In the thread."""
        self._here.set()
        return self._open.wait(60)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._here.wait, 60)

    def open(self) -> None:
        self._open.set()


class SlowUndo(FileSnapshots):
    """A disk that is slow when the copy is made, which is when a change has begun."""

    gate: Gate

    def keep(self, path: str, data: bytes) -> None:
        self.gate.hold()
        super().keep(path, data)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def create_slow_tools(folder: Path, spawner: PlainSpawner, gate: Gate, limits: Limits = PATIENT) -> Tools:
    undo = SlowUndo(folder / "undo")
    undo.gate = gate
    return Tools(folder, spawner, limits, undo=undo)


@pytest.mark.req("resident.tools.given-up")
async def test_what_has_begun_is_waited_for_and_what_has_not_is_never_made(
    tmp_path: Path, spawner: PlainSpawner, gate: Gate
) -> None:
    tools = create_slow_tools(tmp_path, spawner, gate)
    file = tools.file("a", "old")
    begun = asyncio.create_task(tools("write", path="a", content="new"))
    await gate.reached()
    late = asyncio.create_task(tools("write", path="folder/late", content="too late"))
    await tools("find", pattern="*")  # it waits by now
    late.cancel()
    begun.cancel()
    await asyncio.wait([late])
    assert not begun.done()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await begun
    assert file.read_text() == "new"
    assert not (await tools("write", path="b", content="x")).is_error  # after all that came before
    assert not (tools.folder / "folder").exists()


@pytest.mark.req("resident.tools.given-up")
@pytest.mark.parametrize("name", ["write", "edit", "anew"])
@pytest.mark.parametrize("step", ["place", "status"])
async def test_a_call_that_still_looks_when_it_is_cancelled_changes_nothing(
    tmp_path: Path, spawner: PlainSpawner, gate: Gate, monkeypatch: pytest.MonkeyPatch, name: str, step: str
) -> None:
    calls = {
        "write": ToolCall("write", {"path": "a", "content": "new"}),
        "edit": ToolCall("edit", {"path": "a", "old": "old", "new": "new"}),
        "anew": ToolCall("write", {"path": "folder/new" if step == "place" else "new", "content": "new"}),
    }
    tools = Tools(tmp_path, spawner, PATIENT)
    tools.file("a", "old")
    await tools("read", path="a")
    holder, what = {"place": (ToolJob, "resolve_path"), "status": (HeldFile, "stat")}[step]
    usual = getattr(holder, what)

    def held(*arguments: object) -> object:
        gate.hold()
        return usual(*arguments)

    monkeypatch.setattr(holder, what, held)
    call = asyncio.create_task(tools.box.call(calls[name]))
    await gate.reached()
    call.cancel()
    await asyncio.sleep(0)  # it hears of it
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not (await tools("write", path="b", content="x")).is_error
    assert sorted(os.listdir(tools.folder)) == ["a", "b"]
    assert (tools.folder / "a").read_text() == "old"
    assert tools.undo.list_snapshots() == {}


@pytest.mark.req("resident.tools.codes")
async def test_a_change_that_does_not_end_is_left_to_itself_and_no_other_is_made_beside_it(
    tmp_path: Path, spawner: PlainSpawner, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    tools = create_slow_tools(tmp_path, spawner, gate, QUICK.but(tool=1.5, interrupt=0.05))  # enough for it to begin
    tools.file("a", "old")
    assert is_failure(await tools("write", path="a", content="new"), "TIMEOUT", "look at what it has done")
    assert "does not end" in caplog.text
    assert is_failure(await tools("write", path="b", content="new"), "TIMEOUT")
    assert not (tools.folder / "b").exists()


@pytest.mark.req("resident.tools.given-up")
async def test_while_changes_wait_for_each_other_everybody_else_has_threads(
    tmp_path: Path, spawner: PlainSpawner, gate: Gate
) -> None:
    tools = create_slow_tools(tmp_path, spawner, gate)
    tools.file("a", "old")
    changes = [asyncio.create_task(tools("write", path="a", content="new")) for _ in range(MANY)]
    async with asyncio.timeout(20):
        await gate.reached()
        assert (await tools("read", path="a")).text == "1\told"
    gate.open()
    assert [result.is_error for result in await asyncio.gather(*changes)] == [False] * MANY


@pytest.mark.req("resident.tools.codes")
async def test_when_every_thread_of_the_tools_is_held_up_the_rest_of_the_program_is_not(
    tmp_path: Path, spawner: PlainSpawner, gate: Gate
) -> None:
    (tmp_path / "a").write_text("x")
    tools = Tools(tmp_path, spawner, PATIENT, outside=lambda _, __: gate.hold())
    calls = [("read", {"path": "../a"}), ("grep", {"path": "../a", "pattern": "x"}), ("bash", {"cwd": "..", "command": "true"})]
    running = [asyncio.create_task(tools.box.call(ToolCall(*call))) for call in calls * MANY]
    try:
        async with asyncio.timeout(20):
            await gate.reached()
            await asyncio.to_thread(int)  # such as names are looked up in
    finally:
        for task in running:
            task.cancel()
        gate.open()
        await asyncio.wait(running)


@pytest.mark.req("resident.tools.codes")
async def test_work_that_was_given_up_ends_at_its_next_look(gate: Gate) -> None:
    threads, wanted, ended = FileThreads(1), CancelCheck(), Gate()

    def work() -> None:
        gate.hold()
        try:
            wanted.check()
        except CallAbandoned:
            ended.open()
            ended.hold()
            raise

    looking = asyncio.create_task(threads.run_read(work, wanted))
    await gate.reached()
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    gate.open()
    await ended.reached()
