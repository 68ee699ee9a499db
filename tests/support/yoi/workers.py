"""Workers as the adapter opens them, and spawners that count or replace them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from serai.errors import SeraiError
from serai.host.adapters.yoi.worker import HostCall, Worker, open_worker
from serai.limits import Limits
from serai.plugins.bounds import DEFAULT, Bounds
from serai.plugins.manifest import INSTANCE
from serai.wire.channel import Tap
from serai.wire.event_loop import Deadlines
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Child, Launch, Spawner
from tests.conftest import PATIENT

LONG = 30.0  # seconds: for what ends by itself
BEGIN = """
import os, sys, json
buffer = b""
def read():
    global buffer
    while b"\\n" not in buffer:
        part = os.read(0, 65536)
        if not part: os._exit(0)
        buffer += part
    line, _, buffer = buffer.partition(b"\\n")
    return json.loads(line)
def say(*frames):
    for frame in frames:
        data = frame if isinstance(frame, bytes) else json.dumps(frame).encode() + b"\\n"
        while data: data = data[os.write(1, data):]
def wait():
    while True: read()
LOADED = {"type": "loaded", "imports": ["fs"], "confined": []}
def host(n, **more): return {"type": "host", "id": 1, "n": n, "api": "fs", "function": "read", "args": ["x"]} | more
"""
READY = BEGIN + 'read(); say(LOADED); read(); say({"type": "ready"})\n'


async def wait_forever() -> str:
    """Waits for what does not come."""
    forever: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return await forever


class RecordingTap:
    """A tap that keeps what it saw and calls somebody at each frame."""

    def __init__(self, at: Callable[[int], None] | None = None) -> None:
        self.sent: list[bytes] = []
        self.received: list[bytes] = []
        self.pid = 0
        self._at = at

    def __call__(self, pid: int) -> Tap:
        self.pid = pid
        return self

    def frames(self, direction: str, at: float, run: bytes) -> None:
        (self.sent if direction == "sent" else self.received).extend(run.splitlines())
        if self._at is not None:
            self._at(len(self.sent) + len(self.received))

    def skipped(self, at: float, frame: object) -> None:
        pass

    def ended(self, at: float, cause: SeraiError) -> None:
        pass

    def has(self, words: bytes) -> bool:
        return any(words in frame for frame in self.received)


class WorkerHarness:
    def __init__(self, spawner: PlainSpawner, deadlines: Deadlines, cache: str, log: Path) -> None:
        self.spawner: Spawner = spawner
        self.deadlines = deadlines
        self.cache = cache
        self.log = log
        self.asked: list[tuple[str, str, tuple[str | int, ...], float]] = []  # of the host
        self.ends: list[SeraiError] = []
        self.over: asyncio.Future[SeraiError] = asyncio.get_running_loop().create_future()
        self.wires = RecordingTap()
        self.workers: list[Worker] = []
        self.stderr = os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    async def host(self, interface: str, function: str, args: Sequence[str | int], remaining: float) -> str:
        self.asked.append((interface, function, tuple(args), remaining))
        return '{"done":true}'

    def ended(self, cause: SeraiError) -> None:
        self.ends.append(cause)
        if not self.over.done():
            self.over.set_result(cause)

    async def open(
        self,
        component: bytes,
        *,
        world: str = INSTANCE,
        bounds: Bounds = DEFAULT,
        denied: Mapping[str, str] | None = None,
        host: HostCall | None = None,
        limits: Limits = PATIENT,
        **more: Any,
    ) -> Worker:
        worker = await open_worker(
            spawner=self.spawner,
            deadlines=self.deadlines,
            limits=limits,
            tap=self.wires,
            stderr=self.stderr,
            who="yoi:test",
            component=component,
            digest="sha256:test",
            world=world,
            bounds=bounds,
            cache=self.cache,
            denied=denied or {},
            host=host or self.host,
            ended=self.ended,
            **more,
        )
        self.workers.append(worker)
        return worker

    async def tool(self, worker: Worker, name: str = "call", text: str = "{}", timeout: float = LONG) -> str:
        return await worker.call("handle-tool", (name, text), timeout)


class CountingSpawner:
    """A spawner that remembers whom it started."""

    def __init__(self, spawner: PlainSpawner) -> None:
        self._spawner = spawner
        self.launched: list[Launch] = []

    async def spawn(self, launch: Launch) -> Child:
        self.launched.append(launch)
        return await self._spawner.spawn(launch)


class ReplacingSpawner:
    """A spawner that starts another program where a worker is wanted."""

    def __init__(self, spawner: Spawner, code: str) -> None:
        self._spawner = spawner
        self._code = code

    async def spawn(self, launch: Launch) -> Child:
        if "compiling" not in launch.who:
            launch = replace(launch, argv=[sys.executable, "-I", "-S", "-c", self._code])
        return await self._spawner.spawn(launch)
