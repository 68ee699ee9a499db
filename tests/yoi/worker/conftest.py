"""Workers for the tests, opened as the adapter opens them; what is compiled is kept for all tests of the run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from serai.errors import SeraiError
from serai.host.adapters.yoi.worker import HostCall, Worker, open_worker
from serai.limits import Limits
from serai.plugins.bounds import DEFAULT, Bounds
from serai.plugins.manifest import INSTANCE
from serai.wire.channel import Tap
from serai.wire.event_loop import Deadlines
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Spawner
from tests.conftest import PATIENT

LONG = 30.0  # seconds: for what ends by itself


async def never() -> str:
    """Waits for what does not come."""
    forever: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return await forever


class Wires:
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


class Harness:
    def __init__(self, spawner: PlainSpawner, deadlines: Deadlines, cache: str, log: Path) -> None:
        self.spawner: Spawner = spawner
        self.deadlines = deadlines
        self.cache = cache
        self.log = log
        self.asked: list[tuple[str, str, tuple[str | int, ...], float]] = []  # of the host
        self.ends: list[SeraiError] = []
        self.over: asyncio.Future[SeraiError] = asyncio.get_running_loop().create_future()
        self.wires = Wires()
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


@pytest.fixture(scope="session")
def compiled_plugins(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("plugins") / "cache")


@pytest.fixture
async def harness(spawner: PlainSpawner, deadlines: Deadlines, compiled_plugins: str, tmp_path: Path) -> AsyncIterator[Harness]:
    harness = Harness(spawner, deadlines, compiled_plugins, tmp_path / "log")
    yield harness
    for worker in harness.workers:
        await worker.stop()
    os.close(harness.stderr)
