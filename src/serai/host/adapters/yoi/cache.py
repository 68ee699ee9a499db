"""The private folder of compiled plugins.

Compiled code is native code that is executed as it is: it is taken from a folder of our own alone, which nobody else can write, and
never from a package (spec yoi 21.33). A file's name says which component it was made from and for which engine.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import secrets
import stat
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from time import time

from serai.errors import NotWritten
from serai.limits import MIB

__all__ = ["Cache", "engine_fingerprint"]

_SUFFIX = ".cwasm"
_TOTAL = 1024 * MIB
_ENTRIES = 128
_ABANDONED = 3600.0  # seconds: a half-written file this old has no writer any more


@cache
def engine_fingerprint() -> str:
    """Which wasmtime, on which processor: code for another is never looked at."""
    try:
        wasmtime = version("wasmtime")
    except PackageNotFoundError:
        wasmtime = "none"
    return hashlib.sha256(f"{wasmtime}\n{platform.machine()}\n{_processor()}".encode()).hexdigest()[:16]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return next((line.strip() for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        return ""


class Cache:
    """All of it is quick but `hold`, which is tried again by who wants to wait."""

    def __init__(self, folder: str, *, total: int = _TOTAL, entries: int = _ENTRIES) -> None:
        self.folder = folder
        self._total = total
        self._entries = entries
        self._make()

    def _make(self) -> None:
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            found = os.lstat(self.folder)
        except OSError as error:
            raise NotWritten(f"the folder for compiled plugins cannot be made: {error.strerror}", who=self.folder) from None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            why = "it is not a folder" if not stat.S_ISDIR(found.st_mode) else "it belongs to or is open to others"
            hint = f"what is in it would be executed: remove it, or make it yours alone (chmod 700 {self.folder})"
            raise NotWritten(f"compiled plugins are not taken from {self.folder}: {why}", who=self.folder, hint=hint)

    def path(self, key: str) -> str:
        return os.path.join(self.folder, key + _SUFFIX)

    def has(self, key: str) -> bool:
        """Whether it is there and fit to be executed: ours, and closed to others. One that is not is removed."""
        path = self.path(key)
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
            os.unlink(self.path(key))

    def hold(self, key: str) -> int | None:
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
        os.replace(part, self.path(key))
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
