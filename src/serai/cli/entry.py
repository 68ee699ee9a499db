"""The environment of a command: standard descriptors, which may be missing or full, and signals that end it."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import TextIO

# What a write answers when the disk is full, the terminal is gone, or the descriptor is none to write to.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


# For some 1600 guests. Not all that could be had: programs that close every number there may be would take for ever.
_DESCRIPTORS = 8192


class Interrupted(BaseException):
    """A KeyboardInterrupt on its way through click, which would say "Aborted!" and have a status of its own."""


def open_missing_streams() -> None:
    """Standard descriptors that were closed lead nowhere. Else the next file or pipe would be one of them, and be taken for it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or _open_stream(0, "r")
    sys.stdout = sys.stdout or _open_stream(1, "w")
    sys.stderr = sys.stderr or _open_stream(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal's encoding lacks is spelt out


def _open_stream(descriptor: int, mode: str) -> TextIO:
    return open(descriptor, mode, encoding="utf-8", closefd=False)  # type: ignore[return-value]


def raise_descriptor_limit() -> None:
    """A guest takes five descriptors of ours, and shells often allow 1024 of the many that could be had."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < hard:
        wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def handle_signals() -> list[int]:
    """From now on SIGTERM and SIGHUP end a command as Ctrl-C does, so that nothing is left. The list gets those that come."""
    came: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(number)
        interrupt = signal.getsignal(signal.SIGINT)  # while a loop runs it is the loop's, which cancels what runs
        if not callable(interrupt):  # ignored, as in the background of a shell
            raise KeyboardInterrupt
        interrupt(signal.SIGINT, frame)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # one that is ignored stays so: `nohup`
            signal.signal(number, handle)
    return came


def is_unwritable(error: OSError) -> bool:
    """Whether it says that there is nowhere to write. What concerns a file by name is not about output."""
    return error.errno in _UNWRITABLE and error.filename is None


def print_error(text: str) -> None:
    """Say it on stderr, if there is anybody to hear it."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass


def discard_output() -> None:
    """What cannot be written is forgotten. Else the interpreter would try it once more at its end, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
