"""Every extension of `examples/zot`, written by hand and unchanged, in our host."""

from __future__ import annotations

import json
import signal
from os import kill
from pathlib import Path

import pytest

from serai.host.guest import GuestState
from serai.model.actions import ClosePanel, Display, Insert, Notice, OpenPanel, SubmitPrompt
from serai.model.contributions import Refuse, Rewrite
from serai.model.events import StepEnded, ToolCalled
from serai.model.tools import ImageBlock, ToolCall
from tests.support.host.zot_guests import AwaitableSurface, open_host, pid_of, wait_for_state

EXAMPLES = Path(__file__).parents[2] / "examples" / "zot"
WEATHER, WORDS, DISK, GUARD, PANEL = (
    EXAMPLES / name for name in ("weather-python", "words-node", "disk-shell", "guard-python", "panel-python")
)
node = pytest.mark.needs("node")
jq = pytest.mark.needs("jq")
SLOW_RESTART = {"restart_wait": 60.0, "restart_wait_most": 60.0}


@pytest.mark.req("host.examples.unchanged")
def test_every_example_is_run_here() -> None:
    assert {path for path in EXAMPLES.iterdir() if path.is_dir()} == {WEATHER, WORDS, DISK, GUARD, PANEL}


async def test_the_weather_in_python(tmp_path: Path) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, WEATHER, surface=window) as host:
        assert host.report.ok
        assert window.actions == [Notice("the weather station is open", "info", "weather")]
        result = await host.call_tool("weather", {"city": "Bern"})
        assert (result.text, result.is_error) == ("Bern: 16 degrees, fog", False)
        assert (await host.call_tool("weather", {"town": "Bern"})).code == "INVALID_ARGS"
        shown = await host.typed("/weather Bern")
        assert shown is not None
        assert shown.action == Display(result.text, "weather")
        asked = await host.typed("/forecast Bern")
        assert asked is not None
        assert asked.action == SubmitPrompt(f"What should I wear today? The weather in {result.text}.")
        assert (await host.run_command("weather")).error == "extension /weather: which city? As in: /weather Bern"


@node
async def test_the_words_in_node(tmp_path: Path) -> None:
    async with open_host(tmp_path, WORDS) as host:
        assert host.report.ok
        assert (await host.call_tool("count_words", {"text": "to be or not"})).text == "4 words"
        (dot,) = (await host.call_tool("png_dot")).content
        assert isinstance(dot, ImageBlock)
        assert (dot.mime, dot.data[:8]) == ("image/png", b"\x89PNG\r\n\x1a\n")
        host.tell(ToolCalled(call=ToolCall("count_words")))
        host.tell(StepEnded(step=1))
        host.tell(StepEnded(step=2))
        assert json.loads((await host.call_tool("seen")).text) == {"turn_end": 2, "tool_call": 1}
        assert (await host.run_command("words", "to be")).action == Insert("to be (2 words)")


@jq
async def test_the_disk_in_shell(tmp_path: Path) -> None:
    async with open_host(tmp_path, DISK) as host:
        assert host.report.ok
        result = await host.call_tool("disk_free", {"path": "/"})
        assert not result.is_error
        assert result.text.endswith(" on /")
        assert (await host.call_tool("disk_free", {"path": "/no/such/place"})).is_error
        outcome = await host.run_command("disk", "/")
        assert isinstance(outcome.action, Display)
        assert " GiB free of " in outcome.action.text


async def test_the_guard_blocks_rewrites_and_masks(tmp_path: Path) -> None:
    async with open_host(tmp_path, WEATHER, GUARD) as host:
        blocked = await host.call_tool("weather", {"city": "rm -rf /"})
        assert (blocked.text, blocked.code) == ("weather: rm -rf is not run here; delete files by name", "BLOCKED")
        bern = await host.call_tool("weather", {"city": "Bern"})
        assert (await host.call_tool("weather", {"city": "Paris"})).text == bern.text
        masked = await host.intercept("assistant_message", "the password is hunter2")
        assert masked == Rewrite("the password is *******")
        assert await host.intercept("turn_start", 1) is None
        assert isinstance(await host.intercept("turn_start", 51), Refuse)


@pytest.mark.req("host.guard.killed")
async def test_killing_the_guard_closes_until_it_is_back(tmp_path: Path) -> None:
    async with open_host(tmp_path, WEATHER, GUARD, limits=SLOW_RESTART) as host:
        assert host.guest("guard").guard
        kill(pid_of(host, "guard"), signal.SIGKILL)
        await wait_for_state(host, "guard", GuestState.BACKING_OFF)
        refused = await host.call_tool("weather", {"city": "Bern"})
        assert (refused.is_error, refused.code) == (True, "BLOCKED")
        assert refused.text == ("tool_call refused: no answer from the guard (zot:guard is backing off: ended (killed by SIGKILL))")
        await host.reload("guard")
        assert (await host.call_tool("weather", {"city": "Bern"})).text.startswith("Bern: ")


async def test_a_killed_guard_is_started_again_by_itself(tmp_path: Path) -> None:
    async with open_host(tmp_path, WEATHER, GUARD) as host:
        kill(pid_of(host, "guard"), signal.SIGKILL)
        await wait_for_state(host, "guard", GuestState.BACKING_OFF)
        await wait_for_state(host, "guard", GuestState.READY)
        assert (await host.call_tool("weather", {"city": "Bern"})).text.startswith("Bern: ")
        assert list(host.context.notes)[-1] == "[serai] guard crashed, restarting..."


async def test_the_panel_moves_filters_and_picks(tmp_path: Path) -> None:
    window = AwaitableSurface()
    async with open_host(tmp_path, PANEL, surface=window) as host:
        assert (await host.call_tool("picked")).text == "nothing was picked yet"
        await host.typed("/pick")
        panel = host.context.panels.open
        assert panel is not None
        assert (panel.title, panel.lines[:2], panel.owner) == ("Harbours", ("> Antwerp", "  Bergen"), "zot:harbours")
        host.context.panels.press("down")
        await window.shown(lambda action: isinstance(action, OpenPanel) and action.panel.lines[1] == "> Bergen")
        host.context.panels.type("ń")
        await window.shown(lambda action: isinstance(action, OpenPanel) and action.panel.lines == ("> Gdańsk",))
        host.context.panels.press("enter")
        await window.shown(lambda action: action == Notice("picked Gdańsk", "success", "harbours"))
        assert any(isinstance(action, ClosePanel) for action in window.actions)
        assert host.context.panels.open is None
        assert (await host.call_tool("picked")).text == "Gdańsk"
        await host.typed("/pick")
        host.context.panels.press("esc")
        assert host.context.panels.open is None
        assert (await host.call_tool("picked")).text == "Gdańsk"


@pytest.mark.req("host.examples.unchanged")
@node
@jq
async def test_all_of_them_together(tmp_path: Path) -> None:
    async with open_host(tmp_path, WEATHER, WORDS, DISK, GUARD, PANEL) as host:
        assert host.report.ok
        assert [tool.name for tool in host.tools] == ["weather", "count_words", "png_dot", "seen", "disk_free", "picked"]
        assert sorted(host.table.commands) == ["disk", "forecast", "pick", "weather", "words"]
        refused = await host.call_tool("count_words", {"text": "rm -rf /"})
        assert refused.text == "count_words: rm -rf is not run here; delete files by name"
