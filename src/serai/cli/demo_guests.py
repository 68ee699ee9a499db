"""The part of `serai demo` that shows guests: the examples of the repository, taken in, asked, guarded, and one of them killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import serai
from serai.host.guest import Guest, State
from serai.host.host import Host
from serai.model.actions import Action, ClosePanel, Notice, OpenPanel
from serai.model.surface import HeadlessSurface
from serai.model.tools import ToolResult

if TYPE_CHECKING:
    from serai.cli.demo import Stage

__all__ = ["examples", "guests"]

GUESTS = ("weather-python", "guard-python", "panel-python")
LIMITS = {"restart_wait": 0.3, "stop_polite": 1.0}


def examples(kind: str = "zot") -> Path:
    """Where the examples are: beside the source in a checkout, inside the package once it is installed."""
    package = Path(serai.__file__).parent
    inside = package / "examples" / kind
    return inside if inside.is_dir() else package.parents[1] / "examples" / kind


class Watching(HeadlessSurface):
    """Sees what guests show, and wakes whoever waits for something of it."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._waiting: list[tuple[type, asyncio.Future[None]]] = []

    def act(self, action: Action) -> None:
        match action:
            case Notice():
                for line in action.lines():
                    self._say(f"    {line}", dim=True)
            case OpenPanel(panel=panel):
                shown = "  |  ".join((panel.title, *panel.lines[:3]))
                self._say(f"    panel: {shown}  …", dim=True)
            case ClosePanel():
                self._say("    the guest closed its panel", dim=True)
        for kind, future in self._waiting:
            if isinstance(action, kind) and not future.done():
                future.set_result(None)

    def next(self, kind: type) -> asyncio.Future[None]:
        """Done when something of this kind is shown."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((kind, future))
        return future


async def guests(stage: Stage) -> None:
    stage.say("\nGuests: zot extensions as they are on disk, unchanged", bold=True)
    surface = Watching(stage.say)
    environ = {**os.environ, "SERAI_HOME": str(stage.place)}
    paths = [examples() / name for name in GUESTS]
    async with Host.discover(
        stage.place, guests=paths, installed=False, environ=environ, config={}, limits=LIMITS,
        surface=surface, recorder=stage.recorder, spawner=stage.spawner,
    ) as host:  # fmt: skip
        for line in host.report.lines():
            stage.say(f"  {line}", fg="red")
        for row in host.report.guests:
            offers = ", ".join(
                (*row.tools, *(f"/{name}" for name in row.commands), *(f"guards {stage}s" for stage in row.intercepts))
            )
            stage.say(f"  {row.id} is {row.state} after {row.seconds * 1000:.0f} ms: {offers}")
        await _calls(stage, host)
        await _panel(stage, host, surface)
        await _killed_guard(stage, host)


async def _calls(stage: Stage, host: Host) -> None:
    for said, arguments in (
        ("weather of Bern", {"city": "Bern"}),
        ("weather of Paris, which the guard rewrites", {"city": "Paris"}),
        ("weather of `rm -rf /`, which the guard blocks", {"city": "rm -rf /"}),
        ("weather of nothing, which the tool's schema does not allow", {}),
    ):
        _show(stage, said, await host.call_tool("weather", arguments))


async def _panel(stage: Stage, host: Host, surface: Watching) -> None:
    stage.say("  /pick opens a panel; down, then enter:", fg="cyan")
    await host.run_command("pick")
    for key, shown in (("down", OpenPanel), ("enter", Notice)):
        seen = surface.next(shown)
        host.house.panels.press(key)
        await asyncio.wait([seen], timeout=5)


async def _killed_guard(stage: Stage, host: Host) -> None:
    guard = host.guest("guard")
    assert guard.running is not None
    os.kill(guard.running.pid, signal.SIGKILL)
    await _until(guard, lambda: guard.state is not State.READY)
    _show(stage, "the guard is killed; weather of Bern", await host.call_tool("weather", {"city": "Bern"}))
    await _until(guard, lambda: guard.state is State.READY)
    _show(stage, "the guard is back; weather of Bern", await host.call_tool("weather", {"city": "Bern"}))


async def _until(guard: Guest, met: Callable[[], bool]) -> None:
    for _ in range(500):
        if met():
            return
        await asyncio.sleep(0.01)
    raise RuntimeError(guard.why_down())


def _show(stage: Stage, said: str, result: ToolResult) -> None:
    colour: dict[str, Any] = {"fg": "red"} if result.is_error else {"fg": "green"}
    code = f"{result.code}: " if result.code else ""
    stage.say(f"  {said}:", fg="cyan")
    stage.say(click.style(f"    {code}{result.text}", **colour))
