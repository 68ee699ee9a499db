"""A component compiled ahead of time: once, in a process that can be killed, with bounds on time and memory.

What is compiled are the bytes that were verified, handed over by a pipe: no path is read a second time (spec yoi 21.34).
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from serai.errors import BadManifest, LimitHit, NotWritten, PeerTimeout, SpawnFailed
from serai.host.adapters.yoi.cache import Cache, engine_fingerprint
from serai.host.adapters.yoi.program.engine import HEADER, SETTINGS
from serai.limits import MIB
from serai.wire.process import Child, Launch, Spawner

__all__ = ["Compiling", "command", "compiled", "key_of"]

_CORE = b"\x00asm\x01\x00\x00\x00"
_REFUSED = 3  # exit status of `program/compile.py`: the component is at fault
_UNWRITTEN = 4  # the disk is
_AGAIN = 0.02  # seconds: between two looks whether another has compiled it meanwhile; a lock cannot be waited for without a thread
_LARGE = 1 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiling:
    """The bounds. A Python plugin of 18 MB takes 12 s of one processor and 400 MiB, as measured."""

    seconds: float = 120.0
    address_space: int = 6 * 1024 * MIB
    memory: int = 2 * 1024 * MIB


def command(entry: str, *args: str) -> list[str]:
    """How a program of the folder `program` is started: with nothing of its surroundings but the standard library and wasmtime."""
    found = importlib.util.find_spec("wasmtime")
    if found is None or found.origin is None:
        hint = "install it: pip install 'serai[wasm]'"
        raise SpawnFailed("wasmtime is not installed, and plugins need it", hint=hint)
    here = os.path.dirname(os.path.abspath(__file__))
    library = os.path.dirname(os.path.dirname(found.origin))
    # Without the garbage collector, which would look again and again at what stays for ever, it starts a tenth sooner.
    code = "import gc, sys; gc.disable(); sys.path[:0] = [sys.argv[1]]; sys.path.append(sys.argv[2]); "
    code += f"from program.{entry} import main; main(sys.argv[3:])"
    return [sys.executable, "-I", "-S", "-c", code, here, library, *args]


def key_of(component: bytes, *, fuel: bool) -> str:
    """The name of what a component compiles to: with fuel the code is another one."""
    return f"{hashlib.sha256(component).hexdigest()}-{engine_fingerprint()}-{SETTINGS}{'f' if fuel else ''}"


def check_header(component: bytes, who: str) -> None:
    """Before the compiler sees it: text would be taken for component text and be compiled (spec yoi 21.32)."""
    if component[: len(HEADER)] == HEADER:
        return
    why = "these are the bytes of a core module" if component[:8] == _CORE else "it does not begin as a component does"
    hint = "build it as a component, such as with `serai guest build`"
    raise BadManifest(f"component is incompatible: {why}", who=who, hint=hint)


async def compiled(
    component: bytes, *, spawner: Spawner, cache: Cache, fuel: bool, who: str, bounds: Compiling | None = None
) -> str:
    """The key of the compiled code in the cache; it is made there unless it is there already."""
    bounds = bounds or Compiling()
    check_header(component, who)
    if len(component) > _LARGE:
        key = await asyncio.to_thread(key_of, component, fuel=fuel)
    else:
        key = key_of(component, fuel=fuel)
    if cache.has(key):
        return key
    until = monotonic() + bounds.seconds
    try:
        while (lock := cache.hold(key)) is None:
            if monotonic() >= until:
                raise _too_long(bounds, who)
            await asyncio.sleep(_AGAIN)
            if cache.has(key):
                return key
        try:
            if not cache.has(key):  # else who had the lock before has made it
                await _compile(component, key, spawner, cache, fuel=fuel, who=who, bounds=bounds)
        finally:
            os.close(lock)
    except PeerTimeout:  # which is an `OSError` too
        raise
    except OSError as error:
        raise NotWritten(f"a compiled plugin cannot be written: {error.strerror or error}", who=cache.folder) from None
    return key


async def _compile(component: bytes, key: str, spawner: Spawner, cache: Cache, *, fuel: bool, who: str, bounds: Compiling) -> None:
    output, part = cache.begin(key)
    try:
        try:
            args = (str(bounds.address_space), str(bounds.memory), str(int(bounds.seconds * 2) + 1))
            argv = command("compile", "fuel" if fuel else "plain", *args)
            child = await spawner.spawn(Launch(argv=argv, env={}, cwd="/", who=f"compiling {who}", stdout=output))
        finally:
            os.close(output)
        try:
            async with asyncio.timeout(bounds.seconds):
                await _hand_over(child, component)
                status = await child.exited
        except TimeoutError:
            raise _too_long(bounds, who) from None
        finally:
            await child.close()
        said = child.stderr.text().strip()
        if status.code == _REFUSED:
            raise BadManifest(f"component is incompatible: {said}", who=who, hint="its author has to build it anew")
        if status.code == _UNWRITTEN:
            raise NotWritten(f"a compiled plugin cannot be written: {said}", who=cache.folder)
        if not status.ok:
            hint = f"it may need more than {bounds.memory // MIB} MiB to compile"
            raise BadManifest(f"component is incompatible: compiling it failed with {status}: {said[-500:]}", who=who, hint=hint)
        cache.finish(key, part)
    finally:
        with suppress(OSError):
            os.unlink(part)


def _too_long(bounds: Compiling, who: str) -> PeerTimeout:
    hint = "it is too large to be compiled here, or the machine is busy"
    return PeerTimeout("compiling its component took too long", who=who, limit=LimitHit("compile", bounds.seconds), hint=hint)


async def _hand_over(child: Child, data: bytes) -> None:
    """Write it all to the child's input and close that. Who has ended before has its reasons, which its exit tells."""
    loop = asyncio.get_running_loop()
    rest = memoryview(data)
    while rest and child.stdin >= 0:
        try:
            rest = rest[os.write(child.stdin, rest) :]
        except BlockingIOError:
            writable: asyncio.Future[None] = loop.create_future()
            number = child.stdin
            loop.add_writer(number, _done, writable)
            try:
                await writable
            finally:
                loop.remove_writer(number)
        except OSError:
            break
    child.close_descriptor(child.stdin)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
