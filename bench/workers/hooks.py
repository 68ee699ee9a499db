"""Runs a hook many times through the runner of boxes: `python -m bench.workers.hooks HOOK TIMES MEGABYTES`.

Each time from its spawn to its response: request, answer in a file, read and checked. What closing the child takes, with the proof
that nothing of its tree is left, is counted apart, as in the table of starting processes. MEGABYTES is memory of this process that
was touched before. Prints the JSON object of `spawn.c`, and the rate with 8 at once.
"""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import count
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.workers.spawn import Took, measure, touched
from serai.boxes.hook_process import AnswerFile
from serai.boxes.hooks import Hook, HookRunner
from serai.dialects.hookproto.messages import EVENT_BOX_CREATE, Box, Request
from serai.limits import Limits
from serai.wire.plain_process import PlainChild, PlainSpawner


class Closing:
    """How long the closing of the last child took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        close = PlainChild.close

        async def timed(child: PlainChild) -> None:
            start = perf_counter()
            await close(child)
            self.seconds = perf_counter() - start

        PlainChild.close = timed  # type: ignore[assignment, method-assign]


async def main(path: str, times: int) -> dict[str, float]:
    hook, request = Hook(path), Request(EVENT_BOX_CREATE, Box(box_id="bench", description="from the bench"))
    closing = Closing()
    numbers = count()
    async with PlainSpawner() as spawner:
        runner = HookRunner([hook], spawner=spawner, limits=Limits())

        async def once() -> Took:
            answer = AnswerFile.create(f"{folder}/{next(numbers)}")
            start = perf_counter()
            tried = await runner.run_once(hook, request, answer)
            took = perf_counter() - start
            answer.remove()
            answer.close()
            assert tried.failure is None
            return took - closing.seconds, closing.seconds

        with TemporaryDirectory(dir="/dev/shm") as folder:  # where boxes have them
            return await measure(once, times)


if __name__ == "__main__":
    path_, times_, megabytes_ = sys.argv[1:]
    memory = touched(int(megabytes_))
    print(json.dumps(asyncio.run(main(path_, int(times_)))))
    del memory
