"""One supervisor for all guests (design rule 9): back after a crash, later each time, and not for ever."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from serai.errors import LimitHit, PeerGone, SpawnFailed
from serai.host.adapter import Adapter, StartContext
from serai.host.guest import GuestState
from serai.host.guest_context import GuestContext
from serai.host.guest_manifest import GuestManifest
from serai.model.actions import Notice
from serai.wire import process_tree
from serai.wire.plain_process import PlainSpawner
from tests.support.host.zot_guests import (
    NOTE,
    AwaitableSurface,
    build_host,
    kill_guest,
    make,
    open_host,
    pid_of,
    pids,
    record_states,
    wait_for_state,
    wait_until_reaped,
)

pytestmark = pytest.mark.loops

WELL = f"{NOTE}remember(tools=('me',))"


@pytest.mark.req("host.life.restart")
async def test_a_crashed_guest_is_started_again_and_serves_again(tmp_path: Path) -> None:
    window = AwaitableSurface()
    folder = make(tmp_path, WELL)
    async with open_host(tmp_path, folder, surface=window) as host:
        seen = record_states(host, "probe")
        await kill_guest(host)
        await wait_for_state(host, "probe", GuestState.READY)
        assert seen == [GuestState.READY, GuestState.FAILING, GuestState.BACKING_OFF, GuestState.STARTING, GuestState.READY]
        assert not (await host.call_tool("me")).is_error
        guest = host.guest("probe")
        assert (guest.generation, guest.error, len(pids(folder))) == (2, None, 2)
        assert window.actions == [Notice("probe crashed, restarting...", "warn", "serai")]


@pytest.mark.req("host.life.budget")
async def test_a_guest_that_crashes_too_often_is_gone_with_the_cause_until_it_is_reloaded(tmp_path: Path) -> None:
    window = AwaitableSurface()
    folder = make(tmp_path, WELL)
    async with open_host(tmp_path, folder, limits={"restarts": 2}, surface=window) as host:
        for _ in range(2):
            await kill_guest(host)
            await wait_for_state(host, "probe", GuestState.READY)
        await kill_guest(host)
        guest = host.guest("probe")
        assert guest.state is GuestState.GONE
        assert isinstance(guest.error, PeerGone)
        assert (guest.error.limit, guest.error.exit and guest.error.exit.signal) == (LimitHit("restarts", 2), signal.SIGKILL)
        assert "crashed too often and is not started again" in str(guest.error)
        assert "serai guest logs" in guest.error.hint
        assert window.actions[-1] == Notice("probe crashed and could not be restarted", "error", "serai")
        assert (await host.call_tool("me")).code == "TOOL_UNAVAILABLE"
        assert host.report.failed[0].id == "zot:probe"
        await host.reload()
        assert not (await host.call_tool("me")).is_error
        assert (guest.state, guest.failures) == (GuestState.READY, 0)


@pytest.mark.req("host.life.budget")
async def test_a_start_that_fails_counts_as_a_crash(tmp_path: Path) -> None:
    body = f"{NOTE}if len(open('pids').readlines()) > 1:\n    sys.exit('no licence')\nremember()"
    folder = make(tmp_path, body)
    async with open_host(tmp_path, folder, limits={"restarts": 3}) as host:
        await kill_guest(host)
        await wait_for_state(host, "probe", GuestState.GONE)
        assert len(pids(folder)) == 4
        assert "no licence" in str(host.guest("probe").error)


@pytest.mark.req("host.life.restart")
async def test_a_long_life_makes_earlier_crashes_forgotten(tmp_path: Path) -> None:
    folder = make(tmp_path, WELL)
    async with open_host(tmp_path, folder, limits={"restarts": 1, "restart_healthy": 1e-6}) as host:
        for _ in range(4):
            await kill_guest(host)
            await wait_for_state(host, "probe", GuestState.READY)
        assert host.guest("probe").failures == 1


@pytest.mark.req("host.life.restart")
async def test_each_start_again_comes_later_up_to_a_limit(tmp_path: Path) -> None:
    limits = {"restart_wait": 100.0, "restart_wait_most": 300.0}
    async with open_host(tmp_path, make(tmp_path, WELL), limits=limits) as host:
        guest = host.guest("probe")
        waits: list[float] = []
        for _ in range(4):
            now = asyncio.get_running_loop().time()
            await kill_guest(host)
            assert guest._timer is not None
            waits.append(guest._timer.when() - now)
            guest._timer.cancel()
            await guest._restart()  # as the timer would
        expected = [100, 200, 300, 300]
        assert all(wanted <= wait + 0.1 < wanted + 20 for wanted, wait in zip(expected, waits, strict=True)), waits


async def test_nothing_is_started_again_after_the_end(tmp_path: Path, spawner: PlainSpawner) -> None:
    """Neither by the timer nor by a reload that came a moment too late, also where the spawner lives on."""
    folder = make(tmp_path, WELL)
    async with open_host(tmp_path, folder, limits={"restart_wait": 25.0}, spawner=spawner) as host:
        guest = host.guest("probe")
        await kill_guest(host)
        closing = asyncio.create_task(host.close())
        while not guest._ending:
            await asyncio.sleep(0)
        assert not await guest.reload()
        await closing
    assert (guest.state, guest._timer, guest.log) == (GuestState.STOPPED, None, None)
    await guest._restart()  # should the timer have run already
    assert not await guest.reload()
    assert guest.state is GuestState.STOPPED
    assert len(pids(folder)) == 1
    assert not spawner.children


async def test_closing_does_not_wait_for_a_guest_that_is_just_being_started_again(tmp_path: Path) -> None:
    body = f"{NOTE}if len(open('pids').readlines()) > 1:\n    time.sleep(1000)\nremember()"
    folder = make(tmp_path, body)
    async with open_host(tmp_path, folder) as host:
        await kill_guest(host)
        await wait_for_state(host, "probe", GuestState.STARTING)
        assert host._spawner is not None
        while not host._spawner.children:
            await asyncio.sleep(0)
        await asyncio.wait_for(host.close(), 10)
        guest = host.guest("probe")
        assert (guest.state, guest.failures) == (GuestState.STOPPED, 1)


async def test_closing_does_not_wait_for_a_guest_that_does_not_say_hello(tmp_path: Path) -> None:
    host = build_host(tmp_path, make(tmp_path, "time.sleep(1000)", name="mute"), make(tmp_path, "remember()", name="well"))
    starting = asyncio.create_task(host.start())
    await asyncio.sleep(0)
    await wait_for_state(host, "well", GuestState.READY)
    assert host._spawner is not None
    (mute,) = [child.pid for child in host._spawner.children if child.who == "zot:mute"]
    await asyncio.wait_for(host.close(), 10)
    report = await starting
    assert [row.state for row in report.guests] == ["stopped", "stopped"]
    assert process_tree.read_process(mute) is None
    assert host.context._trimmer is not None
    assert host.context._trimmer.cancelled()


async def test_a_start_that_is_cancelled_leaves_nobody(tmp_path: Path) -> None:
    host = build_host(tmp_path, make(tmp_path, "time.sleep(1000)", name="mute"), make(tmp_path, "remember()", name="well"))
    starting = asyncio.create_task(host.start())
    await asyncio.sleep(0)
    await wait_for_state(host, "well", GuestState.READY)
    assert host._spawner is not None
    running = [child.pid for child in host._spawner.children]
    assert len(running) == 2
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert [pid for pid in running if process_tree.read_process(pid) is not None] == []


async def test_a_reload_during_the_wait_starts_it_at_once_and_only_once(tmp_path: Path) -> None:
    folder = make(tmp_path, WELL)
    async with open_host(tmp_path, folder, limits={"restart_wait": 25.0}) as host:
        await kill_guest(host)
        guest = host.guest("probe")
        assert guest.state is GuestState.BACKING_OFF
        await host.reload("probe")
        assert (guest.state, guest.generation, guest._timer, guest.failures) == (GuestState.READY, 2, None, 0)
        assert not (await host.call_tool("me")).is_error
        assert len(pids(folder)) == 2


async def test_a_defect_of_an_adapter_hurts_its_own_guest_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = GuestContext.get_adapter

    async def broken(taking: StartContext) -> object:
        raise KeyError(taking.who)

    def adapter(harness: GuestContext, manifest: GuestManifest) -> Adapter:
        return usual(harness, manifest)._replace(start=broken) if manifest.name == "odd" else usual(harness, manifest)  # type: ignore[arg-type]

    monkeypatch.setattr(GuestContext, "get_adapter", adapter)
    odd, well = make(tmp_path, WELL, name="odd"), make(tmp_path, WELL, name="well")
    async with open_host(tmp_path, odd, well) as host:
        assert isinstance(host.guest("odd").error, SpawnFailed)
        assert "its adapter failed: KeyError('zot:odd')" in str(host.guest("odd").error)
        assert not (await host.call_tool("me")).is_error


@pytest.mark.req("zot.ours.5.2-reaped")
async def test_a_guest_that_crashed_for_good_is_no_zombie(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, WELL), limits={"restart_wait": 25.0}) as host:
        pid = pid_of(host, "probe")
        await kill_guest(host)
        await asyncio.wait_for(wait_until_reaped(pid), 15)
        assert host.guest("probe").state is GuestState.BACKING_OFF
