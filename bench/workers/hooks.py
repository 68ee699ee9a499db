"""Runs a hook many times through the runner of boxes: `python -m bench.workers.hooks HOOK TIMES MEGABYTES`.

Each time as a create does it: a file for the answer, spawn, request, the answer read and checked, the hook's tree seen to be gone.
MEGABYTES is memory of this process that was touched before. Prints the JSON object of `spawn.c`, and the rate with 8 at once.
"""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import count
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.workers.spawn import Took, measure, touched
from serai.boxes.hooks import Hook, Runner
from serai.dialects.hookproto import Box
from serai.limits import Limits
from serai.wire.process import PlainSpawner


async def main(path: str, times: int) -> dict[str, float]:
    box = Box(box_id="bench", description="from the bench")
    async with PlainSpawner() as spawner:
        runner = Runner([Hook(path)], spawner=spawner, limits=Limits())

        numbers = count()

        async def kept(key: str, state: str) -> None:
            pass

        async def once() -> Took:
            start = perf_counter()
            outcome = await runner.create(box, f"{folder}/answer-{next(numbers)}", kept)
            took = perf_counter() - start
            assert outcome.error is None
            return took, 0.0

        with TemporaryDirectory() as folder:
            return await measure(once, times)


if __name__ == "__main__":
    path_, times_, megabytes_ = sys.argv[1:]
    memory = touched(int(megabytes_))
    print(json.dumps(asyncio.run(main(path_, int(times_)))))
    del memory
