"""Many guests in one host, in a fresh process: `python -m bench.workers.guests PEER GUESTS BROADCASTS HOW`.

Takes in so many zot extensions, then tells all of them one event and waits until each has said that it heard it, again and again.
Prints the same JSON object as `crowd`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from bench.workers.crowd import enough_descriptors, private_kb
from bench.workers.host import extension
from bench.workers.timing import cpu
from serai.host.host import Host
from serai.model.actions import Action
from serai.model.events import StepStarted
from serai.model.surface import HeadlessSurface
from serai.wire import event_loop


class Counting(HeadlessSurface):
    """Sees how many notices came."""

    def __init__(self) -> None:
        self.seen = 0
        self.wanted = 0
        self.all = asyncio.get_running_loop().create_future()

    def act(self, action: Action) -> None:
        self.seen += 1
        if self.seen == self.wanted:
            self.all.set_result(None)


async def main(peer: str, guests: int, times: int, place: Path) -> dict[str, float]:
    environ = dict(os.environ) | {"SERAI_HOME": str(place / "home")}
    surface = Counting()
    async with Host.discover(place, guests=[extension(place, peer, "first")], environ=environ, config={}):
        pass  # everything that is there once only
    folders = [extension(place, peer, f"guest{number}") for number in range(guests)]
    before = private_kb()
    start, used = perf_counter(), cpu()
    async with Host.discover(place, guests=folders, environ=environ, config={}, surface=surface) as host:
        spawn, spawn_cpu = perf_counter() - start, cpu() - used
        assert host.report.failed == (), host.report.to_lines()[:3]
        host.context.notes.clear()

        async def broadcast() -> float:
            begin = perf_counter()
            surface.seen, surface.wanted, surface.all = 0, guests, asyncio.get_running_loop().create_future()
            host.tell(StepStarted(step=1))
            await surface.all
            return perf_counter() - begin

        for _ in range(max(times // 10, 1)):
            await broadcast()
        used = cpu()
        took = sorted([await broadcast() for _ in range(times)])
        used = cpu() - used
        host.context.notes.clear()
        kb = (private_kb() - before) / guests
        start = perf_counter()
    return {
        "spawn_ms": spawn * 1e3,
        "spawn_cpu_ms": spawn_cpu * 1e3,
        "kb": kb,
        "p50_ms": took[times // 2] * 1e3,
        "p95_ms": took[times * 95 // 100] * 1e3,
        "cpu_ms": used / times * 1e3,
        "stop_ms": (perf_counter() - start) * 1e3,
    }


def run(peer: str, guests: int, times: int, how: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="serai-bench-") as place:
        work = main(peer, guests, times, Path(place))
        with asyncio.Runner(loop_factory=event_loop.find_loop_factory() if how == "uvloop" else None) as runner:
            return runner.run(work)


if __name__ == "__main__":
    enough_descriptors()
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
