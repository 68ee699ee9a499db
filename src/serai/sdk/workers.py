"""Threads for what must not hold up the read loop."""

from __future__ import annotations

from _queue import SimpleQueue
from collections.abc import Callable
from threading import Condition, Thread
from time import monotonic

__all__ = ["Workers"]

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
        """Whether it was taken: not when thousands wait already."""
        with self._changed:
            if self._free <= -_WAITING:
                return False
            self._free -= 1
            new = self._free < 0 and self._threads < self._most
            self._threads += new
        self._jobs.put(job)
        if new:
            Thread(target=self._work, name=f"{self._name} {self._threads}", daemon=True).start()
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

    def _work(self) -> None:
        while True:
            with self._changed:
                self._free += 1
                self._changed.notify_all()
            self._jobs.get()()
