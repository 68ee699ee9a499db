"""Makes boxes in a fresh process: `python -m bench.workers.boxes owned|kept|parallel|process TIMES`.

owned, kept, process: from the call of `create` to the result of a first command, then that of further commands, then destroy; each
one after the other. parallel: TIMES boxes at once, on all cores, from the first call to the last result. Prints a JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from serai.boxes import Boxes

EXECS = 20


async def one(boxes: Boxes, name: str, *, kept: bool) -> dict[str, float]:
    start = perf_counter()
    box = await boxes.create(name, kept=kept)
    made = perf_counter()
    assert (await box.exec(["/bin/true"])).exit_code == 0
    first = perf_counter()
    for _ in range(EXECS):
        await box.exec(["/bin/true"])
    execs = perf_counter()
    await box.destroy()
    ended = perf_counter()
    parts = {"create": made - start, "first": first - start, "exec": (execs - first) / EXECS, "destroy": ended - execs}
    return {f"{part}_ms": seconds * 1e3 for part, seconds in parts.items()}


async def in_turn(kind: str, times: int) -> dict[str, float]:
    with TemporaryDirectory() as folder:
        async with Boxes(folder, backend="process" if kind == "process" else "namespaces") as boxes:
            await one(boxes, "warm", kept=kind == "kept")
            taken = [await one(boxes, f"b{number}", kept=kind == "kept") for number in range(times)]
    return {key: median(sample[key] for sample in taken) for key in taken[0]}


async def parallel(times: int) -> dict[str, float]:
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with TemporaryDirectory() as folder:
        async with Boxes(folder) as boxes:
            start = perf_counter()

            async def make(number: int) -> None:
                box = await boxes.create(f"b{number}")
                assert (await box.exec(["/bin/true"])).exit_code == 0

            await asyncio.gather(*(make(number) for number in range(times)))
            took = perf_counter() - start
            start = perf_counter()
            # closing destroys them all
        return {"all_ms": took * 1e3, "each_ms": took / times * 1e3, "end_ms": (perf_counter() - start) * 1e3}


if __name__ == "__main__":
    kind_, times_ = sys.argv[1:]
    print(json.dumps(asyncio.run(parallel(int(times_)) if kind_ == "parallel" else in_turn(kind_, int(times_)))))
