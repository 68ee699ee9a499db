"""What a crash means for whoever waits, for what the guest offered, and for everybody else."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from serai.errors import PeerGone
from serai.host.guest import GuestState
from serai.model.actions import ClosePanel, OpenPanel
from serai.model.events import SessionStarted, StepStarted
from tests.support.host.zot_guests import (
    STUBBORN,
    AwaitableSurface,
    log_of,
    make,
    open_host,
    pid_of,
    read_frames,
    record_states,
    wait_for_state,
    wait_until_reaped,
)

pytestmark = pytest.mark.loops

LATER = {"restart_wait": 30.0}  # it stays down for the rest of the test


@pytest.mark.req("zot.edge.39", "zot.ours.5.2-pending-fail", "zot.ours.5.2-reaped")
async def test_whatever_is_in_flight_when_a_guest_dies_fails_at_once(tmp_path: Path) -> None:
    """A tool call, a command and an interceptor's question; each has 30 s left."""
    body = """
hello(tool("work"), command("work"), subscribe(intercept=["turn_start"]))
asked = []
for frame in frames():
    asked += [frame["type"]] if "id" in frame else []
    if len(asked) == 3:
        os.write(2, b"fatal: the disk is full\\n")
        os._exit(7)
"""
    async with open_host(tmp_path, make(tmp_path, body), limits=LATER) as host:
        pid = pid_of(host, "probe")
        waiting = asyncio.gather(host.call_tool("work"), host.run_command("work"), host.intercept("turn_start", 1))
        result, outcome, verdict = await asyncio.wait_for(waiting, 15)
        why = "ended (exit status 7); stderr ended with: fatal: the disk is full"
        assert (result.code, result.is_error) == ("TOOL_UNAVAILABLE", True)
        assert result.text.startswith("extension probe/work failed: ")
        assert why in result.text
        assert outcome.code == "COMMAND_UNAVAILABLE"
        assert outcome.error.startswith("extension /work: ")
        assert why in outcome.error
        assert verdict is None  # zot's interceptors fail open
        assert "intercept turn_start failed" in log_of(host, "probe")
        await wait_until_reaped(pid)
        assert host.guest("probe").state is GuestState.BACKING_OFF


@pytest.mark.req("host.life.in-place")
@pytest.mark.req("zot.rule.5.2-stays-in-place")
async def test_what_a_guest_offered_stays_in_its_place_while_it_is_down(tmp_path: Path) -> None:
    first = make(tmp_path, "remember(command('go'), subscribe(intercept=['tool_call']), tools=('shared', 'mine'))", name="first")
    second = make(tmp_path, "remember(tools=('shared',))", name="second")
    async with open_host(tmp_path, first, second, limits=LATER) as host:
        before = host.tools
        os.kill(pid_of(host, "first"), signal.SIGKILL)
        await wait_for_state(host, "first", GuestState.BACKING_OFF)
        assert host.tools == before
        for name in ("shared", "mine"):  # what it shadows is not exposed either
            result = await host.call_tool(name)
            assert (result.is_error, result.code) == (True, "TOOL_UNAVAILABLE")
            assert "zot:first is backing off: ended (killed by SIGKILL)" in result.text
            assert result.hint
        outcome = await host.run_command("go")
        assert outcome.code == "COMMAND_UNAVAILABLE"
        assert host.table.chains["tool_call"][0].guest is host.guest("first")


@pytest.mark.req("zot.rule.5.2-stays-in-place")
@pytest.mark.parametrize("guard", [False, True])
async def test_the_interceptor_of_a_guest_that_is_down_is_open_unless_it_is_a_guard(tmp_path: Path, guard: bool) -> None:
    body = "remember(subscribe(intercept=['tool_call']), tools=())"
    judge = make(tmp_path, body, name="judge", settings=f"guard = {str(guard).lower()}\n")
    worker = make(tmp_path, "remember(tools=('work',))", name="worker")
    async with open_host(tmp_path, judge, worker, limits=LATER) as host:
        assert not (await host.call_tool("work")).is_error
        os.kill(pid_of(host, "judge"), signal.SIGKILL)
        await wait_for_state(host, "judge", GuestState.BACKING_OFF)
        result = await host.call_tool("work")
        assert result.is_error is guard
        if guard:
            assert result.code == "BLOCKED"
            assert "zot:judge is backing off: ended (killed by SIGKILL)" in result.text
        await host.reload("judge")
        assert not (await host.call_tool("work")).is_error


