"""How a program ends: its host says so, is gone, or a signal comes. Whatever it is, it is told in one place and ends one wait.

A signal handler that raised could break off a frame, or be swallowed by a destructor: these only leave word.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from serai.sdk.dispatcher import Dispatcher
    from serai.sdk.stdio import Source, Writer

_TAKEN = 0.9  # seconds after a signal in which a host has to take what is still to be written
_HEARD = 0.2  # seconds after a signal in which what the host has said already is heard
_AT_EXIT = 0.2  # seconds for `atexit` functions when a handler hangs


class ProgramEnd:
    """What ends the program. The first signal decides the exit status; further ones change nothing, for the end has a deadline.

    The system may give a signal to any thread, and only the main one runs Python's handler: a pipe wakes it (`set_wakeup_fd`).
    """

    def __init__(self, writer: Writer) -> None:
        self.status = 0
        self.reason = ""  # what the reader says
        self._writer = writer
        self._wake, self._waking = os.pipe()
        self._before: dict[int, Any] = {}
        self._woken_before = -1

    def watch(self) -> None:
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, lambda number, _frame: self.signalled(number))
        except ValueError:  # not the main thread: whoever runs that decides
            return
        os.set_blocking(self._waking, False)
        self._woken_before = signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)

    def signalled(self, number: int) -> None:
        self.status = self.status or 128 + number
        self._writer.give_up_by(monotonic() + _TAKEN)

    def tell(self, reason: str) -> None:
        """The reader has come to an end; from its thread."""
        self.reason = reason
        os.write(self._waking, b"\0")

    def wait(self, serving: Dispatcher) -> str:
        """Until there is something; "signal", or what the reader said."""
        while not (self.reason or self.status):
            os.read(self._wake, 64)
        deadline = monotonic() + _HEARD
        while not self.reason and serving.is_hearing and (left := deadline - monotonic()) > 0:
            select.select([self._wake], [], [], min(left, _HEARD / 10))
        return self.reason or "signal"

    def restore(self) -> None:
        if self._before:
            signal.set_wakeup_fd(self._woken_before)
        for number, before in self._before.items():
            signal.signal(number, before)


def serve(serving: Dispatcher, reading: Source, ending: ProgramEnd) -> None:
    """Until the end; then the program goes on, or leaves with a status."""
    from threading import Thread

    Thread(target=lambda: ending.tell(_read(serving, reading)), name="reader", daemon=True).start()
    serving.begin()
    if ending.wait(serving) == "goodbye":
        serving.farewell()
    ended = serving.leave(_grace(ending))
    ending.restore()
    status = ending.status or int(ending.reason == "broken")
    if not ended:
        _leave_now(status)
    if status:
        sys.exit(status)


async def serve_on_loop(serving: Dispatcher, reading: Source, ending: ProgramEnd) -> None:
    """The same on a loop that is somebody else's. A status is raised as `SystemExit`."""
    import asyncio
    from threading import Thread

    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def tell(reason: str) -> None:
        if not over.done():
            over.set_result(reason)

    def on_signal() -> None:
        ending.signalled(signal.SIGTERM)
        tell("signal")

    def read() -> None:
        reason = _read(serving, reading)
        try:
            loop.call_soon_threadsafe(tell, reason)
        except RuntimeError:  # it is closed: nobody waits any more
            pass

    before = signal.getsignal(signal.SIGTERM)
    try:
        loop.add_signal_handler(signal.SIGTERM, on_signal)
    except (NotImplementedError, RuntimeError, ValueError):  # not the main thread
        before = None
    serving.begin(loop)
    Thread(target=read, name="reader", daemon=True).start()
    reason = ""
    try:
        reason = await over
        if reason == "goodbye":
            await _elsewhere(serving.farewell)
    finally:
        await _elsewhere(lambda: serving.leave(_grace(ending)))
        if before is not None:
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, before)
    if status := ending.status or int(reason == "broken"):
        raise SystemExit(status)


def _grace(ending: ProgramEnd) -> float:
    from serai.sdk.dispatcher import GRACE, SHORT_GRACE

    return SHORT_GRACE if ending.status else GRACE


def _read(serving: Dispatcher, reading: Source) -> str:
    try:
        return "goodbye" if serving.read(reading) else "gone"
    except BaseException:  # our own defect: told, and the end all the same
        import traceback

        traceback.print_exc()
        return "broken"


def _elsewhere(act: Any) -> Awaitable[None]:
    """On a thread of its own: those of the loop may all be busy."""
    import asyncio
    from threading import Thread

    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def tell() -> None:
        if not done.done():
            done.set_result(None)

    def run() -> None:
        act()
        loop.call_soon_threadsafe(tell)

    Thread(target=run, name="leaving", daemon=True).start()
    return asyncio.shield(done)


def _leave_now(status: int) -> None:
    """A handler that ignores its end runs on a thread, which at Python's own end may hold a lock of stderr: no waiting for that."""
    import atexit
    from threading import Thread

    last = Thread(target=atexit._run_exitfuncs, name="at exit", daemon=True)
    last.start()
    last.join(_AT_EXIT)
    os._exit(status)
