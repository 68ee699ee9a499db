"""The end of a guest that somebody wants: in which order, how soon, and that it is nobody's crash (spec piglet 8.0)."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from serai.errors import ExitStatus, SpawnFailed
from serai.host.adapters.piglet import ADAPTER
from serai.host.guest import GuestState
from serai.host.hot_reload import HotReload
from serai.wire.plain_process import PlainSpawner
from tests.support.app import apps
from tests.support.host.zot_guests import AwaitableSurface, open_host, pid_of, wait_for_state
from tests.support.piglet.journals import ONE_LOOP, SLOW_RESTART, read_messages, wait_for_note
from tests.support.piglet.raw_guests import child_of, notices, write_bare_guest
from tests.support.piglet_guests.guest_folder import offer, write
from tests.support.piglet_guests.steps import ask, fault, note, relay, subscribe, wait
from tests.support.processes import Ends, lives

pytestmark = ONE_LOOP

# Goes with its input, but first says that it has seen the end of it, does what the test wants, and is asked nothing more.
LEAVING = """
say(4, tool("look"), hello(next(lines(3))["id"]))
heard = [m for m in lines(3)]
note("heard", json.dumps(heard))
LAST
"""


@pytest.mark.req("piglet.edge.09")
@pytest.mark.parametrize("last", ["sys.exit(0)", "sys.exit(3)", "os.kill(os.getpid(), signal.SIGSEGV)", "sys.exit('oh no')"])
async def test_however_it_ends_while_it_is_stopped_it_has_not_crashed(tmp_path: Path, last: str) -> None:
    window, folder = AwaitableSurface(), write_bare_guest(tmp_path, LEAVING.replace("LAST", last))
    async with open_host(tmp_path, folder, surface=window) as host:
        guest = host.guest("bare")
        await guest.stop()
        assert (guest.state, guest.generation, guest.failures, guest._timer) == (GuestState.STOPPED, 1, 0, None)
        assert guest.error is None
    assert notices(window) == []
    assert [m["method"] for m in json.loads((folder / "heard").read_text())] == ["shutdown"]


@pytest.mark.req("piglet.edge.09")
async def test_nor_when_it_is_killed_in_the_same_moment(tmp_path: Path) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, write(tmp_path, "weather"), surface=window) as host:
        guest, child = host.guest("weather"), child_of(host, "weather")
        stopping = asyncio.create_task(guest.stop())
        await asyncio.sleep(0)
        child.signal(signal.SIGKILL)
        await stopping
        assert (guest.state, guest.generation, guest.failures) == (GuestState.STOPPED, 1, 0)
    assert notices(window) == []


@pytest.mark.req("piglet.rule.stop-ladder")
async def test_first_nobody_is_told_or_served_any_more_then_it_is_told_then_its_input_ends(tmp_path: Path) -> None:
    """The order is that of its wire: what it has asked for is over before `shutdown`, and nothing comes after that."""
    begun, over, journal = tmp_path / "begun", tmp_path / "over", tmp_path / "journal"
    folder = write(
        tmp_path,
        "weather",
        tools={"ready": [subscribe("alert")], "call": [ask("host/executeTool", {"name": "slow", "args": {}})]},
        journal=journal,
    )
    other = write(
        tmp_path,
        "other",
        tools={
            "slow": [note(begun), wait(), ask("host/publish", {"topic": "alert", "data": 2}), note(over)],
            "host": offer([relay()], parameters={"type": "object"}),
        },
    )
    async with apps.open_app(tmp_path, folder, other) as app:
        host = app.host
        child = child_of(host, "weather")
        await host.call_tool("ready")
        call = asyncio.create_task(host.call_tool("call"))
        await wait_for_note(begun)
        publish = {"method": "host/publish", "params": {"topic": "alert", "data": 1}}
        await host.call_tool("host", publish)
        stops = [asyncio.create_task(host.guest("weather").stop()) for _ in range(3)]
        while host.guest("weather").run is not None:
            await asyncio.sleep(0)
        stops[0].cancel()  # who is cancelled stops nobody from stopping it
        await asyncio.gather(*stops, return_exceptions=True)
        assert child.status == ExitStatus(code=0)  # by the end of its input: nobody signalled
        await host.guest("weather").stop()
        await wait_for_note(over)  # its call of the other's tool was taken back, and what that published is for nobody
        result = await call
        assert "extension weather closed" in result.text
        assert (await host.call_tool("host", publish)).is_error is False
    methods = [message["method"] for message in read_messages(journal)]
    assert methods == ["initialize", "tool/execute", "tool/execute", "eventBus/event", "shutdown"]


@pytest.mark.req("piglet.rule.stop-ladder")
@pytest.mark.parametrize("deaf", [True, False])
async def test_who_does_not_go_gets_200_ms_then_is_signalled_and_killed_with_all_it_started(tmp_path: Path, deaf: bool) -> None:
    """`deaf`: it hears SIGTERM and does not mind."""
    body = f"""
