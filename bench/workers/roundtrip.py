"""One measurement of Serai's channel in a fresh process: `python -m bench.worker PEER BYTES CALLS IN_FLIGHT asyncio|uvloop`.

The channel as a guest adapter uses it: typed decode, a deadline on every call, a tap on every frame. Prints the same JSON
object as `host.c`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from time import monotonic, perf_counter
from typing import Literal

import msgspec

from serai.errors import SeraiError
from serai.wire.calls import Calls
from serai.wire.channel import Channel
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
    """What a recorder's tap costs on the wire's side: keep the run."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, float, bytes]] = []
        self.runs = 0

    def frames(self, direction: Literal["sent", "received"], at: float, run: bytes) -> None:
        self.kept.append((direction, at, run))
        if len(self.kept) >= 256:
            self.runs += len(self.kept)
            self.kept.clear()

    def skipped(self, at: float, frame: Oversize) -> None:
        raise AssertionError(frame)

    def ended(self, at: float, cause: SeraiError) -> None:
        self.runs += len(self.kept)


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


async def sequential(caller: Caller, text: str, calls: int) -> list[float]:
    times: list[float] = []
    for _ in range(calls):
        start = perf_counter()
        await caller.call(text)
        times.append(perf_counter() - start)
    return times


async def pipelined(caller: Caller, text: str, calls: int, in_flight: int) -> None:
    async def work(share: int) -> None:
        for _ in range(share):
            await caller.call(text)

    await asyncio.gather(*(work(calls // in_flight) for _ in range(in_flight)))


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def main(peer: str, size: int, calls: int, in_flight: int) -> dict[str, float]:
    deadlines = Deadlines()
    async with PlainSpawner() as spawner:
        child = await spawner.spawn(Launch(argv=[peer], env=dict(os.environ)))
        caller = Caller()
        caller.channel = Channel(child, caller, deadlines=deadlines, tap=CountingTap())
        text = "x" * max(size - len(encode(Call("1000", "echo", {"text": ""}))), 0)
        times: list[float] = []
        if in_flight == 1:
            await sequential(caller, text, calls // 10)
            start, used = perf_counter(), cpu()
            times = sorted(await sequential(caller, text, calls))
        else:
            calls -= calls % in_flight
            await pipelined(caller, text, calls // 10, in_flight)
            start, used = perf_counter(), cpu()
            await pipelined(caller, text, calls, in_flight)
        wall, used = perf_counter() - start, cpu() - used
        await stop(child, caller.channel.limits)
    return {
        "p50_us": times[len(times) // 2] * 1e6 if times else 0.0,
        "p99_us": times[len(times) * 99 // 100] * 1e6 if times else 0.0,
        "per_second": calls / wall,
        "cpu_us": used / calls * 1e6,
    }


if __name__ == "__main__":
    peer_, size_, calls_, in_flight_, kind = sys.argv[1:]
    factory = None
    if kind == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        print(json.dumps(runner.run(main(peer_, int(size_), int(calls_), int(in_flight_)))))
