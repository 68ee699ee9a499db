"""Who is told how far a run has come, also when nobody waits for it (spec agents 4.4, 1.8)."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from serai.compat.agentboot import Cancelled, ExecutionOptions, FakeFactory, FakeProcess, LaunchSpec
from tests.support.agentboot.toy_agent import Store, play_frames, result, run, runner, say_frame


def options(store: Store | None, session: str = "s1") -> ExecutionOptions:
    return ExecutionOptions(store=store, session_id=session)


async def wait_forever(spec: LaunchSpec, process: FakeProcess) -> None:
    await asyncio.Event().wait()


@pytest.mark.req("agents.scenario.L1", "agents.rule.90")
async def test_a_success_is_running_and_then_completed_with_its_final_text() -> None:
    store = Store()
    _, waited = await run(play_frames(say_frame("thinking"), result("the answer")), options(store))
    assert store.calls == [("running", "s1"), ("completed", "s1", "the answer")]
    assert waited.result.metadata["session_id"] == "s1"


@pytest.mark.req("agents.scenario.L2")
async def test_an_error_result_is_running_and_then_failed() -> None:
    store = Store()
    _, waited = await run(play_frames(result("no", is_error=True)), options(store))
    assert store.calls == [("running", "s1"), ("failed", "s1", waited.result.error)]


@pytest.mark.req("agents.scenario.L3")
async def test_without_a_store_a_run_is_a_run() -> None:
    _, waited = await run(play_frames(result()), options(None))
    assert waited.result.is_success()


@pytest.mark.req("agents.scenario.L4")
async def test_without_a_session_id_no_store_is_told_anything() -> None:
    store = Store()
    _, waited = await run(play_frames(result()), options(store, ""))
    assert waited.result.is_success()
    assert store.calls == []


@pytest.mark.req("agents.rule.90")
async def test_a_store_that_fails_is_logged_and_the_run_is_well(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(broken=True)
    with caplog.at_level(logging.ERROR):
        _, waited = await run(play_frames(result()), options(store))
    assert waited.result.is_success()
    assert len(store.calls) == 2
    assert caplog.text.count("a lifecycle store failed") == 2


@pytest.mark.req("agents.rule.14")
async def test_the_end_is_told_also_if_nobody_waits() -> None:
    told = asyncio.Event()

    class Telling(Store):
        def set_completed(self, session_id: str, response: str) -> bool:
            told.set()
            return super().set_completed(session_id, response)

    store = Telling()
    handle = await runner(play_frames(say_frame("hello"), result())).execute("go", options(store))
    await told.wait()
    assert [call[0] for call in store.calls] == ["running", "completed"]
    assert (await handle.wait()).error is None
    assert [call[0] for call in store.calls] == ["running", "completed"]  # once


@pytest.mark.req("agents.edge.08", "agents.rule.48")
async def test_to_leave_it_ends_it_and_the_store_is_told_once() -> None:
    store = Store()
    factory = FakeFactory(wait_forever)
    async with await runner(factory=factory).execute("go", options(store)) as handle:
        pass
    assert factory.processes[0].done.is_set()
    assert [call[0] for call in store.calls] == ["running", "failed"]
    assert isinstance((await handle.wait()).error, Cancelled)

    async with await runner(play_frames(result())).execute("go", options(store := Store())) as handle:
        [event async for event in handle.events()]
    assert [call[0] for call in store.calls] == ["running", "completed"]


@pytest.mark.req("agents.edge.08")
async def test_a_handle_that_is_dropped_ends_its_run() -> None:
    told = asyncio.Event()

    class Telling(Store):
        def set_failed(self, session_id: str, message: str) -> bool:
            told.set()
            return super().set_failed(session_id, message)

    store = Telling()
    factory = FakeFactory(wait_forever)
    handle = await runner(factory=factory).execute("go", options(store))
    del handle
    gc.collect()
    await told.wait()
    assert factory.processes[0].done.is_set()
    assert [call[0] for call in store.calls] == ["running", "failed"]


@pytest.mark.req("agents.scenario.H10")
async def test_no_task_is_left_of_a_run() -> None:
    before = asyncio.all_tasks()
    await run(play_frames(say_frame("a"), {"type": "ask", "id": "a"}, say_frame("b"), result()))
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() - before == set()
