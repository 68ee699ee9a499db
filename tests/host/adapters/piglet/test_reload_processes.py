"""A guest that is started anew while it works: who answers what is under way, and what is seen of the change (spec piglet 8.0)."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from serai.host.guest import GuestState
from serai.host.host import Host
from serai.limits import Limits
from tests.support.host.zot_guests import AwaitableSurface, open_host, pid_of, wait_for_state, wait_until, wait_until_reaped
from tests.support.piglet.journals import ONE_LOOP, wait_for_note
from tests.support.piglet.raw_guests import notices, rpc_of
from tests.support.piglet_guests.guest_folder import write
from tests.support.piglet_guests.steps import fault, note, say, tell, wait
from tests.support.processes import lives

pytestmark = ONE_LOOP

QUICK = {"stop_polite": 0.05, "stop_term": 0.05}


def weather(tmp_path: Path, text: str, **more: Any) -> Path:
    slow = [note(tmp_path / "begun"), wait(tmp_path / "go"), say(f"slow {text}"), *more.pop("last", [])]
    return write(tmp_path, "weather", tools={"look": text, "slow": slow, **more.pop("tools", {})}, **more)


async def look(host: Host, tool: str = "look") -> str:
    return (await host.call_tool(tool)).text


# -- what is under way


@pytest.mark.req("piglet.edge.27", "piglet.rule.reload-swap")
@pytest.mark.parametrize("last", [[], [fault("twice")]], ids=["once", "twice"])
async def test_a_call_under_way_ends_once_on_the_old_process_while_the_new_one_serves(tmp_path: Path, last: Any) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, weather(tmp_path, "one", last=last), surface=window) as host:
        old = pid_of(host, "weather")
        slow = [asyncio.create_task(look(host, "slow")) for _ in range(3)]
        await wait_for_note(tmp_path / "begun")
        while len(rpc_of(host, "weather").connection._calls.waiting) < 3:
            await asyncio.sleep(0)
        weather(tmp_path, "two")
        await host.reload("weather")
        assert await look(host) == "two"
        assert notices(window) == [("info", "Reloading weather..."), ("info", "weather reloaded")]
        assert lives(old)
        assert not any(task.done() for task in slow)
        (tmp_path / "go").touch()
        assert await asyncio.gather(*slow) == ["slow one"] * 3
        await asyncio.wait_for(wait_until_reaped(old), 30)
        assert await look(host, "slow") == "slow two"


@pytest.mark.req("piglet.edge.27")
@pytest.mark.parametrize("how", ["the drain runs out", "exclusive"])
async def test_or_it_fails_once_as_closed(tmp_path: Path, how: str) -> None:
    folder = weather(tmp_path, "one")
    if how == "exclusive":
        (folder / "guest.toml").write_text("exclusive = true\n")
    async with open_host(tmp_path, folder, limits=QUICK | {"drain": 0.1}) as host:
        old = pid_of(host, "weather")
        slow = asyncio.create_task(look(host, "slow"))
        await wait_for_note(tmp_path / "begun")
        weather(tmp_path, "two")
        await host.reload("weather")
        assert (await slow).startswith("ext weather tool slow: extension weather closed")
        await asyncio.wait_for(wait_until_reaped(old), 30)
        (tmp_path / "go").touch()
        assert (await look(host), await look(host, "slow")) == ("two", "slow two")
        assert (host.guest("weather").failures, host.guest("weather").state) == (0, GuestState.READY)


# -- the change itself


@pytest.mark.req("piglet.rule.reload-swap")
async def test_the_new_one_is_started_first_and_its_offer_comes_in_one_step(tmp_path: Path) -> None:
    """While it is half through its registrations the old one has its place, with all it offers and nothing else."""
    half, go = tmp_path / "half", tmp_path / "on"
    async with open_host(tmp_path, weather(tmp_path, "one", tools={"old": "old"}, sections={"Old": "old"})) as host:
        old = pid_of(host, "weather")
        seen: list[set[str]] = []
        before = host.context._on_change

        def watch() -> None:
            before()
            seen.append(
                {tool.name for tool in host.tools} | {one.title for one in host.guest("weather").contributions.prompt_sections}
            )

        host.context._on_change = watch
        extra = tell("register/tool", {"name": "half", "parameters": {"type": "object"}})
        weather(tmp_path, "two", tools={"new": "new"}, sections={"New": "new"}, at_init=[extra, note(half), wait(go)])
        reloading = asyncio.create_task(host.reload("weather"))
        new = int(await wait_for_note(half))
        assert (pid_of(host, "weather"), lives(new), await look(host)) == (old, True, "one")
        go.touch()
        await reloading
        assert (pid_of(host, "weather"), await look(host)) == (new, "two")
        await asyncio.wait_for(wait_until_reaped(old), 30)
        assert seen[-1] == {"look", "slow", "half", "new", "New"}
        assert all(names in ({"look", "slow", "old", "Old"}, seen[-1]) for names in seen)


@pytest.mark.req("piglet.rule.reload-swap")
async def test_with_exclusive_the_old_one_is_gone_before_the_new_one_begins(tmp_path: Path) -> None:
    folder, alone = weather(tmp_path, "one", tools={"pid": [note(tmp_path / "old")]}), tmp_path / "alone"
    (folder / "guest.toml").write_text("exclusive = true\n")
    async with open_host(tmp_path, folder) as host:
        old = pid_of(host, "weather")
        weather(tmp_path, "two", at_start=[note(tmp_path / "started"), wait(alone)])
        reloading = asyncio.create_task(host.reload("weather"))
        await wait_for_note(tmp_path / "started")
        assert not lives(old)
        assert (await host.call_tool("look")).code == "TOOL_UNAVAILABLE"
        alone.touch()
        await reloading
        assert await look(host) == "two"


@pytest.mark.req("piglet.rule.reload-failure")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"at_start": [fault("crash")]}, "initialize weather: extension weather closed (exit status 3)"),
        ({"initialize": [wait()]}, "initialize weather: context deadline exceeded (limit hello = 0.5)"),
        ({"runtime": "./nowhere"}, "start weather: "),
    ],
    ids=["crash", "mute", "spawn"],
)
async def test_a_new_process_that_fails_is_told_and_leaves_the_old_one_at_work(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    window, folder = AwaitableSurface(), weather(tmp_path, "one")
    async with open_host(tmp_path, folder, surface=window) as host:
        old, guest = pid_of(host, "weather"), host.guest("weather")
        guest.failures = 4
        slow = asyncio.create_task(look(host, "slow"))
        await wait_for_note(tmp_path / "begun")
        weather(tmp_path, "two", **change)
        (folder / "guest.toml").write_text("[limits]\nhello = 0.5\n")
        await host.reload("weather")
        assert (pid_of(host, "weather"), guest.state, guest.failures) == (old, GuestState.READY, 0)
        [told] = [text for level, text in notices(window) if level == "error"]
        assert told.startswith(f"weather reload failed: {why}")
        (tmp_path / "go").touch()
        assert (await slow, await look(host)) == ("slow one", "one")


@pytest.mark.req("piglet.rule.reload-failure")
async def test_what_is_wanted_while_a_reload_runs_is_one_more_with_what_counts_then(tmp_path: Path) -> None:
    half, go = tmp_path / "half", tmp_path / "on"
    async with open_host(tmp_path, weather(tmp_path, "one")) as host:
        weather(tmp_path, "two", at_init=[note(half), wait(go)])
        first = asyncio.create_task(host.reload("weather"))
        await wait_for_note(half)
        weather(tmp_path, "three", version="3.0")
        more = [asyncio.create_task(host.reload("weather")) for _ in range(5)]
        await asyncio.sleep(0)
        go.touch()
        await asyncio.gather(first, *more)
        assert (host.guest("weather").generation, await look(host)) == (3, "three")
        assert host.guest("weather").manifest.version == "3.0"


# -- files


@pytest.mark.req("piglet.rule.watcher")
@pytest.mark.parametrize("file", ["manifest.yaml", "guest"])
async def test_a_file_that_is_deleted_and_made_again_reloads_it_too(tmp_path: Path, file: str) -> None:
    folder = weather(tmp_path, "one")
    async with open_host(tmp_path, folder, watch=True, limits={"reload_wait": 0.05}) as host:
        content, mode = (folder / file).read_bytes(), (folder / file).stat().st_mode
        (folder / file).unlink()
        (tmp_path / "fresh").write_bytes(content + b"\n# anew\n")
        (tmp_path / "fresh").chmod(mode)
        os.link(tmp_path / "fresh", folder / file)
        guest = host.guest("weather")
        await asyncio.wait_for(wait_until(host, lambda: guest.generation > 1 and guest.state is GuestState.READY), 30)


@pytest.mark.req("piglet.rule.watcher")
async def test_it_waits_half_a_second_after_the_last_change(tmp_path: Path) -> None:
    folder, usual = weather(tmp_path, "one"), Limits().reload_wait
    assert usual == 0.5
    async with open_host(tmp_path, folder, watch=True) as host:
        assert host._hot_reload._watcher._debounce == usual
        with (folder / "guest").open("a") as file:
            file.write("\n# changed\n")
        last, guest = asyncio.get_running_loop().time(), host.guest("weather")
        await asyncio.wait_for(wait_until(host, lambda: guest.generation == 2), 30)
        assert asyncio.get_running_loop().time() - last >= usual - 0.1  # the clocks of two threads
        await wait_for_state(host, "weather", GuestState.READY)


# -- what is let go


@pytest.mark.req("piglet.fix.11", "piglet.edge.26")
@pytest.mark.parametrize("how", ["removed", "disabled"])
async def test_who_is_removed_or_disabled_takes_its_own_along_and_what_it_had_shadowed_comes_forward(
    tmp_path: Path, how: str
) -> None:
    place, config = tmp_path / "home" / "guests", {"disabled_extensions": list[str]()}
    shared: dict[str, Any] = {"commands": ["same"], "shortcuts": ["ctrl+g"]}
    write(place, "a-earlier", tools={"same": "earlier", "a": "a"}, sections={"A": "a"}, **shared)
    folder = write(place, "b-later", tools={"same": "later", "b": "b"}, sections={"B": "b"}, **shared)
    async with open_host(tmp_path, config=config) as host:
        assert await look(host, "same") == "later"
        old = pid_of(host, "b-later")
        if how == "removed":
            shutil.rmtree(folder)
        else:
            config["disabled_extensions"].append("b-later")
        await host.reload()
        await asyncio.wait_for(wait_until_reaped(old), 30)
        assert list(host.guests) == ["piglet:a-earlier"]
        assert (await look(host, "same"), await look(host, "a")) == ("earlier", "a")
        assert (await host.call_tool("b")).code == "UNKNOWN_TOOL"
        assert {host.table.commands["same"][0].id, host.table.shortcuts["ctrl+g"][0].id} == {"piglet:a-earlier"}
        assert host.table.shadowed == ()
