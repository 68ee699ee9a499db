"""Processes that are none, for tests and demonstrations: a factory that records, processes that are scripted (spec agents 5.1).

They go the very way that real ones do: through pipes, framing and the stop ladder.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from serai.agents.agentboot.errors import Killed
from serai.agents.agentboot.memory_child import MemoryChild
from serai.agents.agentboot.options import LaunchSpec
from serai.agents.agentboot.process import ProcessHandle
from serai.errors import ExitStatus
from serai.limits import Limits
from serai.wire import codec
from serai.wire.process import Child, Launch

__all__ = ["FakeFactory", "FakeProcess", "NewFakeFactory", "new_fake_factory"]

log = logging.getLogger("serai.agents")


class FakeProcess(ProcessHandle):
    """A process whose program is the test."""

    child: MemoryChild

    def __init__(self, *, who: str = "fake", limits: Limits | None = None, deaf: bool = False, reads: bool = True) -> None:
        """`deaf`: it does not heed SIGTERM; `reads` False: it does not take its input."""
        super().__init__(MemoryChild(who, limits=limits, deaf=deaf, reads=reads), limits=limits)
        self._error: BaseException | None = None
        self._script: asyncio.Task[Any] | None = None

    def write_output(self, data: bytes | str | dict[str, Any]) -> None:
        """Bytes or a text as they are, an object as one line of JSON."""
        self.child.output(codec.encode(data) if isinstance(data, dict) else data.encode() if isinstance(data, str) else data)

    def write_stderr(self, data: bytes | str) -> None:
        self.child.errors(data.encode() if isinstance(data, str) else data)

    def finish_output(self) -> None:
        """The end of its output. Idempotent."""
        self.child.end_output()

    def signal_exit(self, error: BaseException | ExitStatus | int | None = None) -> None:
        """End with this; the first one counts. Without an error it ended well. Its output is another matter."""
        if self.exit_status is None:
            self._error = error if isinstance(error, BaseException) else None
            self.child.exit(_status(error))

    @property
    def stdin_bytes(self) -> bytes:
        """All that was written to its input so far."""
        return bytes(self.child.received)

    async def stdin_line(self, number: int) -> bytes:
        """That line of its input, counted from 0, as soon as it is there; `EOFError` when its input ends before."""
        return await self.child.line(number)

    @property
    def stdin_closed(self) -> asyncio.Event:
        return self.child.input_over

    def error(self) -> BaseException | None:
        return self._error or super().error()

    def plays(self, script: Awaitable[Any]) -> None:
        """What its program does; ended with it."""
        task = self._script = asyncio.ensure_future(script)
        task.add_done_callback(_told)
        self.child.on_exit(lambda: None if task is asyncio.current_task() else _cancel(task))


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()


def _told(script: asyncio.Task[Any]) -> None:
    if not script.cancelled() and (error := script.exception()) is not None and not isinstance(error, EOFError):
        log.error("the script of a fake process failed", exc_info=error)


def _status(error: BaseException | ExitStatus | int | None) -> ExitStatus:
    match error:
        case ExitStatus():
            return error
        case int():
            return ExitStatus(code=error)
        case None:
            return ExitStatus(code=0)
        case Killed():
            return ExitStatus(signal=9)
        case _:
            return ExitStatus(code=max(getattr(error, "exit_code", 1), 1))


OnStart = Callable[[LaunchSpec, FakeProcess], object]


class FakeFactory:
    """Starts fake processes and remembers what it was asked to start. As a spawner it serves every driver of Serai's own."""

    def __init__(
        self, on_start: OnStart | None = None, *, limits: Limits | None = None, deaf: bool = False, reads: bool = True
    ) -> None:
        """`on_start` gets the spec and the process; what it returns, if it can be awaited, is what the process does."""
        self.specs: list[LaunchSpec] = []
        self.processes: list[FakeProcess] = []
        self._on_start = on_start
        self._limits = limits
        self._deaf = deaf
        self._reads = reads

    async def start(self, spec: LaunchSpec) -> FakeProcess:
        self.specs.append(spec)
        process = FakeProcess(limits=self._limits, deaf=self._deaf, reads=self._reads)
        self.processes.append(process)
        if self._on_start is not None:
            try:
                script = self._on_start(spec, process)
            except BaseException:
                await process.close()
                raise
            if inspect.isawaitable(script):
                process.plays(script)
        return process

    async def spawn(self, launch: Launch) -> Child:
        process = await self.start(LaunchSpec(command=list(launch.argv), env=dict(launch.env), work_dir=launch.cwd or ""))
        process.child.who = launch.who or process.child.who
        return process.child


def new_fake_factory(on_start: OnStart | None = None) -> FakeFactory:
    return FakeFactory(on_start)


NewFakeFactory = new_fake_factory
