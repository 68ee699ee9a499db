"""The standard streams of an extension: stdout is the wire, and nothing else may get on it (lesson L6).

Frames have copies of descriptors 0 and 1 for themselves; 1 then leads to stderr and 0 to nothing, so that neither a `print`, nor
a library, nor a child process can put a word on the wire or take one from it.
"""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

from serai.errors import BadExtension

__all__ = ["Writer", "from_host", "take"]

# The streams belong to the process, so what was taken of them does too: a second extension in one program finds it here.
_taken: list[tuple[BinaryIO, BinaryIO]] = []


def take() -> tuple[BinaryIO, BinaryIO]:
    """The wire, input and output. The first call moves everybody else away from it."""
    if not _taken:
        try:
            reading, writing = os.dup(0), os.dup(1)
        except OSError:
            raise BadExtension("its standard input or output is closed", hint="a host starts it with pipes at both") from None
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # there is no stderr
            os.dup2(nothing, 1)
        os.close(nothing)
        # What was printed before and is still buffered goes to stderr now, and what follows gets there line by line.
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True)
        _taken.append((os.fdopen(reading, "rb"), os.fdopen(writing, "wb", buffering=0)))
    return _taken[0]


def from_host() -> bool:
    """Whether a program was started by another one that talks to it: both streams are pipes or sockets."""
    import stat

    try:
        modes = [os.fstat(number).st_mode for number in (0, 1)]
    except OSError:
        return False
    return all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes)


class Writer:
    """Whole frames, from any thread. When the host is gone they go nowhere: the end of input tells."""

    def __init__(self, stream: BinaryIO) -> None:
        from _thread import allocate_lock  # what `threading.Lock` is, without the import

        self._stream = stream
        self._lock = allocate_lock()
        self._gone = False

    def write(self, frame: bytes) -> None:
        with self._lock:
            left = memoryview(frame)
            try:
                while left and not self._gone:
                    left = left[self._stream.write(left) :]
                self._stream.flush()
            except (OSError, ValueError):  # a broken pipe, or a stream that was closed
                self._gone = True
