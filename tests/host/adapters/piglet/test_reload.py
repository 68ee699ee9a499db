"""A piglet guest that is reloaded: what is told, what counts of its manifest, and which files matter (spec piglet 8.0)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from serai.host.guest import GuestState
from serai.host.host import Host
from serai.model.actions import Action, CloseOverlay, Notice, SetStatus, SetWidget
from tests.support import piglet_guests
from tests.support.host.zot_guests import AwaitableSurface, open_host, pid_of, wait_for_state, wait_until
from tests.support.piglet_guests.steps import ask, crash, fault, tell, throw, wait

pytestmark = pytest.mark.loops

WATCHING: dict[str, Any] = {"watch": True, "limits": {"reload_wait": 0.05}}


def weather(place: Path, text: str, **more: Any) -> Path:
    return piglet_guests.write(place, "weather", tools={"look": text}, **more)


def notices(window: AwaitableSurface) -> list[tuple[str, str]]:
    return [(action.level, action.text) for action in window.actions if isinstance(action, Notice) and action.source == "serai"]


async def look(host: Host) -> str:
    return (await host.call_tool("look")).text


async def wait_for_generation(host: Host, generation: int) -> None:
    guest = host.guest("weather")
    await wait_until(host, lambda: guest.run is not None and guest.run.generation >= generation and guest.state is GuestState.READY)


@pytest.mark.req("piglet.rule.reload-swap")
@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_reload_swaps_and_says_so(tmp_path: Path, exclusive: bool) -> None:
    window, folder = AwaitableSurface(), weather(tmp_path, "one")
    (folder / "guest.toml").write_text(f"exclusive = {str(exclusive).lower()}\n")
    async with open_host(tmp_path, folder, surface=window) as host:
        before = pid_of(host, "weather")
        weather(tmp_path, "two", version="2.0")
        await host.reload("weather")
        assert await look(host) == "two"
        assert pid_of(host, "weather") != before
        assert host.guest("weather").manifest.version == "2.0"  # read anew
        assert notices(window) == [("info", "Reloading weather..."), ("info", "weather reloaded")]
        await host.reload()  # all at once: a report tells
        assert len(notices(window)) == 2


@pytest.mark.req("piglet.rule.reload-failure")
async def test_a_reload_that_fails_says_why_and_the_old_process_serves_on(tmp_path: Path) -> None:
    window, folder = AwaitableSurface(), weather(tmp_path, "one")
    async with open_host(tmp_path, folder, surface=window) as host:
        host.guest("weather").failures = 3
        weather(tmp_path, "two", initialize=[throw("no key")])
        await host.reload("weather")
        assert await look(host) == "one"
        assert notices(window)[0] == ("info", "Reloading weather...")
        ((level, text),) = notices(window)[1:]
        assert (level, text.startswith("weather reload failed: initialize weather: no key")) == ("error", True)
        assert host.guest("weather").failures == 0
        weather(tmp_path, "three")
        await host.reload("weather")
        assert await look(host) == "three"


@pytest.mark.req("piglet.rule.reload-failure")
async def test_of_many_reloads_at_once_one_runs_and_one_waits(tmp_path: Path) -> None:
    async with open_host(tmp_path, weather(tmp_path, "one")) as host:
        await asyncio.gather(*(host.reload("weather") for _ in range(10)))
        assert host.guest("weather").generation == 3


@pytest.mark.req("piglet.fix.35")
async def test_a_changed_name_counts_as_an_invalid_manifest_and_the_old_one_is_kept(tmp_path: Path) -> None:
    window, folder = AwaitableSurface(), weather(tmp_path, "one")
    async with open_host(tmp_path, folder, surface=window) as host:
        before = pid_of(host, "weather")
        weather(tmp_path, "two", version="2.0", manifest={"name": "climate"})
        why = "its name is climate now, and no reload renames weather"
        await host.reload("weather")
        assert (list(host.guests), pid_of(host, "weather"), await look(host)) == (["piglet:weather"], before, "one")
        assert notices(window) == [("error", f"weather reload failed: {why}")]
        report = await host.reload()
        assert (list(host.guests), report.problems) == (["piglet:weather"], (f"{folder}: {why}",))
        weather(tmp_path, "three")
        await host.reload()
        assert await look(host) == "three"


@pytest.mark.req("piglet.fix.35")
@pytest.mark.parametrize("text", ["name: [", "name: weather\n"])
async def test_a_manifest_that_cannot_be_read_any_more_is_told_and_the_old_one_is_kept(tmp_path: Path, text: str) -> None:
    window, folder = AwaitableSurface(), weather(tmp_path, "one")
    async with open_host(tmp_path, folder, surface=window, **WATCHING) as host:
        (folder / "manifest.yaml").write_text(text)
        told = await window.shown(lambda action: isinstance(action, Notice) and action.level == "error")
        assert isinstance(told, Notice)
        assert told.text.startswith("weather reload failed: ")
        assert await look(host) == "one"


@pytest.mark.req("piglet.rule.watcher", "piglet.fix.36")
@pytest.mark.parametrize("how", ["write", "rename"])
@pytest.mark.parametrize("file", ["manifest.yaml", "guest", "src/main"])
async def test_a_change_of_what_the_manifest_names_reloads_the_guest(tmp_path: Path, file: str, how: str) -> None:
    folder = weather(tmp_path, "one")
    if file == "src/main":
        (folder / "src").mkdir()
        (folder / file).write_text('exec "$(dirname "$0")/../guest"\n')
        (folder / "manifest.yaml").write_text(f"name: weather\nruntime: /bin/sh\nentry: {file}\n")
    async with open_host(tmp_path, folder, **WATCHING) as host:
        content, mode = (folder / file).read_bytes() + b"\n# changed\n", (folder / file).stat().st_mode
        if how == "write":
            (folder / file).write_bytes(content)
        else:
            (tmp_path / "new").write_bytes(content)
            (tmp_path / "new").chmod(mode)
            os.replace(tmp_path / "new", folder / file)
        await asyncio.wait_for(wait_for_generation(host, 2), 30)


@pytest.mark.req("piglet.rule.watcher")
async def test_no_other_file_reloads_it_not_even_code(tmp_path: Path) -> None:
    folder, other = weather(tmp_path, "one"), piglet_guests.write(tmp_path, "other")
    (folder / "src").mkdir()
    others = [folder / name for name in ("helper.py", "src/other.ts", "notes.md")]
    for file in others[:2]:
        file.write_text("before")
    async with open_host(tmp_path, folder, other, **WATCHING) as host:
        for file in others:
            file.write_text("after")
        piglet_guests.write(tmp_path, "other", version="2.0")
        await asyncio.wait_for(wait_until(host, lambda: host.guest("other").manifest.version == "2.0"), 30)
        assert (host.guest("weather").generation, await look(host)) == (1, "one")


# -- what it has put on the surface -----------------------------------------------------------------------------------------------


def drop_notices(window: AwaitableSurface) -> list[Action]:
    return [action for action in window.actions if not isinstance(action, Notice)]


SHOWN = [
    tell("setWidget", {"key": "wx", "placement": "above-input", "content": "7 degrees"}),
    tell("showOverlay", {"key": "map", "content": "radar"}),
]


@pytest.mark.req("piglet.rule.crash-pending")
@pytest.mark.parametrize("end", ["crash", "stop", "reload"])
async def test_its_widgets_overlays_and_status_go_with_its_process(tmp_path: Path, end: str) -> None:
    window = AwaitableSurface()
    status = {"action": {"type": "setStatus", "payload": {"key": "meter", "text": "3"}}}
    folder = piglet_guests.write(
        tmp_path,
        "weather",
        commands={"show": SHOWN},
        shortcuts={"ctrl+g": status},
        tools={"die": [crash()], "odd": [fault("prose")]},
    )
    limits = {"restart_wait": 60.0, "restart_wait_most": 60.0}
    async with open_host(tmp_path, folder, surface=window, limits=limits) as host:
        await host.run_command("show")
        await host.run_shortcut("ctrl+g")
        assert len(drop_notices(window)) == 3
        if end == "crash":
            await host.call_tool("die")
            await wait_for_state(host, "weather", GuestState.BACKING_OFF)
        elif end == "stop":
            await host.guest("weather").stop()
        else:
            await host.reload()
        assert drop_notices(window)[3:] == [SetWidget("wx", "above-input", ""), CloseOverlay("map"), SetStatus("meter", "")]


class Hanging:
    """Services that never answer."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.asked, self.cancelled = loop.create_future(), loop.create_future()

    async def ask(self, guest: str, group: str, what: str, arguments: Mapping[str, Any]) -> Any:
        self.asked.set_result((guest, group, what))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.cancelled.set_result(None)

    def subscribe(self, guest: str, topic: str, deliver: Callable[[str, Any], None]) -> Callable[[], None]:
        return lambda: None


