"""One host and many idle children, in a fresh process: `python -m bench.workers.crowd HOST PEER CHILDREN BROADCASTS`.

Starts them all, then sends one 100-byte event to all and waits until all have answered, again and again. HOST is `serai`,
`serai-uvloop` or `asyncio` (its subprocess streams). Prints the same JSON object as `crowd.c`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
from collections.abc import Callable
from time import perf_counter

from bench.workers.guest import Call, Guest, Result
from bench.workers.timing import cpu
from serai.wire.channel import Channel
from serai.wire.codec import encode
from serai.wire.event_loop import Deadlines
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch

BYTES = 100


class Serai:
    """As an adapter has it: a channel for each child, a deadline for each call, one timer for all, the watchdog on."""

    def __init__(self, peer: str) -> None:
        self.spawner = PlainSpawner()
        self.deadlines = Deadlines()
        self.launch = Launch(argv=[peer], env=dict(os.environ))
        self.guests: list[Guest] = []
        self.loop = asyncio.get_running_loop()

    async def start(self) -> None:
        child = await self.spawner.spawn(self.launch)
        guest = Guest()
        guest.channel = Channel(child, guest, deadlines=self.deadlines)
        self.guests.append(guest)

    async def broadcast(self, id: str, frame: bytes) -> None:
        waiters: list[asyncio.Future[Result]] = []
        for guest in self.guests:
            waiters.append(self.loop.create_future())
            guest.call(id, frame, waiters[-1])
        for waiter in waiters:
            await waiter

    async def close(self) -> None:
        await self.spawner.close()


class Streams:
    """As everybody has it: `create_subprocess_exec` and `readline`."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.processes: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self.processes.append(await asyncio.create_subprocess_exec(self.peer, stdin=pipe, stdout=pipe, stderr=pipe))

    async def broadcast(self, id: str, frame: bytes) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(frame)
        for process in self.processes:
            assert process.stdout is not None
            result = json.loads(await process.stdout.readline())
            assert result["id"] == id

    async def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            await process.wait()


def private_kb() -> int:
    """What this process alone has in memory."""
    gc.collect()
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(("Private_Clean", "Private_Dirty")))


async def measure(host: Serai | Streams, children: int, times: int) -> dict[str, float]:
    event = Call("0", "echo", {"text": ""})
    event.args["text"] = "x" * (BYTES - len(encode(event)))

    async def broadcast(number: int) -> float:
        start = perf_counter()
        event.id = str(number)
        await host.broadcast(event.id, encode(event))
        return perf_counter() - start

    await host.start()  # everything that is there once only
    await broadcast(0)
    before = private_kb()
    start, used = perf_counter(), cpu()
    for _ in range(children):
        await host.start()
    spawn, spawn_cpu = perf_counter() - start, cpu() - used
    for number in range(times // 10):
        await broadcast(number)
    used = cpu()
    took = sorted([await broadcast(number) for number in range(times)])
    used = cpu() - used
    kb = (private_kb() - before) / children
    await host.close()
    return {
        "spawn_ms": spawn * 1e3,
        "spawn_cpu_ms": spawn_cpu * 1e3,
        "kb": kb,
        "p50_ms": took[times // 2] * 1e3,
        "p95_ms": took[times * 95 // 100] * 1e3,
        "cpu_ms": used / times * 1e3,
    }


async def main(kind: str, peer: str, children: int, times: int) -> dict[str, float]:
    host = Streams(peer) if kind == "asyncio" else Serai(peer)
    return await measure(host, children, times)


def enough_descriptors() -> None:
    """A child takes four of ours, and four more while it starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    kind_, peer_, children_, times_ = sys.argv[1:]
    enough_descriptors()
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if kind_ == "serai-uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        print(json.dumps(runner.run(main(kind_, peer_, int(children_), int(times_)))))