@pytest.mark.req("zot.ours.4.6-crash-closes")
async def test_the_panel_of_a_guest_that_crashes_is_closed(tmp_path: Path) -> None:
    body = """
hello(command("open"))
for frame in frames():
    if frame["type"] == "command_invoked":
        respond(frame["id"], "open_panel", open_panel={"id": "menu", "lines": ["one"]})
"""
    window = AwaitableSurface()
    async with open_host(tmp_path, make(tmp_path, body), limits=LATER, surface=window) as host:
        await host.run_command("open")
        await window.shown(lambda action: isinstance(action, OpenPanel))
        os.kill(pid_of(host, "probe"), signal.SIGKILL)
        closed = await asyncio.wait_for(window.shown(lambda action: isinstance(action, ClosePanel)), 15)
        assert isinstance(closed, ClosePanel)
        assert closed.panel.id == "menu"
        assert host.context.panels.open is None
        host.context.panels.press("enter")  # goes nowhere


async def test_a_storm_of_events_to_a_guest_that_is_down_harms_nobody(tmp_path: Path) -> None:
    down = make(tmp_path, "remember(subscribe(['turn_start']))", name="down")
    other = make(tmp_path, "remember(subscribe(['turn_start']), tools=('other',))", name="other")
    async with open_host(tmp_path, down, other, limits=LATER | {"events": 20_000}) as host:
        os.kill(pid_of(host, "down"), signal.SIGKILL)
        for step in range(1000):  # some before anybody knows that it is dead
            host.tell(StepStarted(step=step))
        await wait_for_state(host, "down", GuestState.BACKING_OFF)
        for step in range(1000, 5000):
            host.tell(StepStarted(step=step))
        assert not (await host.call_tool("other")).is_error
        await host.reload("down")
        assert [frame["type"] for frame in await read_frames(host)] == ["hello_ack", "tool_call"]


@pytest.mark.req("zot.ours.5.5-session-start")
@pytest.mark.parametrize("again", ["reload", "crash"])
async def test_a_fresh_process_hears_of_the_session_that_runs(tmp_path: Path, again: str) -> None:
    eager = make(tmp_path, "remember(subscribe(['session_start']))", name="eager")
    quiet = make(tmp_path, "remember(tools=('quiet',))", name="quiet")
    async with open_host(tmp_path, eager, quiet) as host:
        host.tell(SessionStarted())
        assert [frame.get("event") for frame in await read_frames(host)] == [None, "session_start", None]
        if again == "reload":
            await host.reload()
        else:
            seen = record_states(host, "eager")
            os.kill(pid_of(host, "eager"), signal.SIGKILL)
            await wait_for_state(host, "eager", GuestState.BACKING_OFF)
            await wait_for_state(host, "eager", GuestState.READY)
            assert seen[:1] == [GuestState.READY]
        assert [frame.get("event") for frame in await read_frames(host)] == [None, "session_start", None]
        assert all(frame["type"] != "event" for frame in await read_frames(host, "quiet"))


async def test_a_guest_that_dies_the_moment_it_is_ready_is_seen_to_be_dead(tmp_path: Path) -> None:
    """However its end and its start come in: it never counts as serving for longer than a moment."""
    body = 'raw(b\'{"type":"hello","name":"probe"}\\n{"type":"ready"}\\n\'); os.write(2, b\'no more\\n\'); os._exit(5)'
    async with open_host(tmp_path, make(tmp_path, body), limits={"restarts": 1}) as host:
        await asyncio.wait_for(wait_for_state(host, "probe", GuestState.GONE), 15)
        error = host.guest("probe").error
        assert isinstance(error, PeerGone)
        assert "(exit status 5" in str(error)
        assert "no more" in error.stderr


async def test_one_that_dies_between_its_ready_and_its_first_turn_never_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host learns of both in the same moment: the load fails with the cause, as for one that was never ready."""
    from serai.host.adapters.zot import ZotGuest

    received = ZotGuest.handle_run

    def both(self: ZotGuest, run: bytes) -> None:
        received(self, run)
        if self.started.done():
            self.channel.close(PeerGone("ended", who="zot:probe", stderr="gone already"))

    monkeypatch.setattr(ZotGuest, "handle_run", both)
    async with open_host(tmp_path, make(tmp_path, "remember()"), limits=STUBBORN) as host:
        guest = host.guest("probe")
        assert (guest.state, guest.running) == (GuestState.GONE, None)
        assert "gone already" in str(guest.error)
        assert host._spawner is not None
        while host._spawner.children:  # it is cleared away in the background
            await asyncio.sleep(0)