@pytest.mark.req("piglet.rule.crash-pending")
async def test_its_calls_and_what_it_asked_for_end_with_it(tmp_path: Path) -> None:
    services = Hanging()
    text = [fault("stderr", text="out of luck\n"), ask("host/askUser", {"prompt": "Send?", "choices": ["yes"]})]
    folder = piglet_guests.write(tmp_path, "weather", tools={"asks": text, "waits": [wait()]})
    limits = {"restart_wait": 60.0, "restart_wait_most": 60.0}
    async with open_host(tmp_path, folder, services=services, limits=limits) as host:
        calls = [asyncio.create_task(host.call_tool(name)) for name in ("asks", "waits")]
        assert (await services.asked)[0] == "piglet:weather"
        os.kill(pid_of(host, "weather"), signal.SIGKILL)
        for name, result in zip(("asks", "waits"), await asyncio.gather(*calls), strict=True):
            assert result.code == "TOOL_UNAVAILABLE"
            assert result.text.startswith(f"ext weather tool {name}: extension weather closed")
            assert "SIGKILL" in result.text
            assert "out of luck" in result.text
        await asyncio.wait_for(services.cancelled, 30)


@pytest.mark.req("piglet.rule.register-late")
async def test_what_it_registers_after_its_start_counts_at_once(tmp_path: Path) -> None:
    folder = piglet_guests.write(tmp_path, "weather", tools={"look": "fog", "more": "rain"}, late=["more"])
    async with open_host(tmp_path, folder) as host:
        await wait_until(host, lambda: "more" in host.table.tools)
        assert (await host.call_tool("more")).text == "rain"
