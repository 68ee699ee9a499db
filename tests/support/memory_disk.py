"""A folder in memory for the files of tests: they write and sync many small ones, and a disk takes its time for that."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

MEMORY_DISK = "/dev/shm"  # a file system in memory, on every Linux
ROOM = 2 << 30  # bytes; one run takes half of it at most


def make_memory_folder() -> str | None:
    """A new folder there, if programs may run there and there is room. It goes when this process ends, and those of a run that was
    killed with the next one.

    Its path is short, because the path of a Unix socket may have 107 bytes.
    """
    if not _has_room():
        return None
    for left in Path(MEMORY_DISK).glob("pt-*-*"):
        if not Path("/proc", left.name.split("-")[1]).exists():
            shutil.rmtree(left, ignore_errors=True)
    folder, owner = tempfile.mkdtemp(prefix=f"pt-{os.getpid()}-", dir=MEMORY_DISK), os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return folder


def _has_room() -> bool:
    try:
        disk = os.statvfs(MEMORY_DISK)
    except OSError:
        return False
    usable = not disk.f_flag & (os.ST_NOEXEC | os.ST_RDONLY) and os.access(MEMORY_DISK, os.W_OK | os.X_OK)
    return usable and disk.f_bavail * disk.f_frsize >= ROOM
