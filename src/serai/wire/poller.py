"""Many descriptors on which little happens, together as one descriptor of the loop."""

from __future__ import annotations

import asyncio
import logging
import select
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Protocol

__all__ = ["Patient", "Poller", "Readers"]

log = logging.getLogger("serai.wire")

# So many are handled in one turn of the loop; the others have the next one.
_MOST = 64
# One that was ready alone so often is a busy one.
_BUSY = 16
# What is still there after so many seconds is watched: longer than most short programs live, shorter than anybody minds.
_MOMENT = 0.005


class Readers(Protocol):
    """Who calls back when a descriptor can be read: a loop, or a poller."""

    def add_reader(self, descriptor: int, callback: Callable[[], object], /) -> object: ...
    def remove_reader(self, descriptor: int, /) -> object: ...


class Poller:
    """Waits for the descriptors of many children: pidfds and stderrs that speak once or never, wires that are idle mostly.

    A loop's own books on a descriptor take longer to write than all else that is done about it when a child starts, and half a
    kilobyte. In turn every event costs one more look, so one that is ready alone again and again is moved to the loop.
    """

    __slots__ = ("_alone", "_busy", "_callbacks", "_epoll", "_loop")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._alone: dict[int, int] = {}  # how often
        self._busy: set[int] = set()  # moved to the loop
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._epoll.fileno(), self._ready)

    def add_reader(self, descriptor: int, callback: Callable[[], object]) -> None:
        """As a loop does it: called in the context of who adds it, whose work it is."""
        self._epoll.register(descriptor, select.EPOLLIN)
        self._callbacks[descriptor] = partial(copy_context().run, callback)

    def remove_reader(self, descriptor: int) -> None:
        """Idempotent."""
        self._alone.pop(descriptor, None)
        if self._callbacks.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)
        elif descriptor in self._busy:
            self._busy.remove(descriptor)
            self._loop.remove_reader(descriptor)

    def close(self) -> None:
        """Forget all of them. Idempotent."""
        if not self._epoll.closed:
            for descriptor in [*self._busy, self._epoll.fileno()]:
                self._loop.remove_reader(descriptor)
            self._busy.clear()
            self._callbacks.clear()
            self._epoll.close()

    def _ready(self) -> None:
        found = self._epoll.poll(0, _MOST)
        for descriptor, _ in found:
            callback = self._callbacks.get(descriptor)  # None: one that was ready before it has closed it
            if callback is not None:
                try:
                    callback()
                except Exception:  # one defect must not make the others deaf
                    log.exception("the reader of descriptor %d failed", descriptor)
        if len(found) == 1:
            self._was_alone(found[0][0])

    def _was_alone(self, descriptor: int) -> None:
        callback = self._callbacks.get(descriptor)
        if callback is None:
            return
        times = self._alone[descriptor] = self._alone.get(descriptor, 0) + 1
        if times == _BUSY:
            self.remove_reader(descriptor)
            self._busy.add(descriptor)
            self._loop.add_reader(descriptor, callback)


class Patient:
    """Watches descriptors only after a moment: for what a child writes that matters at its end, or when there is much of it.

    A child that ends sooner is read when it has ended. Else it would wake the loop with every word it writes, and with every
    descriptor it closes.
    """

    __slots__ = ("_fresh", "_loop", "_readers", "_timer", "_waiting")

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._fresh: dict[int, Callable[[], object]] = {}
        self._waiting: dict[int, Callable[[], object]] = {}  # for a whole moment at the next look
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def add_reader(self, descriptor: int, callback: Callable[[], object]) -> None:
        self._fresh[descriptor] = callback
        if self._timer is None:
            self._timer = self._loop.call_later(_MOMENT, self._look)

    def remove_reader(self, descriptor: int) -> None:
        """Idempotent."""
        if self._fresh.pop(descriptor, None) is None and self._waiting.pop(descriptor, None) is None:
            self._readers.remove_reader(descriptor)

    def close(self) -> None:
        """Forget those that nobody watches yet. Idempotent."""
        self._fresh.clear()
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        due, self._waiting, self._fresh = self._waiting, self._fresh, {}
        self._timer = self._loop.call_later(_MOMENT, self._look) if self._waiting else None
        for descriptor, callback in due.items():
            try:
                self._readers.add_reader(descriptor, callback)
            except OSError:  # no more can be watched; it is still read at the end
                log.exception("descriptor %d cannot be watched", descriptor)
