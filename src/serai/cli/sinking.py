"""Where the text of a run goes: to a terminal at once, else some of it together, and never at the cost of the loop.

A pipe that nobody reads and a terminal that is held up (Ctrl-S) must not keep guests, time-outs and Ctrl-C from being heard. So
both are opened once more, without blocking, which concerns nobody else who has them; what they do not take waits, and whoever
speaks is told to wait with it (`behind`, `room`).
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections.abc import Callable
from typing import TextIO

from serai.limits import KIB

__all__ = ["Lost", "Sink"]

_ROOM = 4 * KIB  # characters that wait to be written together
_BEHIND = 256 * KIB  # bytes that wait for whoever reads: then the agent does too
_PIECE = 64 * KIB  # bytes of one write

Lost = Callable[[OSError], None]


class Sink:
    """One of stdout and stderr. `lost` is told once when it takes no more."""

    def __init__(self, file: TextIO, lost: Lost | None = None) -> None:
        self.tty = file.isatty()
        self.failed: OSError | None = None
        self._file = file
        self._lost = lost
        self._texts: list[str] = []
        self._size = 0
        self._held = False
        self._ticking = False
        self._descriptor = _reopened(file)  # -1: it is written as it is, and may block
        self._bytes = bytearray()  # what the descriptor has not taken yet
        self._loop: asyncio.AbstractEventLoop | None = None  # that tells us when it takes more
        self._waiters: list[asyncio.Future[None]] = []

    def write(self, text: str) -> None:
        self._texts.append(text)
        self._size += len(text)
        if self.tty or self._size >= _ROOM or "\n" in text:
            self.flush()
        elif not self._ticking:
            self._flush_soon()

    def flush(self) -> None:
        if self._held or not self._texts:
            return
        text = "".join(self._texts)
        self._texts.clear()
        self._size = 0
        if self.failed is not None:
            return
        try:
            if self._descriptor < 0:
                self._file.write(text)
                self._file.flush()
            else:
                self._bytes += text.encode(self._file.encoding or "utf-8", self._file.errors or "strict")
                self._push()
        except OSError as error:  # whoever read has read enough, or the disk is full
            self._fail(error)

    def hold(self) -> None:
        """A terminal gets nothing for now."""
        self.flush()
        self._held = self.tty

    def release(self) -> None:
        self._held = False
        self.flush()

    # -- who is slow

    @property
    def behind(self) -> bool:
        return len(self._bytes) > _BEHIND

    async def room(self) -> None:
        """Until it has taken most of it."""
        while self.behind and self.failed is None:
            await self._more()

    async def drained(self) -> None:
        """Until it has taken all of it."""
        self.flush()
        while self._bytes and self.failed is None:
            await self._more()

    def forget(self) -> None:
        """Nobody waits any longer for what it has not taken."""
        self._texts.clear()
        self._bytes.clear()

    def close(self) -> None:
        """What it has not taken by now is waited for, by everybody."""
        self._unwatch()
        while self._bytes and self.failed is None:
            select.select([], [self._descriptor], [])
            self._push()
            self._unwatch()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    # -- inside

    async def _more(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _push(self) -> None:
        try:
            while self._bytes:
                with memoryview(self._bytes) as view:
                    written = os.write(self._descriptor, view[:_PIECE])
                del self._bytes[:written]
        except BlockingIOError:
            self._watch()
        except OSError as error:
            self._fail(error)
        else:
            self._unwatch()
        if not self.behind:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _watch(self) -> None:
        if self._loop is not None:
            return
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # nobody else waits for us
            select.select([], [self._descriptor], [])
            self._push()
        else:
            self._loop.add_writer(self._descriptor, self._push)

    def _unwatch(self) -> None:
        if self._loop is not None:
            self._loop.remove_writer(self._descriptor)
            self._loop = None

    def _fail(self, error: OSError) -> None:
        self._unwatch()
        self._bytes.clear()
        if self.failed is None:
            self.failed = error
            if self._lost is not None:
                self._lost(error)

    def _flush_soon(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        self._ticking = True
        loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self.flush()


def _reopened(file: TextIO) -> int:
    """The same pipe or terminal with a description of its own, that does not block; -1 for what never does, or cannot be had so."""
    try:
        file.flush()
        descriptor = file.fileno()
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode) or os.isatty(descriptor):
            return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):  # a file in memory; a pipe of somebody else's; a reader that is gone
        pass
    return -1
