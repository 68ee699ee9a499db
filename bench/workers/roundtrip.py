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
from time import monotonic
from typing import Literal

import msgspec

from bench.workers.timing import Shape, measure
from serai.errors import SeraiError
from serai.wire import fast
from serai.wire.calls import Calls
from serai.wire.channel import Channel, Tap
from serai.wire.codec import Codec, encode
from serai.wire.deadlines import Deadlines
from serai.wire.framing import Oversize
from serai.wire.process import Launch, PlainSpawner
from serai.wire.stopping import stop

TIMEOUT = 60.0


class Block(msgspec.Struct, gc=False):
    type: str
    text: str


class Result(msgspec.Struct, tag_field="type", tag="tool_result", gc=False):
    id: str
    content: list[Block]


class Note(msgspec.Struct, tag_field="type", tag="notify", gc=False):
    text: str


class Call(msgspec.Struct, tag_field="type", tag="tool_call", gc=False):
    id: str
    name: str
    args: dict[str, str]


CODEC: Codec[Result | Note] = Codec(Result | Note)


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


class Caller:
    """Calls by id over a channel."""

    def __init__(self) -> None:
        self.calls: Calls[str] = Calls()
        self.reader = CODEC.reader()
        self.last = 0
        self.channel: Channel
        self.loop = asyncio.get_running_loop()

    def call(self, text: str) -> asyncio.Future[Result]:
        self.last += 1
        id = str(self.last)
        waiter: asyncio.Future[Result] = self.loop.create_future()
        frame = encode(Call(id, "echo", {"text": text}))
        call = self.calls.start(id, "echo", now=monotonic(), timeout=TIMEOUT, waiter=waiter)
        self.channel.send(frame)
        self.channel.wake_by(call.deadline)
        return waiter

    def received(self, run: bytes) -> None:
        for message in self.reader.read(run):
            if type(message) is Result:
                call = self.calls.finish(message.id)
                if call is not None and not call.waiter.done():
                    call.waiter.set_result(message)

    def oversize(self, frame: Oversize) -> None:
        raise AssertionError(frame)

    def tick(self, now: float) -> float | None:
        assert not self.calls.expire(now)
        return self.calls.next_deadline()

    def lost(self, cause: SeraiError) -> None:
        for call in self.calls.abandon():
            call.waiter.set_exception(cause.for_call(call.id))


async def main(peer: str, shape: Shape, tap: Tap | None) -> dict[str, float]:
    deadlines, text = Deadlines(), shape.text
    async with PlainSpawner() as spawner:
        child = await spawner.spawn(Launch(argv=[peer], env=dict(os.environ)))
        caller = Caller()
        caller.channel = Channel(child, caller, deadlines=deadlines, tap=tap)
        assert (await caller.call(text)).content[0].text == text
        numbers = await measure(lambda: caller.call(text), shape)
        await stop(child, caller.channel.limits)
    return numbers


def run(how: str, peer: str, shape: Shape, tap: str = "count") -> dict[str, float]:
    work = main(peer, shape, TAPS[tap]())
    if how == "fast":
        return fast.run(work)
    if how == "mallopt":
        assert fast.raise_malloc_thresholds()
    with asyncio.Runner(loop_factory=fast.loop_factory() if how == "uvloop" else None) as runner:
        return runner.run(work)


if __name__ == "__main__":
    peer_, *shape_ = sys.argv[1:5]
    how_, *tap_ = sys.argv[5:]
    print(json.dumps(run(how_, peer_, Shape.of(shape_), *tap_)))
