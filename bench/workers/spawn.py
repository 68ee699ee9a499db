"""Runs a one-shot child many times, in a fresh process: `python -m bench.workers.spawn HOST CHILD TIMES MEGABYTES`.

Each time: start it, write its input and close that, read its output to the end, have its exit status. HOST is who does it.
MEGABYTES is memory of this process that was touched before. Prints the same JSON object as `spawn.c`, and what only some hosts
have: the p50 of the closing that follows, and children a second with 8 at once.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter

from bench.workers.timing import cpu
from serai.errors import SeraiError
from serai.wire.channel import Channel
from serai.wire.event_loop import Deadlines
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch
from serai.wire.stream import Oversize

INPUT = b'{"hook":"create","box":"0123456789abcdef","state":{"image":"debian","owner":"somebody"}}\n'
AT_ONCE = 8

Took = tuple[float, float]  # seconds until the exit status is in hand, and of the closing
Once = Callable[[], Awaitable[Took]]


def with_subprocess(path: str) -> Took:
    start = perf_counter()
    ran = subprocess.run([path], input=INPUT, capture_output=True, check=True)
    took = perf_counter() - start
    assert ran.stdout
    return took, 0.0


async def with_asyncio(path: str) -> Took:
    start = perf_counter()
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(path, stdin=pipe, stdout=pipe, stderr=pipe)
    output, _ = await process.communicate(INPUT)
    took = perf_counter() - start
    assert output
    assert process.returncode == 0
    return took, 0.0


async def with_serai(spawner: PlainSpawner, launch: Launch) -> Took:
    start = perf_counter()
    child = await spawner.spawn(launch)
    output = child.drain_noise(child.stdout)
    assert os.write(child.stdin, INPUT) == len(INPUT)
    child.close_descriptor(child.stdin)
    status = await child.exited
    ended = perf_counter()
    assert output.last()
    assert status.code == 0
    await child.close()
    return ended - start, perf_counter() - ended


class Answer:
    """A receiver for one answer: what came, and why no more will."""

    def __init__(self) -> None:
        self.text = b""
        self.over: asyncio.Future[SeraiError] = asyncio.get_running_loop().create_future()

    def handle_run(self, run: bytes) -> None:
        self.text += run

    def handle_oversize(self, frame: Oversize) -> None:
        raise AssertionError(frame)

    def tick(self, now: float) -> float | None:
        return None

    def handle_loss(self, cause: SeraiError) -> None:
        self.over.set_result(cause)


async def with_channel(spawner: PlainSpawner, launch: Launch, deadlines: Deadlines) -> Took:
    start = perf_counter()
    child = await spawner.spawn(launch)
    answer = Answer()
    channel = Channel(child, answer, deadlines=deadlines)
    channel.send(INPUT)
    channel.end_input()
    cause = await answer.over
    ended = perf_counter()
    assert answer.text
    assert cause.exit is not None
    assert cause.exit.code == 0
    await child.close()
    return ended - start, perf_counter() - ended


def sample(took: list[Took], used: float) -> dict[str, float]:
    times, closing = (sorted(column) for column in zip(*took, strict=True))
    found = {
        "p50_us": times[len(times) // 2] * 1e6,
        "p99_us": times[len(times) * 99 // 100] * 1e6,
        "cpu_us": used / len(times) * 1e6,
    }
    if closing[0]:
        found["close_us"] = closing[len(closing) // 2] * 1e6
    return found


async def measure(once: Once, times: int) -> dict[str, float]:
    """One after the other, then the rate with some at once."""
    for _ in range(times // 10):
        await once()
    used = cpu()
    took = [await once() for _ in range(times)]
    found = sample(took, cpu() - used)

    async def work() -> None:
        for _ in range(times // AT_ONCE):
            await once()

    start = perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return found | {"rate": times // AT_ONCE * AT_ONCE / (perf_counter() - start)}


def blocking(path: str, times: int) -> dict[str, float]:
    for _ in range(times // 10):
        with_subprocess(path)
    used = cpu()
    took = [with_subprocess(path) for _ in range(times)]
    return sample(took, cpu() - used)


async def serai(path: str, times: int, *, framed: bool) -> dict[str, float]:
    deadlines = Deadlines()
    launch = Launch(argv=[path], env=dict(os.environ))
    async with PlainSpawner() as spawner:
        if framed:
            return await measure(lambda: with_channel(spawner, launch, deadlines), times)
        return await measure(lambda: with_serai(spawner, launch), times)


def touched(megabytes: int) -> mmap.mmap | None:
    """That much memory, each page of it written once: the pages of a grown heap, not a few huge ones."""
    if not megabytes:
        return None
    memory = mmap.mmap(-1, megabytes << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    memory[:: mmap.PAGESIZE] = b"x" * (len(memory) // mmap.PAGESIZE)
    return memory


def main(host: str, path: str, times: int, megabytes: int) -> dict[str, float]:
    memory = touched(megabytes)
    if host == "subprocess":
        found = blocking(path, times)
    elif host == "asyncio":
        found = asyncio.run(measure(lambda: with_asyncio(path), times))
    elif host == "serai-uvloop":
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(serai(path, times, framed=False))
    else:
        found = asyncio.run(serai(path, times, framed=host == "serai-channel"))
    del memory
    return found


if __name__ == "__main__":
    host_, path_, times_, megabytes_ = sys.argv[1:]
    print(json.dumps(main(host_, path_, int(times_), int(megabytes_))))
