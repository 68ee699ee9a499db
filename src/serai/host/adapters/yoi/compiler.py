"""A component compiled ahead of time: once, in a process that can be killed, with bounds on time and memory.

The verified bytes themselves are compiled, passed by a pipe: no path is read a second time (spec yoi 21.34). Compiled code is
native code that is executed as it is: it is taken only from a private folder of our own, which nobody else can write, and never
from a package (spec yoi 21.33). A file's name says which component it was made from and for which engine.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import importlib.util
import os
import platform
import secrets
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from time import monotonic, time

from serai import kernel
from serai.errors import BadManifest, LimitHit, NotWritten, PeerTimeout, SpawnFailed
from serai.host.adapters.yoi.program.engine import HEADER, SETTINGS
from serai.limits import MIB
from serai.wire.process import Child, Launch, Spawner

_SUFFIX = ".cwasm"
_TOTAL = 1024 * MIB
_ENTRIES = 128
_ABANDONED = 3600.0  # seconds: a half-written file this old has no writer any more


@cache
def compute_fingerprint() -> str:
    """Which wasmtime, on which processor: code for another is never looked at."""
    try:
        wasmtime = version("wasmtime")
    except PackageNotFoundError:
        wasmtime = "none"
    return hashlib.sha256(f"{wasmtime}\n{platform.machine()}\n{_read_processor()}".encode()).hexdigest()[:16]


def _read_processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return next((line.strip() for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        return ""


class CompiledCodeCache:
    """All of it is quick but `try_lock`, which is tried again by who wants to wait."""

    def __init__(self, folder: str, *, total: int = _TOTAL, entries: int = _ENTRIES) -> None:
        self.folder = folder
        self._total = total
        self._entries = entries
        self._make_folder()

    def _make_folder(self) -> None:
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            found = os.lstat(self.folder)
        except OSError as error:
            raise NotWritten(f"the folder for compiled plugins cannot be made: {error.strerror}", who=self.folder) from None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            why = "it is not a folder" if not stat.S_ISDIR(found.st_mode) else "it belongs to or is open to others"
            hint = f"what is in it would be executed: remove it, or make it yours alone (chmod 700 {self.folder})"
            raise NotWritten(f"compiled plugins are not taken from {self.folder}: {why}", who=self.folder, hint=hint)

    def get_path(self, key: str) -> str:
        return os.path.join(self.folder, key + _SUFFIX)

    def has(self, key: str) -> bool:
        """Whether it is there and fit to be executed: ours, and closed to others. One that is not is removed."""
        path = self.get_path(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:  # a link, or not readable
            self.drop(key)
            return False
        try:
            found = os.fstat(descriptor)
            good = (
                stat.S_ISREG(found.st_mode)
                and found.st_uid == os.geteuid()
                and stat.S_IMODE(found.st_mode) == 0o600
                and found.st_nlink == 1
                and found.st_size > 0
            )
            if good:
                with suppress(OSError):
                    os.utime(descriptor)  # the last to be used is the last to go
        finally:
            os.close(descriptor)
        if not good:
            self.drop(key)
        return good

    def drop(self, key: str) -> None:
        with suppress(OSError):
            os.unlink(self.get_path(key))

    def try_lock(self, key: str) -> int | None:
        """The lock of who compiles this, over all processes; None while another has it. Closing it gives it back."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(os.path.join(self.folder, f"lock-{key[:2]}"), flags, 0o600)  # a few for all: they are never removed
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def begin(self, key: str) -> tuple[int, str]:
        """A new file to compile into, and its path; `finish` gives it its name."""
        path = os.path.join(self.folder, f".{key[:16]}.{secrets.token_hex(8)}.part")
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), path

    def finish(self, key: str, part: str) -> None:
        descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, 0o600)  # whatever the umask left of it
            os.fsync(descriptor)  # before it has its name: half of it would be executed
        finally:
            os.close(descriptor)
        os.replace(part, self.get_path(key))
        self.trim(but=key)

    def trim(self, *, but: str = "") -> None:
        """Within bounds: the one that was not used for longest goes first."""
        kept: list[tuple[float, int, str]] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(_SUFFIX):
                        kept.append((found.st_mtime, found.st_size, entry.name))
                    elif entry.name.endswith(".part") and time() - found.st_mtime > _ABANDONED:
                        os.unlink(entry.path)
        kept.sort()
        total = sum(size for _, size, _ in kept)
        count = len(kept)
        for _, size, name in kept:
            if total <= self._total and count <= self._entries:
                break
            if name != but + _SUFFIX:
                self.drop(name.removesuffix(_SUFFIX))
                total, count = total - size, count - 1


