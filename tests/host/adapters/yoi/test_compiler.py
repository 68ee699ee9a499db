"""Compiled once, in a process with bounds, into a folder that is ours alone."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from serai.errors import BadManifest, NotWritten, PeerTimeout, SpawnFailed
from serai.host.adapters.yoi import compiler
from serai.host.adapters.yoi.compiler import CompiledCodeCache, CompileLimits, build_command, compile_component, compute_key
from serai.host.adapters.yoi.program import engine
from serai.wire.plain_process import PlainSpawner
from tests.support.yoi import components
from tests.support.yoi.workers import LONG, CountingSpawner, WorkerHarness


def test_its_programs_find_the_kernel_and_nothing_else_of_serai() -> None:
    *python, code, here, home, library = build_command("main")
    names = ["errors", "model", "plugins", "tools", "wire"]
    look = f"import kernel.landlock, program.main, importlib.util; print([*filter(importlib.util.find_spec, {names})])"
    command = [*python, code.partition("from program")[0] + look, here, home, library]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "[]\n"


async def _compile(spawner: PlainSpawner | CountingSpawner, folder: str, component: bytes, **more: object) -> str:
    return await compile_component(component, spawner=spawner, cache=CompiledCodeCache(folder), fuel=False, who="yoi:test", **more)  # type: ignore[arg-type]


@pytest.mark.req("yoi.rule.072")
async def test_it_is_compiled_once(spawner: PlainSpawner, folder: str) -> None:
    counting = CountingSpawner(spawner)
    first = await _compile(counting, folder, components.tool())
    assert await _compile(counting, folder, components.tool()) == first
    assert len(counting.launched) == 1
    assert first.startswith(hashlib.sha256(components.tool()).hexdigest())


async def test_side_by_side_it_is_compiled_once_too(spawner: PlainSpawner, folder: str) -> None:
    counting = CountingSpawner(spawner)
    keys = await asyncio.gather(*(_compile(counting, folder, components.echo()) for _ in range(5)))
    assert len(set(keys)) == 1
    assert len(counting.launched) == 1
    assert not [name for name in os.listdir(folder) if name.endswith(".part")]


async def test_another_process_that_compiles_it_is_waited_for(spawner: PlainSpawner, folder: str) -> None:
    cache = CompiledCodeCache(folder)
    component = components.echo()
    key = compute_key(component, fuel=False)
    lock = cache.try_lock(key)
    assert lock is not None
    assert cache.try_lock(key) is None
    waiting = asyncio.ensure_future(_compile(spawner, folder, component))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    os.close(lock)
    assert await asyncio.wait_for(waiting, LONG) == key


async def test_who_waits_for_another_does_not_wait_for_ever(spawner: PlainSpawner, folder: str) -> None:
    cache = CompiledCodeCache(folder)
    lock = cache.try_lock(compute_key(components.echo(), fuel=False))
    assert lock is not None
    with pytest.raises(PeerTimeout, match="took too long"):
        await _compile(spawner, folder, components.echo(), bounds=CompileLimits(seconds=0.1))
    os.close(lock)


@pytest.mark.req("yoi.edge.33")
async def test_the_folder_and_the_file_are_ours_alone(spawner: PlainSpawner, folder: str) -> None:
    before = os.umask(0)
    try:
        key = await _compile(spawner, folder, components.echo())
    finally:
        os.umask(before)
    path = CompiledCodeCache(folder).get_path(key)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


@pytest.mark.req("yoi.edge.33")
@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707])
def test_a_folder_that_others_can_get_at_is_refused(folder: str, mode: int) -> None:
    os.mkdir(folder)
    os.chmod(folder, mode)
    with pytest.raises(NotWritten, match="compiled plugins are not taken from"):
        CompiledCodeCache(folder)


@pytest.mark.req("yoi.edge.33")
@pytest.mark.needs("root")
def test_a_folder_of_somebody_else_is_refused(folder: str) -> None:
    os.mkdir(folder, 0o700)
    os.chown(folder, 12345, 12345)
    with pytest.raises(NotWritten, match="belongs to or is open to others"):
        CompiledCodeCache(folder)


@pytest.mark.req("yoi.edge.33")
def test_a_link_in_its_place_is_refused(folder: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    os.symlink(tmp_path / "elsewhere", folder)
    with pytest.raises(NotWritten):
        CompiledCodeCache(folder)


def _open_to_others(path: str) -> None:
    os.chmod(path, 0o644)


def _replace_by_link(path: str) -> None:
    os.rename(path, path + ".x")
    os.symlink(path + ".x", path)


def _add_second_name(path: str) -> None:
    os.link(path, path + ".x")


def _empty(path: str) -> None:
    os.truncate(path, 0)


def _give_away(path: str) -> None:
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        os.chmod(path, 0o666)


@pytest.mark.req("yoi.edge.33")
@pytest.mark.parametrize("spoil", [_open_to_others, _replace_by_link, _add_second_name, _empty, _give_away])
async def test_compiled_code_that_others_may_have_written_is_not_run(spawner: PlainSpawner, folder: str, spoil: object) -> None:
    counting = CountingSpawner(spawner)
    key = await _compile(counting, folder, components.echo())
    spoil(CompiledCodeCache(folder).get_path(key))  # type: ignore[operator]
    assert not CompiledCodeCache(folder).has(key)
    assert await _compile(counting, folder, components.echo()) == key
    assert len(counting.launched) == 2


@pytest.mark.parametrize("damage", ["cut", "noise", "empty"])
async def test_what_is_damaged_is_compiled_anew(harness: WorkerHarness, folder: str, damage: str) -> None:
    harness.cache = folder
    counting = CountingSpawner(harness.spawner)  # type: ignore[arg-type]
    harness.spawner = counting
    await harness.open(components.echo())
    path = CompiledCodeCache(folder).get_path(compute_key(components.echo(), fuel=False))
    whole = Path(path).read_bytes()
    Path(path).unlink()  # the first worker has the old one open
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, {"cut": whole[: len(whole) // 2], "noise": b"\x7fELF" + b"x" * 5000, "empty": b""}[damage])
    os.close(descriptor)
    worker = await harness.open(components.echo())
    assert await harness.tool(worker, "raw", "x") == "x"
    assert sum("compiling" in launch.who for launch in counting.launched) == 2


@pytest.mark.req("yoi.edge.34")
async def test_what_runs_are_the_very_bytes_that_were_verified(harness: WorkerHarness, tmp_path: Path, folder: str) -> None:
    """The file is another one by the time it is compiled: nobody reads it again, for the compiler gets bytes and no path."""
    harness.cache = folder
    counting = CountingSpawner(harness.spawner)  # type: ignore[arg-type]
    harness.spawner = counting
    package = tmp_path / "component.wasm"
    package.write_bytes(components.echo())
    verified = package.read_bytes()
    package.write_bytes(components.traps("start"))
    worker = await harness.open(verified)
    assert await worker.call("start", ("null",), LONG) == '{"state":"running"}'
    assert not [argument for launch in counting.launched for argument in launch.argv if str(package) in argument]
    sent = b"".join(harness.wires.sent)
    assert str(package).encode() not in sent
    assert compute_key(verified, fuel=False).encode() in sent


async def test_with_fuel_the_code_is_another_one(spawner: PlainSpawner, folder: str) -> None:
    assert compute_key(components.echo(), fuel=True) != compute_key(components.echo(), fuel=False)
    assert compute_key(components.echo(), fuel=True).endswith(f"-{engine.SETTINGS}f")


async def test_a_compiler_that_takes_too_long_is_killed(
    spawner: PlainSpawner, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "build_command", lambda *_: [sys.executable, "-I", "-S", "-c", "import time; time.sleep(3600)"])
    with pytest.raises(PeerTimeout, match="compiling its component took too long"):
        await _compile(spawner, folder, components.echo(), bounds=CompileLimits(seconds=0.3))
    assert not [name for name in os.listdir(folder) if not name.startswith("lock-")]
    assert not spawner.children


async def test_a_compiler_has_a_bound_on_memory(spawner: PlainSpawner, folder: str) -> None:
    with pytest.raises(BadManifest, match="compiling it failed"):
        await _compile(spawner, folder, components.echo(), bounds=CompileLimits(memory=1024, address_space=1024))


@pytest.mark.parametrize("size", [100_000, 3_000_000])
async def test_a_compiler_that_reads_nothing_does_not_hang_us(
    spawner: PlainSpawner, folder: str, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(compiler, "build_command", lambda *_: [sys.executable, "-I", "-S", "-c", "import os; os._exit(9)"])
    component = components.echo() + b"\0" * size
    with pytest.raises(BadManifest, match="exit status 9"):
        await _compile(spawner, folder, component)


async def test_a_large_component_goes_through_the_pipe(spawner: PlainSpawner, folder: str) -> None:
    """A custom section of 3 MB: more than any pipe holds."""
    size = 3_000_000
    body = b"\x04junk" + b"x" * size
    length = bytearray()
    left = len(body)
    while left:
        length.append(left & 0x7F | (0x80 if left > 0x7F else 0))
        left >>= 7
    component = components.echo() + b"\x00" + bytes(length) + body
    assert CompiledCodeCache(folder).has(await _compile(spawner, folder, component))


async def test_cancelled_while_it_compiles_nothing_is_left(spawner: PlainSpawner, folder: str) -> None:
    counting = CountingSpawner(spawner)
    task = asyncio.ensure_future(_compile(counting, folder, components.echo()))
    while not counting.launched:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [name for name in os.listdir(folder) if not name.startswith("lock-")]
    assert CompiledCodeCache(folder).try_lock(compute_key(components.echo(), fuel=False)) is not None


def _write_file(cache: CompiledCodeCache, key: str, size: int, at: float) -> None:
    path = cache.get_path(key)
    Path(path).write_bytes(b"x" * size)
    os.chmod(path, 0o600)
    os.utime(path, (at, at))


def test_the_oldest_go_when_there_is_too_much(folder: str) -> None:
    cache = CompiledCodeCache(folder, total=1000, entries=4)
    for n, size in enumerate((300, 300, 300)):
        _write_file(cache, f"k{n}", size, 1000.0 + n)
    assert cache.has("k0")  # used: now it is the youngest
    _write_file(cache, "k3", 300, 1010.0)
    cache.trim(but="k3")
    assert {name for name in os.listdir(folder) if name.endswith(".cwasm")} == {"k0.cwasm", "k2.cwasm", "k3.cwasm"}
    for n in range(10, 16):
        _write_file(cache, f"k{n}", 1, 2000.0 + n)
    cache.trim(but="k10")
    left = {name for name in os.listdir(folder) if name.endswith(".cwasm")}
    assert len(left) == 4
    assert {"k0.cwasm", "k10.cwasm"} <= left


def test_what_nobody_writes_any_more_goes(folder: str) -> None:
    cache = CompiledCodeCache(folder)
    old, path = cache.begin("a" * 64)
    os.close(old)
    os.utime(path, (1.0, 1.0))
    young, other = cache.begin("a" * 64)
    os.close(young)
    cache.trim()
    assert not os.path.exists(path)
    assert os.path.exists(other)


def test_without_wasmtime_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SpawnFailed) as caught:
        build_command("main")
    assert "pip install 'serai[wasm]'" in caught.value.hint
