"""`serai demo`: what exists, shown with real child processes. Offline, in seconds, leaves nothing behind. Every line is true."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from serai.cli import timeline
from serai.cli.demo_boxes import boxes
from serai.cli.demo_guests import guests
from serai.errors import SeraiError
from serai.limits import Limits
from serai.record import Folder, Recorder, Recording
from serai.testing import faults
from serai.wire import Deadlines, Launch, PlainSpawner, Rpc, environ, fast, proctree, stop
from serai.wire.codec import Noise
from serai.wire.framing import Oversize
from serai.wire.jsonrpc import Stray

__all__ = ["demo", "run"]

# Short patience, so that the whole demonstration takes seconds.
LIMITS = Limits().but(frame=1 << 20, exit_grace=0.3, drain_grace=0.3, stop_polite=0.3, stop_term=0.3)
CALLS = 10_000


# Of which wires the timeline is shown at the end; the others would fill pages.
SHOWN = ("tells", "huge", "dies", "half", "zot:weather", "zot:guard", "hook:token", "box:demo")


class Scene(NamedTuple):
    """A peer with a habit, and the options it gets."""

    fault: str
    options: dict[str, Any]
    timeout: float = 5.0


SCENES = (
    Scene("banner", {}),
    Scene("chatty", {"bytes": 4_000_000}),
    Scene("huge", {"bytes": 3_000_000}),
    Scene("silent", {}, timeout=0.3),
    Scene("dies", {}),
    Scene("dies", {"signal": 11}),
    Scene("half", {}),
    Scene("mute", {}),
    Scene("deaf", {}, timeout=0.3),
    Scene("holder", {}),
    Scene("daemon", {}),
    Scene("stubborn", {}),
)


class Stage:
    """Where the scenes play: one spawner, one timer, one recorder, and a printer."""

    def __init__(self, spawner: PlainSpawner, recorder: Recorder, place: Path, *, color: bool | None) -> None:
        self.spawner = spawner
        self.recorder = recorder
        self.place = place
        self.deadlines = Deadlines()
        self.env = environ.for_guest(os.environ)
        self.color = color

    def say(self, text: str, **style: Any) -> None:
        click.echo(click.style(text, **style), color=self.color)

    async def open(self, fault: str, who: str = "", **options: Any) -> tuple[Rpc, list[object]]:
        child = await self.spawner.spawn(Launch(argv=faults.peer(fault, **options), env=self.env, who=who or fault))
        tap = self.recorder.wire(child.who, kind="guest", dialect="jsonrpc", pid=child.pid)
        odd: list[object] = []
        return Rpc(child, deadlines=self.deadlines, limits=LIMITS, odd=odd.append, tap=tap), odd


@click.command()
@click.option("--color/--no-color", default=None, help="Colours; by default when the output is a terminal and NO_COLOR is not set.")
def demo(*, color: bool | None) -> None:
    """Show what is built so far, with real child processes.

    A good peer, what a guest may know, peers that misbehave, zot extensions under a guard, and a box with a hook: what each does,
    what the errors say, and what is on record.
    """
    run(color=color)


def run(*, color: bool | None = None) -> None:
    """Play all of it."""
    if color is None and os.environ.get("NO_COLOR"):
        color = False
    with tempfile.TemporaryDirectory(prefix="serai-demo-") as place:
        folder = Folder(Path(place) / "recordings")
        with Recorder(folder, command="serai demo") as recorder:
            fast.run(_play(recorder, Path(place), color=color))
        with Recording.open("", folder) as recording:
            _what_is_on_record(recording, color=color)


async def _play(recorder: Recorder, place: Path, *, color: bool | None) -> None:
    async with PlainSpawner(LIMITS) as spawner:
        stage = Stage(spawner, recorder, place, color=color)
        for act in ACTS:
            await act(stage)
        tag = spawner.tag
    left = [process.pid for process in proctree.scan().values() if process.carries(tag)]
    stage.say(f"\nProcesses of this run that are left: {len(left)}", bold=True)


async def _a_good_peer(stage: Stage) -> None:
    stage.say("A child that behaves", bold=True)
    rpc, _ = await stage.open("none")
    await rpc.call("warm up", {})
    start = time.perf_counter()
    for _ in range(CALLS // 10):
        await rpc.call("echo", {})
    alone = time.perf_counter() - start
    start = time.perf_counter()

    async def work() -> None:
        for _ in range(CALLS // 64):
            await rpc.call("echo", {})

    await asyncio.gather(*(work() for _ in range(64)))
    together = time.perf_counter() - start
    stage.say(
        f"  {CALLS // 10:,} calls one after the other: {alone / (CALLS // 10) * 1e6:.0f} us each, with a deadline on every one"
    )
    rate = CALLS // 64 * 64 / together
    stage.say(f"  {CALLS // 64 * 64:,} calls, 64 at a time: {rate:,.0f} a second (a Python child, JSON on both sides)")
    await stop(rpc.channel.child, LIMITS)


async def _what_it_may_know(stage: Stage) -> None:
    stage.say("\nWhat a guest may know", bold=True)
    pretend = {"HOME": "/home/you", "LANG": "C.UTF-8", "GITHUB_TOKEN": "x", "DATABASE_URL": "postgres://you:pw@db/app"}
    stage.say(f"  of {', '.join(pretend)}")
    stage.say(f"  it gets {', '.join(environ.for_guest(pretend))}; withheld until granted: {', '.join(environ.withheld(pretend))}")
    secret = secrets.token_hex(12)
    stage.recorder.secrets.add(("GITHUB_TOKEN", secret))
    rpc, _ = await stage.open("none", who="tells", reply=f'{{"jsonrpc":"2.0","id":$id,"result":{{"my token":"{secret}"}}}}')
    answer = bytes(await rpc.call("what do you know?", timeout=5)).decode()
    stage.say(f"  one that was granted its token answers {answer}; see below what is on record of that")
    await stop(rpc.channel.child, LIMITS)


async def _bad_peers(stage: Stage) -> None:
    stage.say("\nChildren that misbehave", bold=True)
    neighbour, _ = await stage.open("none")
    for scene in SCENES:
        options = "".join(f" {key}={value}" for key, value in scene.options.items())
        stage.say(f"  {scene.fault}{options}: {faults.FAULTS[scene.fault][0]}", fg="cyan")
        rpc, odd = await stage.open(scene.fault, **scene.options)
        stage.say(f"    call: {await _call_twice(rpc, scene.timeout)}")
        for event in odd[:2]:
            stage.say(f"    event: {_describe(event)}", dim=True)
        stopped = await stop(rpc.channel.child, LIMITS)
        stage.say(f"    stopped by: {stopped.step} ({stopped.exit})", dim=True)
        await neighbour.call("still there?", {}, timeout=5)
    stage.say(f"  A well-behaved neighbour answered after each of the {len(SCENES)}.", fg="green")
    await stop(neighbour.channel.child, LIMITS)


def _what_is_on_record(recording: Recording, *, color: bool | None) -> None:
    click.echo(click.style("\nWhat is on record", bold=True) + f"  ({timeline.summary(recording)})", color=color)
    width = max(map(len, SHOWN))
    for item in recording.timeline():
        if (wire := recording.wires.get(item.wire)) and wire.who in SHOWN:
            click.echo("  " + timeline.line(item, recording.wires, width), color=color)
    click.secho("  This recording is removed now. Those of your own runs: serai record list", dim=True, color=color)


async def _call_twice(rpc: Rpc, timeout: float) -> str:
    """The second call shows what the first left behind."""
    answer = b""
    for method in ("first", "second"):
        try:
            answer = bytes(await rpc.call(method, {}, timeout=timeout))
        except SeraiError as error:
            return click.style(f"{type(error).__name__}: {error}", fg="red") + click.style(f"\n          {error.hint}", dim=True)
    return f"answered {answer.decode()}"


def _describe(event: object) -> str:
    match event:
        case Noise(raw=raw, why=why):
            return f"noise {raw.decode(errors='replace')[:60]!r} ({why[:40]})"
        case Oversize(size=size, limit=limit):
            return f"a frame of {size:,} bytes was skipped (limit {limit:,}); the wire goes on"
        case Stray(why=why):
            return f"stray frame: {why}"
        case _:
            return str(event)


ACTS: tuple[Callable[[Stage], Awaitable[None]], ...] = (_a_good_peer, _what_it_may_know, _bad_peers, guests, boxes)
