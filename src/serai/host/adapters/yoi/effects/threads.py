"""Threads for what may hang: a disk that does not answer, a name lookup that takes minutes.

They are not the loop's own, which the whole process shares and waits for at its end. A caller that gives up leaves its thread
behind, and a plugin that leaves too many behind is refused instead of given more.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from serai.dialects.yoi.host_api import HostCallDenied

T = TypeVar("T")


class ThreadCaller:
    """Who waits for the work; the work looks here before it does what cannot be undone."""

    def __init__(self) -> None:
        self.gone = False
        self.timer: asyncio.TimerHandle | None = None

    def leave(self, _: object = None) -> None:
        self.gone = True
        if self.timer is not None:
            self.timer.cancel()


class BoundedThreads:
    """At most `most` threads, made when needed and used again."""

    def __init__(self, name: str, most: int = 4) -> None:
        self._name = name
        self._most = most
        self._count = 0
        self._idle: list[SimpleQueue[Callable[[], None] | None]] = []
        self._closed = False

    def submit(self, work: Callable[[ThreadCaller], T], within: float | None = None, late: str = "") -> asyncio.Future[T]:
        """The work's result, or `HostCallDenied` with `late`. Who cancels it goes at once; the thread comes back when it can."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        asker = ThreadCaller()
        hand = self._take_thread()

        def finish(result: Any, error: BaseException | None) -> None:
            self._return_thread(hand)
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def run() -> None:
            result, error = None, None
            try:
                result = work(asker)
            except BaseException as caught:  # it is the asker's
                error = caught
            loop.call_soon_threadsafe(finish, result, error)

        future.add_done_callback(asker.leave)
        if within is not None:
            asker.timer = loop.call_later(within, _expire, future, late)
        hand.put(run)
        return future

    def _take_thread(self) -> SimpleQueue[Callable[[], None] | None]:
        if self._idle:
            return self._idle.pop()
        if self._closed or self._count >= self._most:
            raise HostCallDenied(f"{self._name} is busy: {self._count} earlier calls have not come back")
        hand: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._count += 1
        threading.Thread(target=_serve, args=(hand,), name=f"serai-{self._name}", daemon=True).start()
        return hand

    def _return_thread(self, hand: SimpleQueue[Callable[[], None] | None]) -> None:
        if self._closed:
            hand.put(None)
        else:
            self._idle.append(hand)

    def close(self) -> None:
        """The idle ones end now, the others after what they do."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)


def _expire(future: asyncio.Future[Any], why: str) -> None:
    if not future.done():
        future.set_exception(HostCallDenied(why))


def _serve(hand: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := hand.get()) is not None:
        try:
            job()
        except RuntimeError:  # the loop is closed: nobody waits any more
            return