_CORE = b"\x00asm\x01\x00\x00\x00"
_REFUSED = 3  # exit status of `program/compiler.py`: the component is at fault
_UNWRITTEN = 4  # the disk is
_AGAIN = 0.02  # seconds: between two looks whether another has compiled it meanwhile; a lock cannot be waited for without a thread
_LARGE = 1 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileLimits:
    """The bounds. A Python plugin of 18 MB takes 12 s of one processor and 400 MiB, as measured."""

    seconds: float = 120.0
    address_space: int = 6 * 1024 * MIB
    memory: int = 2 * 1024 * MIB


def build_command(entry: str, *args: str) -> list[str]:
    """How a program of the folder `program` is started: with nothing of its surroundings but the standard library and wasmtime."""
    found = importlib.util.find_spec("wasmtime")
    if found is None or found.origin is None:
        hint = "install it: pip install 'serai[wasm]'"
        raise SpawnFailed("wasmtime is not installed, and plugins need it", hint=hint)
    here = os.path.dirname(os.path.abspath(__file__))
    home = os.path.dirname(os.path.dirname(os.path.abspath(kernel.__file__)))  # it is imported as `kernel`, without `serai`
    library = os.path.dirname(os.path.dirname(found.origin))
    # Without the garbage collector, which would look again and again at what stays for ever, it starts a tenth sooner.
    code = "import gc, sys; gc.disable(); sys.path[:0] = sys.argv[1:3]; import kernel; "
    code += "del sys.path[1]; sys.path.append(sys.argv[3]); "  # what else lies beside the kernel is not found
    code += f"from program.{entry} import main; main(sys.argv[4:])"
    return [sys.executable, "-I", "-S", "-c", code, here, home, library, *args]


def compute_key(component: bytes, *, fuel: bool) -> str:
    """The name of what a component compiles to: with fuel the code is another one."""
    return f"{hashlib.sha256(component).hexdigest()}-{compute_fingerprint()}-{SETTINGS}{'f' if fuel else ''}"


def check_header(component: bytes, who: str) -> None:
    """Before the compiler sees it: text would be taken for component text and be compiled (spec yoi 21.32)."""
    if component[: len(HEADER)] == HEADER:
        return
    why = "these are the bytes of a core module" if component[:8] == _CORE else "it does not begin as a component does"
    hint = "build it as a component, such as with `serai guest build`"
    raise BadManifest(f"component is incompatible: {why}", who=who, hint=hint)


async def compile_component(
    component: bytes, *, spawner: Spawner, cache: CompiledCodeCache, fuel: bool, who: str, bounds: CompileLimits | None = None
) -> str:
    """The key of the compiled code in the cache; it is made there unless it is there already."""
    bounds = bounds or CompileLimits()
    check_header(component, who)
    if len(component) > _LARGE:
        key = await asyncio.to_thread(compute_key, component, fuel=fuel)
    else:
        key = compute_key(component, fuel=fuel)
    if cache.has(key):
        return key
    until = monotonic() + bounds.seconds
    try:
        while (lock := cache.try_lock(key)) is None:
            if monotonic() >= until:
                raise _build_timeout(bounds, who)
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


async def _compile(
    component: bytes, key: str, spawner: Spawner, cache: CompiledCodeCache, *, fuel: bool, who: str, bounds: CompileLimits
) -> None:
    output, part = cache.begin(key)
    try:
        try:
            args = (str(bounds.address_space), str(bounds.memory), str(int(bounds.seconds * 2) + 1))
            argv = build_command("compiler", "fuel" if fuel else "plain", *args)
            child = await spawner.spawn(Launch(argv=argv, env={}, cwd="/", who=f"compiling {who}", stdout=output))
        finally:
            os.close(output)
        try:
            async with asyncio.timeout(bounds.seconds):
                await _write_input(child, component)
                status = await child.exited
        except TimeoutError:
            raise _build_timeout(bounds, who) from None
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


def _build_timeout(bounds: CompileLimits, who: str) -> PeerTimeout:
    hint = "it is too large to be compiled here, or the machine is busy"
    return PeerTimeout("compiling its component took too long", who=who, limit=LimitHit("compile", bounds.seconds), hint=hint)


async def _write_input(child: Child, data: bytes) -> None:
    """Write it all to the child's input and close that. Who has ended before has its reasons, which its exit tells."""
    loop = asyncio.get_running_loop()
    rest = memoryview(data)
    while rest and child.stdin >= 0:
        try:
            rest = rest[os.write(child.stdin, rest) :]
        except BlockingIOError:
            writable: asyncio.Future[None] = loop.create_future()
            number = child.stdin
            loop.add_writer(number, _set_done, writable)
            try:
                await writable
            finally:
                loop.remove_writer(number)
        except OSError:
            break
    child.close_descriptor(child.stdin)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
