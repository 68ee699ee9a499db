"""How calls are timed, the same for every host in Python. Nothing but the standard library: peers run this in their environment."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import NamedTuple

__all__ = ["Shape", "cpu", "measure"]

# What surrounds the text in zot's frame of a call; frames of other protocols carry the same text in somewhat more bytes.
_AROUND = len('{"type":"tool_call","id":"1000","name":"echo","args":{"text":""}}\n')
# What a tool prints, with its escape: the text is of such lines, and their JSON has this size.
_LINE, _LINE_SIZE = "src/main.py:12: x is not used\n", 31

Call = Callable[[], Awaitable[object]]


class Shape(NamedTuple):
    """What one measurement does: calls of so many bytes, so many at a time."""

    size: int
    calls: int
    in_flight: int

    @classmethod
    def of(cls, arguments: list[str]) -> Shape:
        return cls(*map(int, arguments))

    @property
    def text(self) -> str:
        lines, rest = divmod(max(self.size - _AROUND, 0), _LINE_SIZE)
        return _LINE * lines + "x" * rest


def cpu() -> float:
    """Seconds of this process, its user and its system part."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def measure(call: Call, shape: Shape) -> dict[str, float]:
    """The JSON object of `host.c`: a tenth of the calls to warm up, then all of them. One by one has a time for each call."""
    share = shape.calls // shape.in_flight
    await _together(call, max(share // 10, 1), shape.in_flight)
    times: list[float] = []
    start, used = perf_counter(), cpu()
    if shape.in_flight == 1:
        times = await _one_by_one(call, share)
    else:
        await _together(call, share, shape.in_flight)
    wall, used = perf_counter() - start, cpu() - used
    calls = share * shape.in_flight
    rates = {"per_second": calls / wall, "cpu_us": used / calls * 1e6}
    if not times:
        return rates
    times.sort()
    return {"p50_us": times[calls // 2] * 1e6, "p99_us": times[calls * 99 // 100] * 1e6, **rates}


async def _one_by_one(call: Call, calls: int) -> list[float]:
    times: list[float] = []
    for _ in range(calls):
        start = perf_counter()
        await call()
        times.append(perf_counter() - start)
    return times


async def _together(call: Call, share: int, in_flight: int) -> None:
    async def work() -> None:
        for _ in range(share):
            await call()

    await asyncio.gather(*(work() for _ in range(in_flight)))
