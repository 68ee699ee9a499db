"""Files that are there whole or not at all: written beside their place under another name first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PREFIX = ".draft-"  # begins the name of what is not whole yet; one that stays was left by who was killed


@contextmanager
def atomic_writer(path: str | Path, *, mode: int = 0o600, sync: bool = False) -> Iterator[BinaryIO]:
    """What is written here takes its place when the block ends; if that fails, what was there is as it was.

    Whoever reads meanwhile has the old or the new; with `sync` that is so after a power cut, too.
    """
    name = os.path.join(os.path.dirname(os.path.abspath(path)), PREFIX + os.urandom(8).hex())
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            yield file
            if sync:
                file.flush()
                os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def write_atomically(path: str | Path, content: bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    with atomic_writer(path, mode=mode, sync=sync) as file:
        file.write(content)


def write_all(descriptor: int, data: bytes) -> None:
    """All of it, to a descriptor that blocks."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
