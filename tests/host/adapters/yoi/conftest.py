"""Workers for the tests, opened as the adapter opens them; what is compiled is kept for all tests of the run."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serai.wire.event_loop import Deadlines
from serai.wire.plain_process import PlainSpawner
from tests.support.yoi.workers import WorkerHarness


@pytest.fixture(scope="session")
def compiled_plugins(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("plugins") / "cache")


@pytest.fixture
async def harness(
    spawner: PlainSpawner, deadlines: Deadlines, compiled_plugins: str, tmp_path: Path
) -> AsyncIterator[WorkerHarness]:
    harness = WorkerHarness(spawner, deadlines, compiled_plugins, tmp_path / "log")
    yield harness
    for worker in harness.workers:
        await worker.stop()
    os.close(harness.stderr)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "cache")
