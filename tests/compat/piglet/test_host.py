"""The objects of piglet's own package over Serai's: one process, its supervisor, and everything of a folder (seed 004)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.compat.piglet import host as piglet_host
from serai.compat.piglet.host import (
    Host,
    Supervisor,
    Watcher,
    discover_extensions,
    extensions_dir,
    load_all,
    load_manifest,
    project_extensions_dir,
)
from serai.errors import BadManifest, Closed, PeerGone, Refused
from serai.host.guest import GuestState
from serai.host.trust import Trust
from serai.model.actions import Notice
from tests.support import piglet_guests
from tests.support.host.guest_folders import write_zot_guest
from tests.support.host.zot_guests import LIMITS, AwaitableSurface, pid_of, wait_for_state, wait_until
from tests.support.piglet_guests.guest_folder import interceptor
from tests.support.piglet_guests.steps import crash, fault, relay, throw, wait, where
from tests.support.processes import lives


def env(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "SERAI_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def host_of(tmp_path: Path, folder: Path, **options: Any) -> Host:
    return Host(load_manifest(folder), tmp_path, environ=env(tmp_path), limits=LIMITS, **options)


# -- folders ----------------------------------------------------------------------------------------------------------------------


def test_folders_are_those_of_the_origin() -> None:
    assert extensions_dir({"HOME": "/h"}) == Path("/h/.config/piglet/extensions")
    assert project_extensions_dir("/work") == "/work/.piglet/extensions"
    assert project_extensions_dir("") == ""


@pytest.mark.req("piglet.rule.discovery-walk", "piglet.rule.discovery-bad-manifest")
def test_a_place_gives_its_guests_by_folder_and_warns_of_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert discover_extensions(tmp_path / "nowhere") == []
    piglet_guests.write(tmp_path, "b", manifest={"name": "a"})
    piglet_guests.write(tmp_path, "a", manifest={"name": "z"})
    piglet_guests.write(tmp_path, "bad", manifest={"runtime": None})
    (tmp_path / "empty").mkdir()
    assert [manifest.name for manifest in discover_extensions(tmp_path)] == ["z", "a"]
    assert f"manifest {tmp_path}/bad/manifest.yaml: runtime is required" in caplog.text
    with pytest.raises(BadManifest, match="runtime is required"):
        load_manifest(tmp_path / "bad")
    with pytest.raises(BadManifest, match=f"read manifest {tmp_path}/empty/manifest.yaml: "):
        load_manifest(tmp_path / "empty")


# -- one process ------------------------------------------------------------------------------------------------------------------


async def test_a_host_starts_one_process_and_asks_it_everything(tmp_path: Path) -> None:
    folder = piglet_guests.write(
        tmp_path,
        "weather",
        tools={"look": "$city: fog", "fails": [throw("no station")], "where": [where()]},
        commands={"forecast": "rain"},
        sections={"Units": "Use metric."},
        interceptors={"guard": interceptor(before="not today", after={"details": {"seen": True}}, priority=7)},
        handlers={"meter": "one more"},
        shortcuts={"ctrl+g": "pressed"},
        hooks={"clock": "It is noon."},
        transformers={"alias": "show $input"},
        compactor="all of it",
        providers=["acme"],
    )
    window = AwaitableSurface()
    async with host_of(tmp_path, folder, surface=window) as host:
        offers = host.contributions
        assert host.name == "weather"
        assert {tool.name for tool in offers.tools} == {"look", "fails", "where"}
        assert (offers.commands[0].name, offers.interceptors[0].priority, offers.providers[0].api) == ("forecast", 7, "acme")
        result = await host.execute_tool("call_1", "look", {"city": "Bern"})
        assert [block.text for block in result.content or ()] == ["Bern: fog"]
        told = msgspec.json.decode((await host.execute_tool("call_2", "where", None)).content[0].text)  # type: ignore[index]
        assert (told["cwd"], told["configDir"]) == (str(tmp_path), str(tmp_path / "home" / "extensions" / "weather"))
        with pytest.raises(Refused, match="no station"):
            await host.execute_tool("call_3", "fails", {})
        await host.execute_command("forecast", "Bern")
        assert await host.intercept_before("guard", "bash", {"command": "rm"}) == (False, None, "not today")
        assert await host.intercept_after("guard", "bash", {"files": 1}) == {"seen": True}
        action = await host.dispatch_event("EventTurnEnd", {})
        assert action is not None
        assert (action.type, msgspec.json.decode(action.payload)["message"]) == ("notify", "one more")
        action = await host.handle_shortcut("ctrl+g")
        assert action is not None
        assert action.type == "notify"
        assert await host.on_message("hello") == "It is noon."
        assert await host.transform_input("status") == ("show status", False)
        assert [message.type for message in await host.execute_compact([])] == ["user"]
        pid = host._get_guest().pid
    assert host.closed.is_set()
    assert host.cause is None
    assert not lives(pid)
    with pytest.raises(Closed):
        await host.start()


async def test_a_host_whose_process_ends_is_closed_and_says_why(tmp_path: Path) -> None:
    folder = piglet_guests.write(tmp_path, "weather", tools={"die": [crash(7)], "asks": [relay()]})
    async with host_of(tmp_path, folder) as host:
        refused = await host.execute_tool("1", "asks", {"method": "host/extInfos", "params": {}})
        assert "this host runs without an app" in (refused.content or [])[0].text
        with pytest.raises(PeerGone, match="extension weather closed"):
            await host.execute_tool("2", "die", {})
        await asyncio.wait_for(host.closed.wait(), 30)
        assert host.cause is not None
        assert host.cause.exit is not None
        assert host.cause.exit.code == 7


async def test_a_host_that_cannot_be_started_leaves_nothing(tmp_path: Path) -> None:
    host = host_of(tmp_path, piglet_guests.write(tmp_path, "weather", initialize=[throw("no key")]))
    with pytest.raises(Refused, match="initialize weather: no key"):
        await host.start()
    assert host.closed.is_set()
    with pytest.raises(Closed):
        await host.execute_command("x")


@pytest.mark.parametrize("when", ["serving", "starting"])
async def test_a_host_keeps_the_log_of_its_guest_small_and_ends_one_that_fills_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(piglet_host, "LOOK", 0.01)
    flood = [fault("stderr", bytes=64 << 20), wait()]
    folder = piglet_guests.write(tmp_path, "loud", tools={"shout": flood}, at_init=flood if when == "starting" else None)
    limits = LIMITS | {"log": 1_000_000, "log_flood": 1_000_000, "hello": 60.0}  # what is no flood yet is left to grow
    host = Host(load_manifest(folder), tmp_path, environ=env(tmp_path), limits=limits)
    if when == "starting":
        with pytest.raises(PeerGone, match="was ended: it wrote ") as ended:
            await asyncio.wait_for(host.start(), 60)
        assert "limit log_flood = 1000000" in str(ended.value)
    else:
        async with host:
            with pytest.raises(PeerGone):
                await asyncio.wait_for(host.execute_tool("1", "shout", {}), 60)
            await asyncio.wait_for(host.closed.wait(), 60)
            assert "was ended: it wrote " in str(host.cause)
    assert host.closed.is_set()


async def test_a_host_trims_the_log_of_a_guest_that_does_not_overdo_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piglet_host, "LOOK", 0.01)
    folder = piglet_guests.write(tmp_path, "loud", tools={"say": [fault("stderr", bytes=5000)]})
    host = Host(load_manifest(folder), tmp_path, environ=env(tmp_path), limits=LIMITS | {"log": 10_000})
    async with host:
        older = tmp_path / "home" / "logs" / "ext-loud.log.1"
        async with asyncio.timeout(60):
            while not older.exists():
                await host.execute_tool("1", "say", {})
        assert not host.closed.is_set()


# -- its supervisor ---------------------------------------------------------------------------------------------------------------


async def test_a_supervisor_starts_its_guest_again_and_reloads_it(tmp_path: Path) -> None:
    folder, window = piglet_guests.write(tmp_path, "weather", tools={"look": "one"}), AwaitableSurface()
    supervisor = Supervisor(load_manifest(folder), tmp_path, environ=env(tmp_path), limits=LIMITS, surface=window)
    await supervisor.start()
    try:
        host = supervisor.host
        assert supervisor.name == "weather"
        os.kill(pid_of(host, "weather"), signal.SIGKILL)
        await wait_for_state(host, "weather", GuestState.BACKING_OFF)
        await wait_for_state(host, "weather", GuestState.READY)
        piglet_guests.write(tmp_path, "weather", tools={"look": "two"}, version="2.0")
        await supervisor.reload()
        assert (await host.call_tool("look")).text == "two"
        assert host.guest("weather").manifest.version == "2.0"
        assert Notice("weather reloaded", "info", "serai") in window.actions
        (folder / "manifest.yaml").write_text("name: [")
        await supervisor.reload()
        assert (await host.call_tool("look")).text == "two"
    finally:
        await supervisor.stop()
        await supervisor.stop()


async def test_a_supervisor_whose_first_start_fails_says_why_and_is_over(tmp_path: Path) -> None:
    folder = piglet_guests.write(tmp_path, "weather", initialize=[throw("no key")])
    supervisor = Supervisor(load_manifest(folder), tmp_path, environ=env(tmp_path), limits=LIMITS)
    with pytest.raises(Refused, match="initialize weather: no key"):
        await supervisor.start()
    await supervisor.stop()


async def test_a_watcher_tells_what_has_changed_until_it_is_stopped(tmp_path: Path) -> None:
    told: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
    watcher = Watcher(told.set_result, debounce=0.01)
    (tmp_path / "file").write_text("one")
    watcher.watch("weather", [tmp_path / "file"])
    (tmp_path / "file").write_text("two")
    assert await asyncio.wait_for(told, 30) == {"weather"}
    await watcher.stop()


# -- all of them ------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("piglet.rule.cleanup-order")
async def test_everything_of_piglets_home_and_of_a_trusted_project_is_loaded(tmp_path: Path) -> None:
    environ, project = env(tmp_path), tmp_path / "project"
    place = extensions_dir(environ)
    for name in ("clock", "weather", "off"):
        piglet_guests.write(place, name, tools={name: f"global {name}"})
    piglet_guests.write(place, "broken", initialize=[throw("no key")])
    piglet_guests.write(Path(project_extensions_dir(project)), "weather", tools={"weather": "the project's"})
    piglet_guests.write(tmp_path / "home" / "guests", "elsewhere")  # Serai's own place, not piglet's
    Trust.usual(environ).allow(project)
    options: dict[str, Any] = {"environ": environ, "limits": LIMITS | {"reload_wait": 0.02}, "disabled": ["off"]}
    loaded, cleanup, error = await load_all(project_dir=project_extensions_dir(project), **options)
    host = cleanup.host
    try:
        assert (loaded, error) == (2, None)
        assert sorted(host.guests) == ["piglet:broken", "piglet:clock", "piglet:weather"]
        assert (await host.call_tool("weather")).text == "the project's"
        piglet_guests.write(place, "clock", tools={"clock": "new"}, version="2.0")
        await asyncio.wait_for(wait_until(host, lambda: host.guest("clock").manifest.version == "2.0"), 30)
        pids = [pid_of(host, name) for name in ("clock", "weather")]
        ended: list[str] = []
        close, stops = host._hot_reload.close, [(guest, guest.stop) for guest in host.guests.values()]

        async def closing() -> None:
            assert not ended
            await close()
            ended.append("watcher")

        host._hot_reload.close = closing  # type: ignore[method-assign]
        for guest, stop in stops:
            guest.stop = _note_stop(ended, len(stops), stop)  # type: ignore[method-assign]
    finally:
        await asyncio.wait_for(cleanup(), 60)
    assert ended == ["watcher", *["stop"] * 3]
    assert not any(map(lives, pids))


def _note_stop(ended: list[str], most: int, stop: Any) -> Any:
    async def stopping() -> None:
        ended.append("stop")
        while len(ended) <= most:  # in parallel: all are begun before one is over
            await asyncio.sleep(0)
        await stop()

    return stopping


async def test_nothing_of_a_project_counts_that_is_not_named_or_not_trusted(tmp_path: Path) -> None:
    environ, project = env(tmp_path), tmp_path / "project"
    piglet_guests.write(Path(project_extensions_dir(project)), "weather")
    for folder in (project_extensions_dir(project), ""):
        loaded, cleanup, error = await load_all(project_dir=folder, environ=environ, limits=LIMITS)
        assert (loaded, error) == (0, None)
        await cleanup()
    loaded, cleanup, error = await load_all(project_dir=tmp_path, environ=environ, limits=LIMITS)
    assert loaded == 0
    assert "a project's guests lie in its .piglet/extensions" in str(error)
    await cleanup()


@pytest.mark.req("piglet.rule.project-trust")
@pytest.mark.parametrize("watch", [False, True])
async def test_a_trusted_projects_guest_that_has_changed_is_not_started_again(tmp_path: Path, watch: bool) -> None:
    environ, project = env(tmp_path), tmp_path / "project"
    folder = piglet_guests.write(Path(project_extensions_dir(project)), "weather", tools={"look": "trusted"})
    Trust.usual(environ).allow(project)
    options: dict[str, Any] = {"environ": environ, "limits": LIMITS, "watch": watch}
    loaded, cleanup, _ = await load_all(project_dir=project_extensions_dir(project), **options)
    try:
        assert loaded == 1
        (folder / "more.py").write_text("evil = True")
        os.kill(pid_of(cleanup.host, "weather"), signal.SIGKILL)
        await wait_for_state(cleanup.host, "weather", GuestState.GONE)
        assert "it has changed since it was trusted: more.py" in str(cleanup.host.guest("weather").error)
    finally:
        await cleanup()


async def test_the_persons_settings_count_for_all_that_is_loaded(tmp_path: Path) -> None:
    environ = env(tmp_path)
    place, settings = extensions_dir(environ), tmp_path / "home" / "config.toml"
    for name in ("off", "listed", "here", "narrow", "gate"):
        piglet_guests.write(place, name)
    settings.parent.mkdir()
    settings.write_text(SETTINGS)
    loaded, cleanup, error = await load_all(environ=environ, cwd=tmp_path, disabled=["here"], limits=LIMITS)
    try:
        guests = cleanup.host.guests
        assert (loaded, error, sorted(guests)) == (2, None, ["piglet:gate", "piglet:narrow"])
        assert guests["piglet:narrow"].manifest.settings.groups == {"bus"}
        assert (guests["piglet:gate"].guard, guests["piglet:narrow"].limits.events) == (True, 77)
        assert guests["piglet:gate"].limits.tool == LIMITS["tool"]  # what is given here is nearer
        assert "piglet:gate intercepts nothing" in cleanup.host.guards_down()
    finally:
        await cleanup()


SETTINGS = """
disabled_extensions = ["listed"]
[limits]
events = 77
tool = 5
[guest."piglet:off"]
enabled = false
[guest."piglet:narrow"]
services = ["bus"]
[guest."piglet:gate"]
guard = true
"""


async def test_while_a_guard_is_not_among_what_is_loaded_nothing_runs(tmp_path: Path) -> None:
    environ = env(tmp_path)
    piglet_guests.write(extensions_dir(environ), "weather", tools={"look": "fog"})
    folder = write_zot_guest(tmp_path / "home" / "guests" / "gate", guest_toml="guard = true\n")
    loaded, cleanup, _ = await load_all(environ=environ, cwd=tmp_path, limits=LIMITS)
    try:
        assert loaded == 1
        assert f"{folder}: this guard is not one of piglet's own" in cleanup.host.guards_down()
        assert (await cleanup.host.call_tool("look")).is_error
    finally:
        await cleanup()


async def test_with_settings_that_cannot_be_read_nothing_is_loaded(tmp_path: Path) -> None:
    environ = env(tmp_path)
    piglet_guests.write(extensions_dir(environ), "weather")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("[guest.weather]\ngaurd = true\n")
    loaded, cleanup, error = await load_all(environ=environ, limits=LIMITS)
    assert loaded == 0
    assert "gaurd" in str(error)
    await cleanup()


async def test_a_host_is_one_process_however_often_it_is_started(tmp_path: Path) -> None:
    folder = piglet_guests.write(tmp_path, "weather", tools={"where": [where()]})
    host = host_of(tmp_path, folder)
    outcomes = await asyncio.gather(host.start(), host.start(), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), Closed]
    await host.stop()
    with pytest.raises(Closed):
        await host.start()
