"""Who wants a run to end, and how: a signal, the time, a reader that has left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from serai.cli.opening import Status

if TYPE_CHECKING:
    from serai.app.app import App

__all__ = ["WORDS", "Ending"]

_FLUSH = 0.2  # seconds for the recording, when all has to end at once
WORDS: Final = {
    signal.SIGINT: "interrupted (Ctrl-C)",
    signal.SIGTERM: "terminated (SIGTERM)",
    signal.SIGHUP: "its terminal is gone (SIGHUP)",
}


class Ending:
    """Who wants the run to end, and how. The first signal is a polite word, the second one is none."""

    def __init__(self) -> None:
        self.reason = ""
        self.status: Status | None = None
        self.lost = False  # its output takes no more, and that is why it ends
        self.over = asyncio.Event()
        self._signalled = False
        self._cancelled = False
        self._app: App | None = None
        self._main: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, app: App) -> None:
        """It is open: from now on it is asked to end."""
        self._app = app
        if self.status is not None:
            app.quit()

    def now(self, reason: str, status: Status) -> None:
        if self.status is None:
            self.reason, self.status = reason, status
        self.over.set()
        if self._app is not None:
            self._app.quit()
        elif self._main is not None and not self._cancelled:  # still being opened
            self._cancelled = True
            self._main.cancel()

    def takes_back_cancelling(self) -> bool:
        """Whether it was us who cancelled the run, which then is not cancelled any more."""
        if self._cancelled and self._main is not None:
            self._main.uncancel()
        return self._cancelled

    @contextmanager
    def after(self, seconds: float | None) -> Iterator[None]:
        """The run ends when so much time is over; what closing it takes is not counted."""
        if seconds is not None:
            reason = f"it took longer than {seconds:g} s (--timeout)"
            self._timer = asyncio.get_running_loop().call_later(seconds, self.now, reason, Status.UNAVAILABLE)
        try:
            yield
        finally:
            self.in_time()

    def in_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """The first is told to the loop, the second needs none: one that stands still must not keep anybody from ending it.

        A signal that was ignored stays so (`nohup`).
        """
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def came(number: int, _frame: object) -> None:
            which = signal.Signals(number)
            if self._signalled:
                self._stop(which)
            self._signalled = True
            loop.call_soon_threadsafe(self.now, WORDS[which], Status(128 + number))

        before = {number: handler for number in WORDS if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
        for number in before:
            signal.signal(number, came)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: signal.Signals) -> None:
        """At once, by the signal itself, as a shell expects. The watchdog ends what we started, and the session is on disk."""
        if self._app is not None and (recorder := self._app.house.recorder) is not None:
            flushing = Thread(target=recorder.flush, daemon=True)  # whom we have interrupted may hold its lock
            flushing.start()
            flushing.join(_FLUSH)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
