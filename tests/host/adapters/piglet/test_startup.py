"""Many guests at once: each starts in its own time, and none is in another's way (spec piglet 1.2, 10.25)."""

from __future__ import annotations

import asyncio
import gc
import os
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from serai.host.adapter import StartContext
from serai.host.adapters.piglet import ADAPTER, start
from serai.host.guest import GuestState
from serai.host.guest_context import GuestContext
from serai.wire import process_tree
from serai.wire.jsonrpc_peer import JsonRpcPeer
from serai.wire.plain_process import PlainChild, PlainSpawner
from serai.wire.process import Launch
from tests.support.host.zot_guests import build_host, close_host, open_host, wait_until
from tests.support.piglet.journals import ONE_LOOP
from tests.support.piglet.raw_guests import write_tiny_guest
from tests.support.piglet_guests.guest_folder import write
from tests.support.piglet_guests.steps import crash, throw, wait

pytestmark = ONE_LOOP


@pytest.mark.req("piglet.rule.start-isolation", "piglet.rule.discovery-bad-manifest")
async def test_who_is_slow_or_fails_holds_up_nobody_and_each_has_its_line(tmp_path: Path) -> None:
    place, go = tmp_path / "home" / "guests", tmp_path / "go"
    write(place, "a-slow", at_init=[wait(go)], tools=["slow"])
    write(place, "b-gone", at_start=[crash()])
    write(place, "c-good", tools={"good": "here"})
    write(place, "d-refuses", initialize=[throw("no key")])
    write(place, "e-nowhere", runtime="./nowhere")
    write(place, "f-late", tools={"late": "here"})
    (place / "g-broken").mkdir()
    (place / "g-broken" / "manifest.yaml").write_text("name: [")
    host = build_host(tmp_path)
    starting = asyncio.create_task(host.start())
    try:
        await asyncio.sleep(0)
        names = ("b-gone", "c-good", "d-refuses", "e-nowhere", "f-late")
        settled = (GuestState.READY, GuestState.GONE)
        await asyncio.wait_for(wait_until(host, lambda: all(host.guest(name).state in settled for name in names)), 60)
        assert host.guest("a-slow").state is GuestState.STARTING
        assert [(await host.call_tool(tool)).text for tool in ("good", "late")] == ["here", "here"]
        assert not starting.done()
        go.touch()
        report = await starting
        assert {row.id.removeprefix("piglet:"): row.state for row in report.guests} == {
            "a-slow": "ready",
            "b-gone": "gone",
            "c-good": "ready",
            "d-refuses": "gone",
            "e-nowhere": "gone",
            "f-late": "ready",
        }
        lines = report.to_lines()
        assert len(lines) == 4
        for folder, why in {
            "b-gone": "initialize b-gone: extension b-gone closed (exit status 3)",
            "d-refuses": "initialize d-refuses: no key",
            "e-nowhere": "start e-nowhere: ",
            "g-broken": f"parse manifest {place / 'g-broken' / 'manifest.yaml'}: ",
        }.items():
            [line] = [line for line in lines if folder in line]
            assert why in line
    finally:
        await close_host(host)


@pytest.mark.req("piglet.edge.25")
async def test_thirty_are_all_ready_for_each_ones_time_begins_with_its_own_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many at once as the host allows; the time for `initialize` is counted from the moment of the start, and is 10 s."""
    asked: dict[str, tuple[float, float | None]] = {}
    spawned: dict[str, float] = {}
    starting: set[str] = set()
    most = 0
    call, spawn = JsonRpcPeer.call, PlainSpawner.spawn

    async def watched_call(self: JsonRpcPeer, method: str, *args: Any, **options: Any) -> Any:
        if method == "initialize":
            asked.setdefault(self.channel.child.who, (monotonic(), options["timeout"]))
        return await call(self, method, *args, **options)

    async def watched_spawn(self: PlainSpawner, launch: Launch) -> PlainChild:
        spawned[launch.who] = monotonic()
        return await spawn(self, launch)

    async def watched_start(taking: StartContext) -> Any:
        nonlocal most

        def greeted() -> None:  # with its first word it makes room for another
            starting.discard(taking.who)
            taking.greeted()

        starting.add(taking.who)
        most = max(most, len(starting))
        return await start(replace(taking, greeted=greeted))

    monkeypatch.setattr(JsonRpcPeer, "call", watched_call)
    monkeypatch.setattr(PlainSpawner, "spawn", watched_spawn)
    monkeypatch.setattr(GuestContext, "get_adapter", lambda _context, _manifest: ADAPTER._replace(start=watched_start))
    monkeypatch.setattr("serai.host.guest_context._MOMENT", 1000.0)  # whoever is slow to speak does not make room for others
    folders = [write_tiny_guest(tmp_path, f"guest-{number:02}") for number in range(30)]
    before = monotonic()
    async with open_host(tmp_path, *folders, limits={"hello": ADAPTER.limits["hello"]}) as host:
        assert [row.state for row in host.report.guests] == ["ready"] * 30
        assert 1 < most <= 2 * (os.cpu_count() or 1)
        assert all(timeout == 10.0 and at >= spawned[who] for who, (at, timeout) in asked.items())
        assert len(asked) == len(spawned) == 30
        waited = sorted(at - before for at in spawned.values())
        assert waited[-1] > waited[0]  # the last had to wait for its place, which was not on its own time


def _memory() -> int:
    """Bytes of this process that are its own."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
async def test_three_hundred_guests_come_serve_and_go(tmp_path: Path) -> None:
    for number in range(300):
        write_tiny_guest(tmp_path / "home" / "guests", f"g{number:03}")
    async with open_host(tmp_path / "warm", write_tiny_guest(tmp_path / "warm", "first")):
        pass
    gc.collect()
    before, descriptors = _memory(), len(os.listdir("/proc/self/fd"))
    async with open_host(tmp_path) as host:
        assert len(host.guests) == 300
        assert [row.id for row in host.report.failed] == []
        grown = _memory() - before
        assert grown < 300 * 200 * 1024, f"{grown / 300 / 1024:.0f} KiB for each guest"
        names = [f"g{number:03}" for number in range(300)]
        results = await asyncio.gather(*(host.call_tool(name) for name in names))
        assert [result.text for result in results] == names
        pids = [row.pid for row in host.report.guests]
        await host.close()
        assert [pid for pid in pids if process_tree.read_process(pid) is not None] == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors
