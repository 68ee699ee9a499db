"""An event loop of our own, on a thread: for the async handlers of a program that has none."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from threading import enumerate as enumerate_threads
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serai.sdk.remarks import Remarks

__all__ = ["OwnLoop"]

_LEAST = 0.05  # seconds for a loop that has nothing to do any more
_NAME = "serai.sdk asyncio"


class OwnLoop:
    """It runs from the start, and whatever a task raises it runs on until it is stopped."""

    def __init__(self, remarks: Remarks) -> None:
        self.loop = asyncio.new_event_loop()
        self._remarks = remarks
        self._stopping = False
        self._deadline = 0.0
        self._executor = ThreadPoolExecutor(thread_name_prefix=_NAME)  # ours, to let its threads go
        self.loop.set_default_executor(self._executor)
        self._thread = Thread(target=self._run, name="async handlers", daemon=True)
        self._thread.start()

    def stop(self, deadline: float) -> bool:
        """Cancel what handlers have left running on it and give that its moment; whether all of it ended."""
        self._stopping, self._deadline = True, deadline
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._executor.shutdown(wait=False, cancel_futures=True)
        ours = [self._thread, *(thread for thread in enumerate_threads() if thread.name.startswith(_NAME))]
        for thread in ours:  # Python's own end would wait for those of the executor
            thread.join(max(deadline - monotonic(), _LEAST))
        return not any(thread.is_alive() for thread in ours)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.loop.run_forever()
            except BaseException as error:  # a stray task wanted the program's exit: that is not its decision
                self._remarks.trace("a task of a handler raised", error)
        try:
            if tasks := asyncio.all_tasks(self.loop):
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=max(self._deadline - monotonic(), _LEAST)))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        except BaseException as error:
            self._remarks.trace("a task of a handler raised", error)
        self.loop.close()
