"""The log of a box: what its processes say on their standard error, up to a limit.

They get a pipe, not the file: a porter that somebody took over could fill the disk of the machine. A resource limit would not do,
for it would hold for the files of the box too.
"""

from __future__ import annotations

import os
import stat

__all__ = ["LIMIT", "Log"]

LIMIT = 1 << 20  # bytes of a log, over all lives of its box
# More than a pipe can hold, so all that the dead have said; and an end, because the living may not stop.
_PIECE, _PIECES = 65536, 32
_FULL = b"\nserai: the log is full, the rest of what the box says is lost\n"


class Log:
    """From now on our standard error is the pipe, for those whom we start; `take_over` when they are started."""

    def __init__(self) -> None:
        self.said, pipe = os.pipe()
        os.set_blocking(self.said, False)
        self._file = os.dup(2)
        os.dup2(pipe, 2)
        os.close(pipe)
        info = os.fstat(self._file)
        self._room = max(LIMIT - (info.st_size if stat.S_ISREG(info.st_mode) else 0), 0)

    def take_over(self) -> None:
        """Have the file as our own standard error again, and copy what was said meanwhile."""
        os.dup2(self._file, 2)
        os.close(self._file)
        self.copy()

    def copy(self) -> bool:
        """What they have said by now goes to the file, as far as there is room. Whether there may be more."""
        for _ in range(_PIECES):
            try:
                some = os.read(self.said, _PIECE)
            except BlockingIOError:
                break
            if not some:
                return False
            if self._room:
                kept = some[: self._room]
                self._room -= len(kept)
                self._write(kept if self._room else kept + _FULL)
        return True

    @staticmethod
    def _write(data: bytes) -> None:
        try:
            os.write(2, data)
        except OSError:
            pass  # a full disk must not end the box
