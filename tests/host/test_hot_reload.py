"""A reload: the new process first, one step, then the old one may finish; and what makes a reload fail harms nobody."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from serai.errors import BadManifest, Closed, NoGuest, PeerGone, PeerTimeout
from serai.host.guest import GuestState
from serai.host.host import Host
from serai.host.hot_reload import HotReload
from serai.model.actions import ClosePanel
from tests.support.host.zot_guests import (
    NOTE,
    PRELUDE,
    STUBBORN,
    AwaitableSurface,
    build_host,
    log_of,
    make,
    open_host,
    pid_of,
    pids,
    read_frames,
    wait_for_state,
    wait_until,
    wait_until_reaped,
)
from tests.support.processes import lives

# Answers `version` at once, and `slow` when somebody has written into the pipe `go`.
VERSION = """
hello(tool("version"), tool("slow"))
for frame in frames():
    if "id" in frame:
        if frame["name"] == "slow":
            open("busy", "w").close()
            open("go").read()
        answer(frame["id"], "VERSION")
"""


def version(number: int) -> str:
    return NOTE + VERSION.replace("VERSION", str(number))


def rewrite(folder: Path, body: str) -> None:
    (folder / "guest.py").write_text(f"{PRELUDE}\n{body}\n")


async def call(host: Host, name: str = "version") -> str:
    result = await host.call_tool(name)
    assert not result.is_error, result
    return result.text


@pytest.mark.req("host.reload.swap")
@pytest.mark.req("zot.rule.5.5-reload")
async def test_the_new_process_takes_over_while_the_old_one_finishes_what_it_has(tmp_path: Path) -> None:
    folder = make(tmp_path, version(1))
    os.mkfifo(folder / "go")
    async with open_host(tmp_path, folder) as host:
        slow = asyncio.create_task(call(host, "slow"))
        await _wait_until_busy(folder)
        rewrite(folder, version(2))
        await host.reload()
        assert await call(host) == "2"
        first, second = pids(folder)
        assert lives(first)
        assert pid_of(host, "probe") == second
        assert not slow.done()
        await asyncio.to_thread((folder / "go").write_text, "on")
        assert await slow == "1"
        await asyncio.wait_for(wait_until_reaped(first), 15)
        assert await call(host) == "2"


async def _wait_until_busy(folder: Path) -> None:
    """Wait until the guest is in the middle of its call."""
    while not (folder / "busy").exists():
        await asyncio.sleep(0)


async def test_what_the_old_process_does_not_finish_in_time_fails_and_it_is_stopped(tmp_path: Path) -> None:
    folder = make(tmp_path, version(1))
    os.mkfifo(folder / "go")
    async with open_host(tmp_path, folder, limits=STUBBORN | {"drain": 0.2}) as host:
        slow = asyncio.create_task(host.call_tool("slow"))
        await _wait_until_busy(folder)
        await host.reload()
        result = await asyncio.wait_for(slow, 15)
        assert (result.code, result.is_error) == ("TOOL_UNAVAILABLE", True)
        assert "it was stopped before it answered" in result.text
        await asyncio.wait_for(wait_until_reaped(pids(folder)[0]), 15)
        assert await call(host) == "1"


async def test_closing_does_not_wait_for_what_a_replaced_process_has_under_way(tmp_path: Path) -> None:
    folder = make(tmp_path, version(1))
    os.mkfifo(folder / "go")
    async with open_host(tmp_path, folder, limits=STUBBORN | {"drain": 60.0}) as host:
        slow = asyncio.create_task(host.call_tool("slow"))
        await _wait_until_busy(folder)
        await host.reload()
        await asyncio.wait_for(host.close(), 15)
        assert (await slow).code == "TOOL_UNAVAILABLE"


@pytest.mark.req("host.reload.keeps-old")
@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ("manifest", BadManifest, "parse manifest"),
        ("exit", PeerGone, "exited before hello (exit status 9); stderr ended with: SyntaxError"),
        ("mute", PeerTimeout, "no hello within 0.5 s"),
    ],
)
async def test_a_reload_that_fails_leaves_the_old_process_serving_and_is_told(
    tmp_path: Path, change: str, error: type[Exception], why: str
) -> None:
    folder = make(tmp_path, version(1))
    async with open_host(tmp_path, folder) as host:
        pid = pid_of(host, "probe")
        if change == "manifest":
            (folder / "extension.json").write_text('{"name": "probe", "exec": ')
        else:
            if change == "mute":  # those that do say hello have plenty of time
                (folder / "guest.toml").write_text("[limits]\nhello = 0.5\n")
            rewrite(folder, {"exit": "os.write(2, b'SyntaxError\\n'); sys.exit(9)", "mute": "time.sleep(1000)"}[change])
        report = await host.reload()
        assert (host.guest("probe").state, pid_of(host, "probe")) == (GuestState.READY, pid)
        assert await call(host) == "1"
        assert any("probe" in line and why in line for line in report.to_lines()), report.to_lines()
        assert why in log_of(host, "probe")
        if change != "manifest":
            assert isinstance(host.guest("probe").error, error)
        rewrite(folder, version(3))
        (folder / "guest.toml").unlink(missing_ok=True)
        (folder / "extension.json").write_text(json.dumps(_manifest()))
        assert (await host.reload()).to_lines() == []
        assert await call(host) == "3"


def _manifest() -> dict[str, Any]:
    return {"name": "probe", "exec": sys.executable, "args": ["-I", "-S", "guest.py"]}


@pytest.mark.slow
async def test_one_that_crashes_while_its_reload_fails_is_started_again_as_it_was(tmp_path: Path) -> None:
    """The new process goes on starting until the old one was killed."""
    folder = make(tmp_path, version(1))
    async with open_host(
        tmp_path, folder, limits={"restart_wait": 3.0, "restart_wait_most": 3.0}
    ) as host:  # later than it all takes
        (folder / "one.pid").write_text(str(pid_of(host, "probe")))
        rewrite(folder, "os.kill(int(open('one.pid').read()), 9)\ntime.sleep(0.1)\nsys.exit(1)")
        await host.reload()
        assert host.guest("probe").state is GuestState.BACKING_OFF
        rewrite(folder, version(2))
        await asyncio.wait_for(wait_for_state(host, "probe", GuestState.READY), 15)
        assert await call(host) == "2"


@pytest.mark.req("host.reload.exclusive")
@pytest.mark.req("zot.rule.5.5-reload")
async def test_of_an_exclusive_guest_two_processes_never_run_at_once(tmp_path: Path) -> None:
    """Each holds a lock as long as it runs, and says so when another has it. One closes its output and takes its time to leave."""
    body = f"""{NOTE}
