"""Files that are there whole or not at all: written beside their place under another name first."""

from __future__ import annotations

import os
import tempfile
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
    descriptor, name = tempfile.mkstemp(prefix=PREFIX, dir=os.path.dirname(os.path.abspath(path)))  # made with 0600
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
