"""The name of a process that nobody else can be taken for later: the kernel reuses a pid."""

from __future__ import annotations

import os
from functools import cache

from serai.wire import proctree

__all__ = ["alive", "gone", "myself", "owner_of", "pid_of"]


def owner_of(pid: int) -> str:
    """The name of a process: its pid, when it started, since which boot of the machine that counts, and where pids mean that."""
    process = proctree.read(pid)
    return f"{pid}:{process.started if process else 0}:{_boot()}:{_namespace()}"


def myself() -> str:
    return owner_of(os.getpid())


def pid_of(owner: str) -> int:
    pid = owner.partition(":")[0]
    return int(pid) if pid.isdigit() else 0


def alive(owner: str) -> bool:
    """Whether it is seen to run; a zombie that nobody has reaped does not. What follows a `#` is the owner's own."""
    pid, started, boot, namespace = _parts(owner)
    if boot != _boot() or namespace != _namespace() or not pid.isdigit():
        return False
    process = proctree.read(int(pid))
    return process is not None and process.alive and str(process.started) == started


def gone(owner: str) -> bool:
    """Whether it certainly runs no more. Of one in another container of this machine nobody here can say that."""
    _, _, boot, namespace = _parts(owner)
    elsewhere = boot == _boot() and namespace != _namespace()
    return not elsewhere and not alive(owner)


def _parts(owner: str) -> tuple[str, str, str, str]:
    """A name without a namespace, as they once were, is of this one."""
    pid, started, boot, namespace = (*owner.partition("#")[0].split(":"), "", "", "", "")[:4]
    return pid, started, boot, namespace or _namespace()


@cache
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _namespace() -> str:
    """In which pids mean what they mean to us: each container has its own. Not kept: a fork may be in another."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""
