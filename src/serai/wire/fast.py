"""What the extra `fast` means: uvloop as the event loop, and a C allocator that does not give back the memory of every long frame.

For entry points (a command, an application), never done by a library on its own: the loop is the program's choice, and the
allocator is the whole process's. A plain `asyncio.run` works as well, only slower.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

__all__ = ["loop_factory", "raise_malloc_thresholds", "run"]

T = TypeVar("T")

MIB = 1024 * 1024

# <malloc.h> of glibc, and what they are set to. A call with a long frame needs four to six times its size for a moment. By default
# all above 128 KiB goes back to the kernel at its end and comes again, page by page, in the next call: 50 page faults for a frame
# of 100 KB, which take as long as the rest of the call. With these, frames up to 5 MB (a screenshot) cause none and need less than
# half the CPU, also while a recorder holds 16 MiB of them. In turn up to 32 MiB of what such frames needed stay with the process.
# Twice as much would serve frames of 10 MB, too rare to hold 60 MB for; there a call costs a tenth more than by default, because
# fixed values end glibc's own adjusting. (Older glibc takes no M_MMAP_THRESHOLD above 32 MiB.)
_M_TRIM_THRESHOLD, _TRIM = -1, 32 * MIB
_M_MMAP_THRESHOLD, _MMAP = -3, 16 * MIB


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` with what the extra means, when it is installed; without it, one that no signal finds asleep."""
    factory = loop_factory()
    if factory is not None:
        raise_malloc_thresholds()
    with asyncio.Runner(loop_factory=factory) as runner, _woken(runner.get_loop()) if factory is None else nullcontext():
        return runner.run(main)


@contextmanager
def _woken(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Have a signal wake asyncio's own loop, as uvloop has it.

    Python runs a signal's handler in the main thread, and the system may give the signal to another one, or to this one just before
    it goes to sleep: then the handler would run when something else happens, if anything does.
    """
    wake, waking = os.pipe()
    for end in (wake, waking):
        os.set_blocking(end, False)
    loop.add_reader(wake, lambda: os.read(wake, 64))
    try:
        before = signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    except ValueError:  # not the main thread: it runs no handlers
        before = None
    try:
        yield
    finally:
        if before is not None:
            signal.set_wakeup_fd(before)
        loop.remove_reader(wake)
        os.close(wake)
        os.close(waking)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, for `asyncio.Runner`; None when it is not installed, which there means asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def raise_malloc_thresholds() -> bool:
    """Have the allocator keep the memory of long frames, for the rest of the process. False where it has no such thresholds."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS; no C library to be found
        return False
    return all([mallopt(_M_TRIM_THRESHOLD, _TRIM), mallopt(_M_MMAP_THRESHOLD, _MMAP)])
