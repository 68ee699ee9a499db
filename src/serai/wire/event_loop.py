"""The event loop: one timer for all deadlines, and what the extra `fast` adds.

A timer per call costs more than the call's own work (measured: 2.5 -> 6.2 us at 64 in flight). Here a wire compares its call's
deadline with the time it will be looked at anyway, and only an earlier one touches the timer.

`fast` is uvloop as the event loop, and a C allocator that does not give back the memory of every long frame. It is for entry
points (a command, an application), never done by a library on its own: the loop is the program's choice, and the allocator is the
whole process's. A plain `asyncio.run` works as well, only slower.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from math import inf
from time import monotonic
from typing import Any, TypeVar

log = logging.getLogger("serai.wire")

# Looks are at least this far apart, so that thousands of staggered deadlines cost a bounded share of the loop.
RESOLUTION = 0.005


class DeadlineWatch:
    """One party that wants to be looked at in time. `at` is when that will be."""

    __slots__ = ("_deadlines", "_tick", "at")

    def __init__(self, deadlines: Deadlines, tick: Callable[[float], float | None]) -> None:
        self._deadlines = deadlines
        self._tick = tick
        self.at = inf

    def schedule(self, when: float | None) -> None:
        """See to it that `tick(now)` is called at `when` or soon after; a later time than already planned changes nothing."""
        if when is not None and when < self.at:
            self.at = when
            self._deadlines._plan(when, self)

    @property
    def closed(self) -> bool:
        return self.at == -inf

    def close(self) -> None:
        """No more looks, and no hold on whoever wanted them. Idempotent."""
        self.at = -inf  # `schedule` can never be earlier
        self._tick = _do_nothing


def _do_nothing(now: float) -> None:
    """What a closed watch does."""


class Deadlines:
    """The timer of one loop; wires share it. `tick` functions return their next deadline, if any."""

    __slots__ = ("_heap", "_loop", "_order", "_timer", "_timer_at")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._heap: list[tuple[float, int, DeadlineWatch]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    def watch(self, tick: Callable[[float], float | None]) -> DeadlineWatch:
        return DeadlineWatch(self, tick)

    def close(self) -> None:
        """Forget everything. Idempotent."""
        self._heap.clear()
        self._arm(inf)

    def _plan(self, when: float, watch: DeadlineWatch) -> None:
        heapq.heappush(self._heap, (when, next(self._order), watch))
        if when < self._timer_at:
            self._arm(when)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = when
        if when < inf:
            self._timer = self._loop.call_later(max(when - monotonic(), 0.0), self._run_due)

    def _run_due(self) -> None:
        now = monotonic()
        self._timer, self._timer_at = None, inf
        due: list[DeadlineWatch] = []
        while self._heap and self._heap[0][0] <= now:
            when, _, watch = heapq.heappop(self._heap)
            if when == watch.at:  # else it was planned earlier since, and looked at then
                watch.at = inf
                due.append(watch)
        for watch in due:
            if not watch.closed:  # by one that was due before it
                try:
                    watch.schedule(watch._tick(now))
                except Exception:  # one bad party must not stop everybody's deadlines
                    log.exception("a deadline could not be kept")
        if self._heap:
            self._arm(max(self._heap[0][0], now + RESOLUTION))


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
    factory = find_loop_factory()
    if factory is not None:
        raise_malloc_thresholds()
    with asyncio.Runner(loop_factory=factory) as runner, _wake_on_signal(runner.get_loop()) if factory is None else nullcontext():
        return runner.run(main)


@contextmanager
def _wake_on_signal(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
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


def find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
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
