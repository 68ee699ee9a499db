"""Threads for what must not hold up the read loop, and one for what must not take too long."""

from __future__ import annotations

from _queue import SimpleQueue
from collections.abc import Callable
from heapq import heappop, heappush
from threading import Condition, Thread
from time import monotonic

__all__ = ["Alarms", "Workers"]

_WAITING = 10_000  # of one kind of work: more means that its handler hangs


class Workers:
    """At most so many threads, each started when it is needed and kept. One alone does its work in the order it came.

    Daemons: a handler that hangs cannot keep the program.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._changed = Condition()
        self._free = 0  # threads that wait, minus the jobs that wait for them
        self._threads = 0

    def put(self, job: Callable[[], None]) -> bool:
        """Whether it was taken: not when thousands wait already, or the machine has no thread for it."""
        with self._changed:
            if self._free <= -_WAITING or (self._free <= 0 and self._threads < self._most and not self._grow()):
                return False
            self._free -= 1
        self._jobs.put(job)
        return True

    def idle(self, deadline: float) -> bool:
        """Wait until all is done, but no longer than that; whether it is."""
        with self._changed:
            while self._free < self._threads:
                left = deadline - monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def _grow(self) -> bool:
        """One thread more, if there can be one; whether there is any."""
        thread = Thread(target=self._work, name=f"{self._name} {self._threads + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the machine's limit
            return self._threads > 0
        self._threads += 1
        self._free += 1
        return True

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except BaseException:  # a job answers for itself, so this is our defect: it must not cost the thread, too
                import traceback

                traceback.print_exc()
            del job
            with self._changed:
                self._free += 1
                self._changed.notify_all()


class Alarms:
    """Things to do later, unless it is said before that they are done: one thread for all, started with the first."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._started = False

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        with self._changed:
            self._count += 1
            heappush(self._waiting, (monotonic() + seconds, self._count, act))
            self._changed.notify()
            if not self._started:
                try:
                    Thread(target=self._work, name="alarms", daemon=True).start()
                except RuntimeError:  # the machine's limit: with the next one it is tried again
                    return
                self._started = True

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting or (left := self._waiting[0][0] - monotonic()) > 0:
                    self._changed.wait(left if self._waiting else None)
                act = heappop(self._waiting)[2]
            act()
