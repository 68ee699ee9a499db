"""The pipes between us and a child: made together, closed together, larger when frames are."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from fcntl import F_GETPIPE_SZ, F_SETPIPE_SZ, fcntl
from typing import Literal

__all__ = ["Direction", "Pipes", "capacity", "close_all", "grow"]

log = logging.getLogger("serai.wire")

Direction = Literal["r", "w", "null"]  # as the child sees it

_USUAL = 65536


class Pipes:
    """The pipes of one child: `theirs` and `ours` by the child's numbers; ours do not block. What cannot be made leaves nothing."""

    def __init__(self, wanted: Mapping[int, Direction | int], size: int | None) -> None:
        """A number in place of a direction is a file of ours that the child gets as it is; we get one to read what comes now."""
        self.theirs: dict[int, int] = {}
        self.ours: dict[int, int] = {}
        try:
            for number, direction in wanted.items():
                if isinstance(direction, int):
                    self.theirs[number] = os.dup(direction)
                    self.ours[number] = os.open(f"/proc/self/fd/{direction}", os.O_RDONLY | os.O_CLOEXEC)
                    os.lseek(self.ours[number], 0, os.SEEK_END)  # before the child runs, which may write at once
                    continue
                if direction == "null":
                    self.theirs[number] = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                    continue
                read, write = os.pipe()
                self.theirs[number], self.ours[number] = (read, write) if direction == "r" else (write, read)
                os.set_blocking(self.ours[number], False)
                if size is not None:
                    grow(read, size)
        except OSError:
            close_all(self.theirs)
            close_all(self.ours)
            raise


def close_all(descriptors: dict[int, int]) -> None:
    """Close and forget them."""
    for descriptor in descriptors.values():
        os.close(descriptor)
    descriptors.clear()


def capacity(descriptor: int) -> int:
    """How many bytes the pipe can hold."""
    return fcntl(descriptor, F_GETPIPE_SZ)


def grow(descriptor: int, size: int) -> None:
    """A larger pipe for a wire with long frames: fewer wake-ups for each. The machine may refuse; then it gets what it can."""
    while size > _USUAL:
        try:
            fcntl(descriptor, F_SETPIPE_SZ, size)
        except OSError:  # over the user's share of pipe memory
            size //= 2
        else:
            return
    log.debug("the pipe %d stays small", descriptor)