pid = os.posix_spawn(sys.executable, [sys.executable, "-ISc", "import signal; signal.pause()"], os.environ, setsid=True)
def heard(*_):
    note("term")
    {"pass" if deaf else "os._exit(5)"}
signal.signal(signal.SIGTERM, heard)
say(4, tool("look"), hello(next(lines(3))["id"]))
note("heard", json.dumps([m for m in lines(3)]))
note("pids", json.dumps([os.getpid(), pid]))
while True:
    signal.pause()
"""
    folder, limits = write_bare_guest(tmp_path, body), {"stop_polite": 0.2, "stop_term": 0.3 if deaf else 15.0}
    async with open_host(tmp_path, folder, limits=limits) as host:
        child = child_of(host, "bare")
        began = asyncio.get_running_loop().time()
        await asyncio.wait_for(host.guest("bare").stop(), 30)
        assert asyncio.get_running_loop().time() - began >= 0.2
        assert [m["method"] for m in json.loads((folder / "heard").read_text())] == ["shutdown"]
        assert (folder / "term").exists()
        assert child.status == (ExitStatus(signal=signal.SIGKILL) if deaf else ExitStatus(code=5))
        with Ends(json.loads((folder / "pids").read_text())) as ends:
            assert await asyncio.to_thread(ends.left_after, 15) == set()
    assert ADAPTER.limits["stop_polite"] == 0.2


@pytest.mark.req("piglet.rule.stop-ladder")
async def test_one_that_reads_nothing_cannot_hold_up_its_stop(tmp_path: Path) -> None:
    """Its pipe is full, so that not even `shutdown` goes through; yet its input ends."""
    body = """
def read_all(*_):
    while os.read(3, 65536): pass
    os._exit(6)
signal.signal(signal.SIGTERM, read_all)
say(4, tool("look"), hello(next(lines(3))["id"]))
while True:
    signal.pause()
"""
    folder = write_bare_guest(tmp_path, body)
    async with open_host(tmp_path, folder, limits={"stop_polite": 0.2, "stop_term": 15.0}) as host:
        calls = [asyncio.create_task(host.call_tool("look", {"text": "x" * 500_000})) for _ in range(8)]
        await asyncio.sleep(0)
        child = child_of(host, "bare")
        await asyncio.wait_for(host.guest("bare").stop(), 15)
        assert child.status == ExitStatus(code=6)
        for result in await asyncio.gather(*calls):
            assert "extension bare closed" in result.text


@pytest.mark.req("piglet.rule.stop-ladder")
async def test_a_stop_while_it_waits_to_be_started_again_is_the_end_of_it(tmp_path: Path) -> None:
    folder = write(tmp_path, "weather", tools={"die": [fault("crash")]})
    async with open_host(tmp_path, folder, limits=SLOW_RESTART) as host:
        guest = host.guest("weather")
        await host.call_tool("die")
        await wait_for_state(host, "weather", GuestState.BACKING_OFF)
        await guest.stop()
        assert (guest.state, guest._timer, guest.generation) == (GuestState.STOPPED, None, 1)


# Goes when the other one is on its way, too: who is stopped alone would wait for ever.
TOGETHER = """
say(4, hello(next(lines(3))["id"]))
for m in lines(3): pass
note("../leaving-NAME")
while not os.path.exists("../leaving-OTHER"):
    time.sleep(0.002)
"""


@pytest.mark.req("piglet.rule.cleanup-order")
async def test_the_watcher_goes_first_then_all_guests_at_once_and_all_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("one", "two")
    folders = [
        write_bare_guest(tmp_path, TOGETHER.replace("NAME", name).replace("OTHER", other), name=name)
        for name, other in zip(names, reversed(names), strict=True)
    ]
    seen: list[Any] = []
    usual = HotReload.close

    async def close(self: HotReload) -> None:
        await usual(self)
        seen.append([(guest.state, lives(guest.running.pid)) for guest in host.guests.values() if guest.running is not None])

    monkeypatch.setattr(HotReload, "close", close)
    async with open_host(tmp_path, *folders, watch=True) as host:
        children, pids = [child_of(host, name) for name in names], [pid_of(host, name) for name in names]
        await host.close()
        assert seen == [[(GuestState.READY, True), (GuestState.READY, True)]]
        assert [child.status for child in children] == [ExitStatus(code=0)] * 2
        assert not any(map(lives, pids))
        assert host._hot_reload._watcher._thread is not None
        assert not host._hot_reload._watcher._thread.is_alive()


async def test_a_closed_host_starts_no_guest(tmp_path: Path, spawner: PlainSpawner) -> None:
    async with open_host(tmp_path, write(tmp_path, "weather"), spawner=spawner) as host:
        guest = host.guest("weather")
        await host.close()
        assert not await guest.reload()
        assert (guest.state, guest.generation) == (GuestState.STOPPED, 1)
        assert not isinstance(guest.error, SpawnFailed)
    assert not spawner.children
