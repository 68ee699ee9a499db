"""The threads that work on files: a slow disk must not stop the loop, nor those who need threads for something else."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["GivenUp", "Threads", "Wanted"]

log = logging.getLogger("serai.tools")

_THREADS = 4

T = TypeVar("T")


class GivenUp(Exception):
    """Nobody waits for this work any more."""


class Wanted:
    """Whether somebody still waits for a call. Whoever works on it in a thread looks between its steps."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def end(self) -> None:
        self._over.set()

    def check(self) -> None:
        """`GivenUp` when nobody does."""
        if self._over.is_set():
            raise GivenUp


class Threads:
    """The threads of one box of tools. None of them ever waits for another: who has to wait does so in the loop."""

    def __init__(self, patience: float) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "serai-tools")
        self._patience = patience  # seconds, with work that was given up
        self._changing = asyncio.Lock()  # one change of a file at a time: each looks, then replaces

    async def look(self, work: Callable[[], T], wanted: Wanted) -> T:
        """Work that changes nothing. When this is cancelled, it is left to itself and ends at its next look."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except asyncio.CancelledError:
            wanted.end()
            raise

    async def change(self, work: Callable[[], T], wanted: Wanted) -> T:
        """Work that changes a file. When this is cancelled and it has not begun, it never does; what has begun is waited for."""
        await self._changing.acquire()
        begun = self._pool.submit(work)
        done = asyncio.wrap_future(begun)
        done.add_done_callback(lambda _: self._changing.release())  # not before, even when nobody waits for it any more
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            wanted.end()
            if not begun.cancel():
                await asyncio.wait([done], timeout=self._patience)
                if not done.done():
                    log.error("a change of a file does not end: the disk does not answer")
            raise
