"""The name of a process that nobody else can be taken for later: a pid alone comes back (lesson L3)."""

from __future__ import annotations

import os
from functools import cache

from serai.wire import proctree

__all__ = ["alive", "myself", "owner_of", "pid_of"]


def owner_of(pid: int) -> str:
    """The name of a process: its pid, when it started, and since which boot of the machine that counts."""
    process = proctree.read(pid)
    return f"{pid}:{process.started if process else 0}:{_boot()}"


def myself() -> str:
    return owner_of(os.getpid())


def pid_of(owner: str) -> int:
    pid = owner.partition(":")[0]
    return int(pid) if pid.isdigit() else 0


def alive(owner: str) -> bool:
    """Whether it still runs; a zombie that nobody has reaped does not. What follows a `#` is the owner's own."""
    pid, _, rest = owner.partition("#")[0].partition(":")
    started, _, boot = rest.partition(":")
    if boot != _boot() or not pid.isdigit():
        return False
    process = proctree.read(int(pid))
    return process is not None and process.alive and str(process.started) == started


@cache
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
