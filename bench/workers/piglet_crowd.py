"""Many piglet guests, in a fresh process: `python -m bench.workers.piglet_crowd WHO PEER GUESTS BROADCASTS HOW`.

WHO is `channel`: bare children, each with a channel, a deadline and a typed answer; or `host`: extensions that one host takes in.
All are started and have answered once; then one event goes to all until each has answered it, again and again. HOW is `asyncio` or
`uvloop`. Prints the same JSON object as `crowd.c`, and some numbers more.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.workers.crowd import enough_descriptors, private_kb
from bench.workers.guests import Counting
from bench.workers.piglet import Peer, codec, environment, extension
from bench.workers.timing import cpu
from serai.dialects.piglet.messages import EventDispatchParams, EventDispatchResult
from serai.host.host import Host
from serai.model.events import StepStarted
from serai.wire import event_loop
from serai.wire.channel import Channel
from serai.wire.codec import encode
from serai.wire.event_loop import Deadlines
from serai.wire.jsonrpc import OutgoingEnvelope
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch

Broadcast = Callable[[], Awaitable[object]]


@asynccontextmanager
async def by_channel(peer: str, guests: int) -> AsyncIterator[Broadcast]:
    answers, deadlines, numbers = codec(EventDispatchResult), Deadlines(), count(1)
    loop = asyncio.get_running_loop()
    event = EventDispatchParams("EventTurnStart", {})
    there: list[Peer] = []

    async def broadcast() -> None:
        id: Any = next(numbers)
        frame = encode(OutgoingEnvelope("2.0", id, "event/dispatch", event))
        waiters = [guest.call(id, frame, loop.create_future()) for guest in there]
        for waiter in waiters:
            await waiter

    async with PlainSpawner() as spawner:
        launch = Launch(argv=[peer], env=dict(os.environ))
        for _ in range(guests):
            guest = Peer(answers)
            guest.channel = Channel(await spawner.spawn(launch), guest, deadlines=deadlines)
            there.append(guest)
        await broadcast()
        yield broadcast


@asynccontextmanager
async def by_host(place: Path, guests: int) -> AsyncIterator[Broadcast]:
    surface = Counting()
    folders = [place / f"listener{number}" for number in range(guests)]
    async with Host.discover(place, guests=folders, environ=environment(place), config={}, surface=surface) as host:
        assert host.report.failed == (), host.report.to_lines()[:3]

        async def broadcast() -> None:
            surface.seen, surface.wanted, surface.all = 0, guests, asyncio.get_running_loop().create_future()
            host.tell(StepStarted(step=1))
            await surface.all
            host.context.notes.clear()

        yield broadcast


async def measure(crowd: Callable[[int], AbstractAsyncContextManager[Broadcast]], guests: int, times: int) -> dict[str, float]:
    async with crowd(1) as broadcast:  # everything that is there once only
        await broadcast()
    before, open_before = private_kb(), descriptors()
    start, used = perf_counter(), cpu()
    async with crowd(guests) as broadcast:
        ready, ready_cpu = perf_counter() - start, cpu() - used
        for _ in range(max(times // 10, 1)):
            await broadcast()
        used = cpu()
        took = sorted([await timed(broadcast) for _ in range(times)])
        used = cpu() - used
        kb, held = (private_kb() - before) / guests, (descriptors() - open_before) / guests
        start = perf_counter()
    return {
        "ready_ms": ready * 1e3,
        "ready_cpu_ms": ready_cpu * 1e3,
        "kb": kb,
        "descriptors": held,
        "p50_ms": took[times // 2] * 1e3,
        "p95_ms": took[times * 95 // 100] * 1e3,
        "cpu_ms": used / times * 1e3,
        "stop_ms": (perf_counter() - start) * 1e3,
    }


async def timed(broadcast: Broadcast) -> float:
    start = perf_counter()
    await broadcast()
    return perf_counter() - start


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def run(who: str, peer: str, guests: int, times: int, how: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="serai-bench-") as folder:
        place = Path(folder)
        for number in range(guests):
            extension(place, peer, f"listener{number}", "listener")
        crowd = partial(by_host, place) if who == "host" else partial(by_channel, peer)
        work = measure(crowd, guests, times)
        with asyncio.Runner(loop_factory=event_loop.find_loop_factory() if how == "uvloop" else None) as runner:
            return runner.run(work)


if __name__ == "__main__":
    enough_descriptors()
    print(json.dumps(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])))
