"""Threads for work that must not delay the read loop, an event loop on a thread for async handlers, and alarms for time limits.

A `PendingAnswer` is one request on its way to its one answer.
"""

from __future__ import annotations

import asyncio
from _queue import SimpleQueue
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from threading import Condition, Thread
from threading import enumerate as enumerate_threads
from time import monotonic
from typing import ClassVar

from serai.sdk import answers
from serai.sdk.adapters import Adapter
from serai.sdk.answers import ToolError
from serai.sdk.current_call import Call
from serai.sdk.stdio import StderrLog

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
            if self._free <= -_WAITING or (self._free <= 0 and self._threads < self._most and not self._start_thread()):
                return False
            self._free -= 1
        self._jobs.put(job)
        return True

    def drain(self, deadline: float) -> bool:
        """Wait until all is done, but no longer than that; whether it is."""
        with self._changed:
            while self._free < self._threads:
                left = deadline - monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def _start_thread(self) -> bool:
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

    def call_later(self, seconds: float, act: Callable[[], None]) -> None:
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


_LEAST = 0.05  # seconds for a loop that has nothing to do any more
_NAME = "serai.sdk asyncio"


class HandlerLoop:
    """It runs from the start, and whatever a task raises it runs on until it is stopped."""

    def __init__(self, remarks: StderrLog) -> None:
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


class PendingAnswer(ABC):
    """What its handler returns is settled, what it raises fails it; `answer` sends the frame if no other went before."""

    kind: ClassVar[str]

    def __init__(
        self, id: str, name: str, adapter: Adapter, remarks: StderrLog, answer: Callable[[PendingAnswer, bytes], None]
    ) -> None:
        self.id, self.name = id, name
        self.call = Call(id, name)
        self.claimed = False  # an answer is on its way
        self.adapter, self._remarks, self._answer = adapter, remarks, answer

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @abstractmethod
    def encode_value(self, value: object) -> bytes:
        """The answer when its handler returned this; raises when that is none."""

    @abstractmethod
    def encode_error(self, error: BaseException) -> bytes:
        """The answer when it raised this."""

    def settle(self, value: object) -> None:
        try:
            frame = self._check_size(self.encode_value(value))
        except BaseException as error:  # also what a value's own methods raise
            self.fail(error)
        else:
            self._answer(self, frame)

    def fail(self, error: BaseException) -> None:
        if not (self.claimed or isinstance(error, ToolError) or answers.was_cancelled(error)):
            self._remarks.trace(f"{self} failed", error)
        try:
            frame = self._check_size(self.encode_error(error))
        except BaseException:  # its text cannot be told, or is too long to be told
            frame = self.encode_error(ToolError(f"{self} failed, and its error cannot be told"))
        self._answer(self, frame)

    def expire(self, seconds: float) -> None:
        """Its time is over, however its handler does."""
        if not self.claimed:
            self.fail(ToolError(f"{self} took longer than {seconds:g} seconds and was given up"))
            self.call.cancel()

    def _check_size(self, frame: bytes) -> bytes:
        most = self.adapter.max_line
        if len(frame) > most and max(map(len, frame.split(b"\n"))) >= most:  # an answer may be several lines
            text = f"the answer has {len(frame)} bytes, and {self.adapter.dialect} carries {most}"
            raise ToolError(f"{text}: ask for less, or write it into a file")
        return frame


class ToolAnswer(PendingAnswer):
    kind = "tool"

    def encode_value(self, value: object) -> bytes:
        return self.adapter.encode_tool_result(self.id, answers.to_tool_result(value))

    def encode_error(self, error: BaseException) -> bytes:
        return self.adapter.encode_tool_result(self.id, answers.build_error_result(error, self.name))


class CommandAnswer(PendingAnswer):
    kind = "command"

    def encode_value(self, value: object) -> bytes:
        return self.adapter.encode_command_answer(self.id, answers.to_answer(value))

    def encode_error(self, error: BaseException) -> bytes:
        return self.adapter.encode_command_answer(self.id, answers.build_error_answer(error, self.name))


class InterceptAnswer(PendingAnswer):
    kind = "question"

    def encode_value(self, value: object) -> bytes:
        return self.adapter.encode_verdict(self.id, answers.to_verdict(value, self.name))

    def encode_error(self, error: BaseException) -> bytes:
        return self.adapter.encode_verdict(self.id, answers.build_error_verdict(error, self.name))


KINDS: dict[str, type[PendingAnswer]] = {work.kind: work for work in (ToolAnswer, CommandAnswer, InterceptAnswer)}
