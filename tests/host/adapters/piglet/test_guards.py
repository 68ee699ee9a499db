"""A piglet guest that must hold: whatever keeps it from answering is a no, and nothing begins without it (design rule 8)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from serai.errors import GuardDown
from serai.host.guest import GuestState
from serai.model.tools import ToolCall
from tests.support.agents.scripted_models import Answers, conversation, reply
from tests.support.app.apps import close_app, create_app, open_app
from tests.support.host import zot_guests
from tests.support.host.zot_guests import wait_for_state, wait_until
from tests.support.piglet.journals import ONE_LOOP, SLOW_RESTART, read_messages
from tests.support.piglet_guests.guest_folder import Answer, interceptor, write
from tests.support.piglet_guests.steps import crash, result, throw, wait

pytestmark = ONE_LOOP
GUARD = pytest.mark.req("piglet.rule.guard-closed")


def tools(tmp_path: Path) -> Path:
    return write(tmp_path, "tools", tools={"look": "fine"}, journal=tmp_path / "journal")


def guard(tmp_path: Path, *, before: Answer = None, after: Answer = None, **more: Any) -> Path:
    """As it is it allows everything."""
    answers: dict[str, Any] = {"before": [] if before is None else before, "after": [] if after is None else after}
    folder = write(tmp_path, "guard", interceptors={"gate": interceptor(**answers)}, **more)
    (folder / "guest.toml").write_text("guard = true\n")
    return folder


@GUARD
@pytest.mark.parametrize(
    ("answer", "limit", "why"),
    [
        ([crash()], 30.0, "extension guard closed (exit status 3"),
        ([wait()], 1.5, "limit intercept = 1.5"),  # in which it must answer to the other stage
        ([result("yes")], 30.0, "its answer to {method} cannot be read"),
        ([throw("no rules loaded")], 30.0, "no rules loaded"),
    ],
    ids=["crash", "time-out", "bad answer", "an error"],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_guard_that_crashes_times_out_or_answers_badly_blocks(
    tmp_path: Path, answer: Answer, limit: float, why: str, when: str
) -> None:
    """Also of a result: who is no guard is passed over there."""
    strict: Any = {when: answer}
    limits = {**SLOW_RESTART, "intercept": limit}
    async with zot_guests.open_host(tmp_path, tools(tmp_path), guard(tmp_path, **strict), limits=limits) as host:
        found = await host.call_tool("look")
    stage = "tool_call" if when == "before" else "tool_result"
    assert (found.is_error, found.code) == (True, "BLOCKED")
    assert found.text.startswith(f"{stage} refused: no answer from the guard (piglet:guard: ")
    assert why.format(method=f"interceptor/{when}") in found.text
    assert len(read_messages(tmp_path / "journal", "tool/execute")) == (when == "after")


@GUARD
async def test_while_a_guard_is_down_nothing_runs_and_no_run_starts(tmp_path: Path) -> None:
    model = Answers([reply("done")])
    folders = tools(tmp_path), guard(tmp_path, tools={"fatal": [crash()]})
    async with open_app(tmp_path, *folders, answers=model, limits=SLOW_RESTART) as app:
        assert (await app.call_tool(ToolCall("look", {}))).text == "fine"
        await app.host.call_tool("fatal")
        await wait_for_state(app.host, "guard", GuestState.BACKING_OFF)
        found = await app.call_tool(ToolCall("look", {}))
        assert (found.is_error, found.code) == (True, "BLOCKED")
        assert "the guard piglet:guard is backing off" in found.text
        with pytest.raises(GuardDown, match="piglet:guard is backing off"):
            await app.submit("hello")
        assert (conversation(app.session), model.requests) == ([], [])
        await app.host.reload("guard")
        assert await app.submit("hello")
        assert (await app.call_tool(ToolCall("look", {}))).text == "fine"
    assert len(read_messages(tmp_path / "journal", "tool/execute")) == 2


@GUARD
async def test_a_guard_that_cannot_be_started_blocks(tmp_path: Path) -> None:
    model = Answers([reply("done")])
    folders = tools(tmp_path), guard(tmp_path, runtime="./missing")
    async with open_app(tmp_path, *folders, answers=model) as app:
        found = await app.call_tool(ToolCall("look", {}))
        assert (found.is_error, found.code) == (True, "BLOCKED")
        assert "the guard piglet:guard is gone: start guard: " in found.text
        with pytest.raises(GuardDown, match="piglet:guard is gone"):
            await app.submit("hello")
        assert (conversation(app.session), model.requests) == ([], [])
    assert read_messages(tmp_path / "journal", "tool/execute") == []


@GUARD
async def test_nothing_runs_before_a_guard_is_ready(tmp_path: Path) -> None:
    go = tmp_path / "go"
    model = Answers([reply("done")])
    app = create_app(tmp_path, tools(tmp_path), guard(tmp_path, at_init=[wait(go)]), answers=model)
    opening = asyncio.create_task(app.open())
    try:
        await asyncio.sleep(0)
        await wait_until(app.host, lambda: app.host.guest("tools").state is GuestState.READY)
        found = await app.call_tool(ToolCall("look", {}))
        assert (found.is_error, found.code) == (True, "BLOCKED")
        assert "the guard piglet:guard is starting" in found.text
        with pytest.raises(GuardDown, match="piglet:guard is starting"):
            await app.submit("hello")
        assert (read_messages(tmp_path / "journal", "tool/execute"), model.requests) == ([], [])
        go.touch()
        await opening
        assert (await app.call_tool(ToolCall("look", {}))).text == "fine"
        assert await app.submit("hello")
    finally:
        go.touch()
        await opening
        await close_app(app)