import fcntl
lock = open("lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open("overlap", "w").close()
hello(tool("me"), tool("shut"))
for line in sys.stdin.buffer:
    frame = json.loads(line)
    if frame["type"] == "tool_call" and frame["name"] == "shut": os.close(1)
    elif frame["type"] == "tool_call": answer(frame["id"], "fine")
time.sleep(0.1)
"""
    folder = make(tmp_path, body, settings="exclusive = true\n")
    async with open_host(tmp_path, folder, limits={"exit_grace": 0.05}) as host:
        await host.reload()
        await asyncio.gather(host.reload(), host.reload())
        assert len(pids(folder)) == 4
        guest = host.guest("probe")
        os.kill(pid_of(host, "probe"), signal.SIGKILL)
        await wait_for_state(host, "probe", GuestState.BACKING_OFF)
        await wait_for_state(host, "probe", GuestState.READY)
        assert (await host.call_tool("shut")).code == "TOOL_UNAVAILABLE"  # it lives on for a while
        await host.reload() if guest.state is GuestState.BACKING_OFF else await wait_for_state(host, "probe", GuestState.READY)
        assert (await host.call_tool("me")).text == "fine"
        assert (await host.call_tool("shut")).code == "TOOL_UNAVAILABLE"
        await wait_for_state(host, "probe", GuestState.READY)
        assert (await host.call_tool("me")).text == "fine"
    assert len(pids(folder)) >= 7
    assert not (folder / "overlap").exists()


async def test_of_reloads_at_once_one_waits_for_the_first_and_all_others_join_it(tmp_path: Path) -> None:
    folder = make(tmp_path, version(1))
    async with open_host(tmp_path, folder) as host:
        await asyncio.gather(host.reload(), host.reload("probe"), host.reload("zot:probe"), host.reload("probe"))
        assert await call(host) == "1"
        *old, last = pids(folder)
        assert len(old) == 2
        assert pid_of(host, "probe") == last
        await asyncio.wait_for(wait_until_reaped(*old), 15)


@pytest.mark.req("zot.ours.4.6-reload-closes")
async def test_a_reload_closes_the_panel_and_its_keys_go_nowhere(tmp_path: Path) -> None:
    body = """
hello(command("open"), tool("heard"))
got = []
for frame in frames():
    got.append(frame)
    if frame["type"] == "command_invoked": respond(frame["id"], "open_panel", open_panel={"id": "menu"})
    if frame["type"] == "tool_call": answer(frame["id"], json.dumps(got))
"""
    window = AwaitableSurface()
    async with open_host(tmp_path, make(tmp_path, body), surface=window) as host:
        await host.run_command("open")
        host.context.panels.press("down")
        assert "panel_key" in [frame["type"] for frame in await read_frames(host)]
        await host.reload()
        assert host.context.panels.open is None
        assert [action.panel.id for action in window.actions if isinstance(action, ClosePanel)] == ["menu"]
        host.context.panels.press("down")
        host.context.panels.type("abc")
        host.context.panels.resize(80, 25)
        assert [frame["type"] for frame in await read_frames(host)] == ["hello_ack", "tool_call"]


@pytest.mark.req("host.reload.places")
async def test_a_reload_takes_in_what_came_and_lets_go_what_went(tmp_path: Path) -> None:
    place = tmp_path / "home" / "guests"
    old = make(place, f"{NOTE}remember(tools=('old', 'shared'))", name="b-old")
    stays = make(tmp_path, "remember(tools=('stays',))", name="stays")
    async with open_host(tmp_path, stays, installed=True) as host:
        assert list(host.guests) == ["zot:stays", "zot:b-old"]
        gone = pid_of(host, "b-old")
        shutil.rmtree(old)
        make(place, "remember(tools=('new', 'shared'))", name="a-new")
        make(place, "remember(tools=('shared',))", name="c-new")
        await host.reload()
        assert list(host.guests) == ["zot:stays", "zot:a-new", "zot:c-new"]
        assert [tool.name for tool in host.tools] == ["stays", "new", "shared"]
        assert host.table.tools["shared"].owner is host.guest("a-new")
        assert not (await host.call_tool("new")).is_error
        assert not lives(gone)
        with pytest.raises(NoGuest, match="there is no guest b-old"):
            host.guest("b-old")
        make(place, "remember(tools=('shared',))", name="a-first")
        await host.reload()
        assert list(host.guests) == ["zot:stays", "zot:a-first", "zot:a-new", "zot:c-new"]
        assert host.table.tools["shared"].owner is host.guest("a-first")
        make(place, "remember(tools=('late',))", name="d-late")
        await host.reload("stays")  # that one alone
        assert "zot:d-late" not in host.guests


async def test_an_ad_hoc_guest_whose_folder_is_gone_is_let_go(tmp_path: Path) -> None:
    folder = make(tmp_path, "remember()")
    async with open_host(tmp_path, folder) as host:
        shutil.rmtree(folder)
        report = await host.reload()
        assert (list(host.guests), list(host.tools)) == ([], [])
        assert report.problems == (f"{folder}: there is no such folder",)


async def test_a_guest_that_is_kept_despite_a_broken_manifest_keeps_its_place_among_the_others(tmp_path: Path) -> None:
    bodies = {name: f"remember(subscribe(intercept=['tool_call']), tools=('{name}', 'shared'))" for name in ("one", "two", "three")}
    folders = [make(tmp_path, body, name=name) for name, body in bodies.items()]
    async with open_host(tmp_path, *folders) as host:
        for broken in folders:
            whole = (broken / "extension.json").read_text()
            (broken / "extension.json").write_text("{")
            await host.reload()
            assert [link.guest.manifest.name for link in host.table.chains["tool_call"]] == ["one", "two", "three"]
            assert host.table.tools["shared"].owner is host.guest("one")
            (broken / "extension.json").write_text(whole)
        await host.reload()
        assert [guest.order for guest in host.guests.values()] == [0, 1, 2]


@pytest.mark.req("host.reload.places")
@pytest.mark.req("zot.ours.1.2-no-ext-remembered")
async def test_a_reload_does_not_look_where_the_start_did_not(tmp_path: Path) -> None:
    place = tmp_path / "home" / "guests"
    installed = make(place, f"{NOTE}remember(tools=('installed',))", name="installed")
    folder = make(tmp_path, "remember()")
    async with open_host(tmp_path, folder, installed=False) as host:
        await host.reload()
        assert list(host.guests) == ["zot:probe"]
        assert pids(installed) == []


async def test_a_closed_host_reloads_nothing(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, "remember()")) as host:
        await host.close()
        with pytest.raises(Closed, match="the host is closed"):
            await host.reload()


# -- hot reload -----------------------------------------------------------------------------------------------------------------

WATCHING: dict[str, Any] = {"watch": True, "limits": {"reload_wait": 0.05}}


async def wait_for_generation(host: Host, id: str, generation: int) -> None:
    guest = host.guest(id)
    await asyncio.wait_for(
        wait_until(host, lambda: guest.generation >= generation and guest.state is GuestState.READY and _is_served(guest)), 30
    )


def _is_served(guest: Any) -> bool:
    return bool(guest.run is not None and guest.run.generation == guest.generation)


@pytest.mark.req("host.reload.hot", "host.reload.own-files")
async def test_a_changed_file_starts_the_new_code_and_what_a_guest_writes_does_not(tmp_path: Path) -> None:
    """Into its own folder, at every start and with every answer: notes, a cache, even more code."""
    writes = """
def note():
    for name in ("state.json", "data.txt", "cache.py", "__pycache__/x.pyc", "lib.js"):
        os.makedirs("__pycache__", exist_ok=True)
        with open(name, "a") as file: file.write(f"{os.getpid()}\\n")
note()
hello(tool("version"))
for frame in frames():
    if "id" in frame:
        note()
        answer(frame["id"], "VERSION")
"""
    folder = make(tmp_path, NOTE + writes.replace("VERSION", "1"))
    other = make(tmp_path, "remember(tools=('other',))", name="other")
    async with open_host(tmp_path, folder, other, **WATCHING) as host:
        assert await call(host) == "1"
        rewrite(folder, NOTE + writes.replace("VERSION", "2"))
        await wait_for_generation(host, "probe", 2)
        assert await call(host) == "2"
        rewrite(other, "remember(tools=('other', 'more'))")  # later than all that the guest wrote, so told of later
        await wait_for_generation(host, "other", 2)
        assert [tool.name for tool in host.tools] == ["version", "other", "more"]
        assert host.guest("probe").generation == 2
        assert len(pids(folder)) == 2


async def test_a_file_that_does_not_work_yet_harms_nobody_until_it_does(tmp_path: Path) -> None:
    folder = make(tmp_path, version(1))
    async with open_host(tmp_path, folder, **WATCHING) as host:
        rewrite(folder, "def (")
        guest = host.guest("probe")
        await asyncio.wait_for(wait_until(host, lambda: guest.error is not None), 30)
        assert "SyntaxError" in str(guest.error)
        assert await call(host) == "1"
        rewrite(folder, version(2))
        await wait_for_generation(host, "probe", 3)
        assert await call(host) == "2"


async def test_a_guest_that_could_not_be_started_is_started_once_its_file_is_mended(tmp_path: Path) -> None:
    folder = make(tmp_path, "def (")
    async with open_host(tmp_path, folder, **WATCHING) as host:
        assert host.guest("probe").state is GuestState.GONE
        rewrite(folder, version(1))
        await wait_for_generation(host, "probe", 2)
        assert await call(host) == "1"


async def test_who_does_not_want_to_be_watched_is_not(tmp_path: Path) -> None:
    folder = make(tmp_path, version(1), settings="watch = false\n")
    other = make(tmp_path, "remember(tools=('other',))", name="other")
    async with open_host(tmp_path, folder, other, **WATCHING) as host:
        rewrite(folder, version(2))
        rewrite(other, "remember(tools=('other', 'more'))")
        await wait_for_generation(host, "other", 2)
        assert await call(host) == "1"


async def test_files_that_keep_changing_by_themselves_are_slowed_down_and_told(tmp_path: Path) -> None:
    reloaded: list[Path] = []
    told: list[str] = []

    async def reload(folders: frozenset[Path]) -> None:
        reloaded.extend(folders)

    hot = HotReload(reload, told.append, on=True, debounce=0.01)
    hot._settled[tmp_path] = frozenset()
    for _ in range(20):
        hot._handle_change(frozenset({str(tmp_path)}))
        await asyncio.sleep(0)
    assert reloaded == [tmp_path] * 9
    assert told == [f"{tmp_path} has changed 10 times within 30 s: its next reload is in 30 s"]
    hot._begin(frozenset({tmp_path}))  # as the timer does: the last change counts
    await asyncio.sleep(0)
    assert reloaded == [tmp_path] * 10
    await hot.close()


@pytest.mark.req("host.guard.never-ready", "host.reload.hot")
async def test_a_guard_that_gets_another_name_by_a_hot_reload_holds_on(tmp_path: Path) -> None:
    """What lies in the folder counts, not the id it had."""
    body = """
hello(subscribe(intercept=["tool_call"]), tool("work"))
for frame in frames():
    if frame["type"] == "event_intercept": send(type="event_intercept_response", id=frame["id"], block=True, reason="no")
"""
    folder = make(tmp_path, body, name="gate", settings="guard = true\n")
    manifest = folder / "extension.json"
    async with open_host(tmp_path, folder, watch=True, limits={"reload_wait": 0.02}) as host:
        assert (await host.call_tool("work")).text == "no"
        manifest.write_text(manifest.read_text().replace('"gate"', '"gate2"'))
        await wait_until(host, lambda: list(host.guests) == ["zot:gate2"] and host.guest("gate2").state is GuestState.READY)
        assert (await host.call_tool("work")).text == "no"
        manifest.write_text(manifest.read_text().replace("{", '{"enabled": false, ', 1))
        await wait_until(host, lambda: not host.guests)
        manifest.write_text(manifest.read_text().replace('"enabled": false, ', ""))
        await wait_until(host, lambda: bool(host.guests) and host.guest("gate2").state is GuestState.READY)
        assert (await host.call_tool("work")).text == "no"


async def test_a_manifest_that_was_broken_at_the_start_is_taken_in_once_it_is_mended(tmp_path: Path) -> None:
    folder = make(tmp_path, "remember(tools=('work',))")
    manifest = folder / "extension.json"
    whole = manifest.read_text()
    manifest.write_text(whole[:-5])
    async with open_host(tmp_path, folder, watch=True, limits={"reload_wait": 0.02}) as host:
        assert not host.guests
        manifest.write_text(whole)
        await wait_until(host, lambda: bool(host.guests) and host.guest("probe").state is GuestState.READY)
        assert not (await host.call_tool("work")).is_error


@pytest.mark.parametrize("settings", ["", "exclusive = true\n"])
async def test_a_reload_whose_caller_is_cancelled_goes_on(tmp_path: Path, settings: str) -> None:
    folder = make(tmp_path, "remember(tools=('heard',))", settings=settings)
    async with open_host(tmp_path, folder) as host:
        before = host.guest("probe").generation
        caller = asyncio.create_task(host.reload())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        await wait_until(host, lambda: host.guest("probe").generation > before and host.guest("probe").state is GuestState.READY)
        assert not (await host.call_tool("heard")).is_error


async def test_a_host_is_started_once(tmp_path: Path) -> None:
    host = build_host(tmp_path, make(tmp_path, "remember()"))
    assert (await host.call_tool("heard")).text == "heard is not available: the host is not started"
    async with host:
        with pytest.raises(Closed, match="was started before"):
            await host.start()
    assert (await host.call_tool("heard")).text == "heard is not available: the host is closed"
    with pytest.raises(Closed, match="was started before"):
        await host.start()
