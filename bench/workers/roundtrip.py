"""One measurement of Serai's channel in a fresh process: `python -m bench.workers.roundtrip PEER BYTES CALLS IN_FLIGHT HOW [TAP]`.

The channel as a guest adapter uses it: typed decode, a deadline on every call, a tap on every frame. HOW is one of `asyncio`,
`uvloop`, `mallopt` (asyncio with it) and `fast` (both, as the extra does it); TAP is `none` or `count`. Prints the same JSON
object as `host.c`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from itertools import count
from typing import Literal

from bench.workers.guest import Call, Guest, Result
from bench.workers.timing import Shape, measure
from serai.errors import SeraiError
from serai.wire import event_loop
from serai.wire.channel import Channel, Tap
from serai.wire.codec import encode
from serai.wire.event_loop import Deadlines
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch, stop_child
from serai.wire.stream import Oversize


class CountingTap:
    """What a recorder's tap costs on the wire's side: keep the run until there is enough for a batch."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, float, bytes]] = []
        self.size = 0
        self.runs = 0

    def frames(self, direction: Literal["sent", "received"], at: float, run: bytes) -> None:
        self.kept.append((direction, at, run))
        self.size += len(run)
        if self.size >= 1 << 18:
            self.runs += len(self.kept)
            self.kept.clear()
            self.size = 0

    def skipped(self, at: float, frame: Oversize) -> None:
        raise AssertionError(frame)

    def ended(self, at: float, cause: SeraiError) -> None:
        self.runs += len(self.kept)


TAPS: dict[str, Callable[[], Tap | None]] = {"none": lambda: None, "count": CountingTap}


async def main(peer: str, shape: Shape, tap: Tap | None) -> dict[str, float]:
    text, guest, numbers = shape.text, Guest(), count(1)
    new_future = asyncio.get_running_loop().create_future

    def call() -> asyncio.Future[Result]:
        id = str(next(numbers))
        return guest.call(id, encode(Call(id, "echo", {"text": text})), new_future())

    async with PlainSpawner() as spawner:
        child = await spawner.spawn(Launch(argv=[peer], env=dict(os.environ)))
        guest.channel = Channel(child, guest, deadlines=Deadlines(), tap=tap)
        assert (await call()).content[0].text == text
        measured = await measure(call, shape)
        await stop_child(child, guest.channel.limits)
    return measured


def run(how: str, peer: str, shape: Shape, tap: str = "count") -> dict[str, float]:
    work = main(peer, shape, TAPS[tap]())
    if how == "fast":
        return event_loop.run(work)
    if how == "mallopt":
        assert event_loop.raise_malloc_thresholds()
    with asyncio.Runner(loop_factory=event_loop.find_loop_factory() if how == "uvloop" else None) as runner:
        return runner.run(work)


if __name__ == "__main__":
    peer_, *shape_ = sys.argv[1:5]
    how_, *tap_ = sys.argv[5:]
    print(json.dumps(run(how_, peer_, Shape.of(shape_), *tap_)))
