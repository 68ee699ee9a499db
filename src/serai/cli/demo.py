"""`serai demo`: what exists, shown with real child processes. Offline, in seconds, leaves nothing behind. Every line is true."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import click

from serai.errors import SeraiError
from serai.limits import Limits
from serai.testing import faults
from serai.wire import Deadlines, Launch, PlainSpawner, Rpc, environ, proctree, stop
from serai.wire.codec import Noise
from serai.wire.framing import Oversize
from serai.wire.jsonrpc import Stray

__all__ = ["run"]

# Short patience, so that the whole demonstration takes seconds.
LIMITS = Limits().but(frame=1 << 20, exit_grace=0.3, drain_grace=0.3, stop_polite=0.3, stop_term=0.3)
CALLS = 10_000


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
    """Where the scenes play: one spawner, one timer, and a printer."""

    def __init__(self, spawner: PlainSpawner, *, color: bool | None) -> None:
        self.spawner = spawner
        self.deadlines = Deadlines()
        self.env = environ.for_guest(os.environ)
        self.color = color

    def say(self, text: str, **style: Any) -> None:
        click.echo(click.style(text, **style), color=self.color)

    async def open(self, fault: str, **options: Any) -> tuple[Rpc, list[object]]:
        child = await self.spawner.spawn(Launch(argv=faults.peer(fault, **options), env=self.env, who=fault))
        odd: list[object] = []
        return Rpc(child, deadlines=self.deadlines, limits=LIMITS, odd=odd.append), odd


def run(*, color: bool | None = None) -> None:
    """Play all of it."""
    if color is None and os.environ.get("NO_COLOR"):
        color = False
    asyncio.run(_play(color=color))


async def _play(*, color: bool | None) -> None:
    async with PlainSpawner(LIMITS) as spawner:
        stage = Stage(spawner, color=color)
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


ACTS: tuple[Callable[[Stage], Awaitable[None]], ...] = (_a_good_peer, _what_it_may_know, _bad_peers)
