"""Compiled code that is not what was compiled, and a disk that takes none."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import replace
from typing import Any

import pytest

from serai.errors import NotWritten, PeerGone
from serai.host.adapters.yoi.compiler import CompiledCodeCache, compile_component, compute_key
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Child, Launch, Spawner
from tests.support.yoi import components
from tests.support.yoi.workers import READY, CountingSpawner, ReplacingSpawner, WorkerHarness

CRASHES = [signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP]


def compilations(counting: CountingSpawner) -> int:
    return sum("compiling" in launch.who for launch in counting.launched)


# -- what crashed is compiled anew ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [*CRASHES, signal.SIGKILL, signal.SIGTERM])
async def test_the_code_of_a_worker_that_crashed_is_made_anew(harness: WorkerHarness, folder: str, number: signal.Signals) -> None:
    """Not a signal from outside: wasmtime looks at the first of these, and goes on where no instruction was at fault."""
    counting = CountingSpawner(harness.spawner)  # type: ignore[arg-type]
    harness.cache = folder
    harness.spawner = ReplacingSpawner(counting, f"{READY}read(); os.kill(os.getpid(), {int(number)})")
    worker = await harness.open(components.echo())
    with pytest.raises(PeerGone):
        await harness.tool(worker)
    cause = await harness.over
    assert cause.exit is not None
    assert cause.exit.signal == number
    crashed = number in CRASHES
    assert os.path.exists(CompiledCodeCache(folder).get_path(compute_key(components.echo(), fuel=False))) is not crashed
    harness.spawner = counting
    again = await harness.open(components.echo())
    assert await harness.tool(again, "raw", "x") == "x"
    assert compilations(counting) == (2 if crashed else 1)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
async def test_so_is_that_of_one_that_crashed_before_it_was_ready(
    harness: WorkerHarness, folder: str, number: signal.Signals
) -> None:
    harness.cache, real = folder, harness.spawner
    harness.spawner = ReplacingSpawner(real, f"import os; os.kill(os.getpid(), {int(number)})")
    with pytest.raises(PeerGone):
        await harness.open(components.echo())
    assert os.path.exists(CompiledCodeCache(folder).get_path(compute_key(components.echo(), fuel=False))) is (
        number == signal.SIGKILL
    )
    harness.spawner = real
    assert await harness.tool(await harness.open(components.echo()), "raw", "x") == "x"


async def test_code_is_on_the_disk_before_it_has_its_name(
    spawner: PlainSpawner, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, int]] = []
    fsync, rename = os.fsync, os.replace

    def syncing(descriptor: int) -> None:
        done.append(("sync", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def renaming(old: Any, new: Any, **more: Any) -> None:
        done.append(("rename", os.stat(old).st_ino))
        rename(old, new, **more)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", renaming)
    key = await compile_component(components.echo(), spawner=spawner, cache=CompiledCodeCache(folder), fuel=False, who="yoi:test")
    inode = os.stat(CompiledCodeCache(folder).get_path(key)).st_ino
    assert done == [("sync", inode), ("rename", inode)]


# -- no room ----------------------------------------------------------------------------------------------------------------------


class Full(CompiledCodeCache):
    """On a disk without room."""

    def begin(self, key: str) -> tuple[int, str]:
        descriptor, path = super().begin(key)
        os.close(descriptor)
        return os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC), path


class Bounded:
    """A spawner whose programs may write a file of a few KiB."""

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner

    async def spawn(self, launch: Launch) -> Child:
        argv = ["/bin/sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *launch.argv]
        return await self._spawner.spawn(replace(launch, argv=argv))


@pytest.mark.parametrize(("how", "why"), [("full", errno.ENOSPC), ("bounded", errno.EFBIG)])
async def test_no_room_for_what_is_compiled_is_the_disks_fault(spawner: PlainSpawner, folder: str, how: str, why: int) -> None:
    cache = Full(folder) if how == "full" else CompiledCodeCache(folder)
    through: Spawner = spawner if how == "full" else Bounded(spawner)
    with pytest.raises(NotWritten) as caught:
        await compile_component(components.echo(), spawner=through, cache=cache, fuel=False, who="yoi:test")
    assert caught.value.message == f"a compiled plugin cannot be written: {os.strerror(why)}"
    assert caught.value.who == folder
    assert not [name for name in os.listdir(folder) if not name.startswith("lock-")]
    key = await compile_component(
        components.echo(), spawner=spawner, cache=CompiledCodeCache(folder), fuel=False, who="yoi:test"
    )  # there is room again
    assert CompiledCodeCache(folder).has(key)
