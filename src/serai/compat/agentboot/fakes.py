"""Fake processes for tests and demonstrations: a factory that records, processes that are scripted (spec agents 5.1).

They go the same way as real ones: through pipes, framing and the stop ladder. The pipes of a `MemoryChild` are real; its program
is the code that holds the other ends.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal as signals
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from serai.agents.drivers.mock.driver import AGENT, Message
from serai.agents.session import Session
from serai.agents.turn import run_turn
from serai.compat.agentboot.errors import Killed
from serai.compat.agentboot.options import LaunchSpec
from serai.compat.agentboot.process import ProcessHandle
from serai.errors import Closed, ExitStatus, SeraiError
from serai.limits import Limits
from serai.model.events import Event, TurnEnded, TurnResult
from serai.model.surface import HeadlessSurface, Surface
from serai.wire import codec
from serai.wire.channel import Outbox
from serai.wire.descriptors import Readers, Tail
from serai.wire.process import Child, Launch

log = logging.getLogger("serai.agents")

_READ = 65536


class MemoryChild:
    """A `wire.process.Child`. The program's side: `write_output`, `write_errors`, `read_line`, `exit`.

    `deaf`: it does not heed SIGTERM. `reads`: it takes what is written to its input; otherwise the pipe fills up.
    """

    pid = 2**31 - 1  # nobody's: who signals it by its number reaches nobody
    extra: Mapping[int, int] = {}

    def __init__(self, who: str = "fake", *, limits: Limits | None = None, deaf: bool = False, reads: bool = True) -> None:
        self.who = who
        self.status: ExitStatus | None = None
        self.deaf = deaf
        self.signals: list[int] = []  # that it got
        self.received = bytearray()  # of its input
        self.input_over = asyncio.Event()
        self._limits = limits or Limits()
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[ExitStatus]] = []
        self._on_exit: list[Callable[[], None]] = []
        self._more: list[asyncio.Future[None]] = []  # who waits for its input
        self._noise: list[Tail] = []
        self._closed = False
        self._input, self.stdin = os.pipe()
        self.stdout, output = os.pipe()
        errors_read, errors = os.pipe()
        for descriptor in (self._input, self.stdin, self.stdout, output, errors_read, errors):
            os.set_blocking(descriptor, False)
        self._users: dict[int, Callable[[], None] | None] = {self.stdin: None, self.stdout: None}
        self.stderr = Tail(errors_read, self._limits.stderr_tail)
        self._output, self._errors = _Writer(output, self._limits, who), _Writer(errors, self._limits, who)
        if reads:
            self.read_input()

    # -- the program's side

    def write_output(self, data: bytes) -> None:
        """Write to its stdout; nothing happens once that is closed."""
        self._output.send(data)

    def write_errors(self, data: bytes) -> None:
        self._errors.send(data)

    def end_output(self) -> None:
        """Close its stdout when all is written. Idempotent."""
        self._output.end()

    def read_input(self) -> None:
        """From now on it takes what is written to it."""
        self._loop.add_reader(self._input, self._on_readable)

    def stop_reading(self) -> None:
        """Close its stdin, as one does that wants to hear no more. Idempotent."""
        if self._input >= 0:
            self._loop.remove_reader(self._input)
            os.close(self._input)
            self._input = -1
        self.input_over.set()

    async def read_line(self, number: int) -> bytes:
        """That line of its input, counted from 0; `EOFError` when its input ends before."""
        while self.received.count(b"\n") <= number:
            if self.input_over.is_set():
                raise EOFError(f"{self.who}: its input ended before line {number}")
            more = self._loop.create_future()
            self._more.append(more)
            await more
        return bytes(self.received).split(b"\n")[number]

    def exit(self, status: ExitStatus) -> None:
        """End; the first time counts. Its pipes stay open, as those of a process that has children of its own may."""
        if self.status is not None:
            return
        self.stderr.drain()
        self.status = status
        for future in self._waiting:
            if not future.done():
                future.set_result(status)
        for callback in self._on_exit:
            callback()
        self._on_exit.clear()

    def die(self, status: ExitStatus) -> None:
        """End, as the kernel ends a process: what it has written is there, and its pipes are closed."""
        self._output.close()
        self._errors.close()
        self.stop_reading()
        self.exit(status)

    # -- our side: a Child

    @property
    def exited(self) -> asyncio.Future[ExitStatus]:
        future: asyncio.Future[ExitStatus] = self._loop.create_future()
        if self.status is not None:
            future.set_result(self.status)
        else:
            self._waiting.append(future)
        return future

    @property
    def readers(self) -> Readers:
        return self._loop

    def on_exit(self, callback: Callable[[], None]) -> None:
        if self.status is None:
            self._on_exit.append(callback)
        else:
            self._loop.call_soon(callback)

    def close_descriptor(self, number: int) -> None:
        callback = self._users.get(number)
        if callback is not None:
            self._users[number] = None
            callback()
        if number in self._users:
            del self._users[number]
            self.stdin = -1 if number == self.stdin else self.stdin
            self.stdout = -1 if number == self.stdout else self.stdout
            os.close(number)

    def before_close(self, number: int, callback: Callable[[], None]) -> None:
        if number in self._users:
            self._users[number] = callback

    def drain_noise(self, number: int, limit: int | None = None) -> Tail:
        if number not in self._users:
            raise Closed(f"its descriptor {number} is closed", who=self.who)
        self.stdout = -1 if number == self.stdout else self.stdout
        del self._users[number]
        self._noise.append(Tail(number, limit or self._limits.noise_tail))
        return self._noise[-1]

    def signal(self, number: int, *, group: bool = False) -> None:  # noqa: ARG002
        if self.status is not None:
            return
        self.signals.append(number)
        if number == signals.SIGKILL or not self.deaf:
            self.die(ExitStatus(signal=number))

    async def kill_tree(self) -> list[int]:
        self.signal(signals.SIGKILL)
        return []

    async def close(self) -> None:
        self.signal(signals.SIGKILL)
        if self._closed:
            return
        self._closed = True
        for descriptor in list(self._users):
            self.close_descriptor(descriptor)
        self._output.close()
        self._errors.close()
        self.stop_reading()
        for tail in (self.stderr, *self._noise):
            tail.drain()
            tail.close()

    # -- inside

    def _on_readable(self) -> None:
        try:
            chunk = os.read(self._input, _READ)
        except BlockingIOError:
            return
        if chunk:
            self.received += chunk
        else:
            self.stop_reading()
        waiting, self._more = self._more, []
        for more in waiting:
            if not more.done():
                more.set_result(None)


class _Writer:
    """The program's end of one of its pipes."""

    def __init__(self, descriptor: int, limits: Limits, who: str) -> None:
        self._descriptor = descriptor
        self._who = who
        self._outbox = Outbox(descriptor, limits, who=who, on_sent=lambda _: None, on_broken=self._release, why=self._build_error)

    def send(self, data: bytes) -> None:
        if not self._outbox.closed and not self._outbox.ending:
            self._outbox.send(data)

    def end(self) -> None:
        self._outbox.end()

    def close(self) -> None:
        """What does not fit into the pipe now is lost."""
        if not self._outbox.closed:
            self._outbox.flush()
        self._release(None)

    def _release(self, _: OSError | None) -> None:
        self._outbox.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _build_error(self) -> SeraiError:
        return Closed("it has ended", who=self._who)


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
        self.child.write_output(codec.encode(data) if isinstance(data, dict) else data.encode() if isinstance(data, str) else data)

    def write_stderr(self, data: bytes | str) -> None:
        self.child.write_errors(data.encode() if isinstance(data, str) else data)

    def finish_output(self) -> None:
        """The end of its output. Idempotent."""
        self.child.end_output()

    def signal_exit(self, error: BaseException | ExitStatus | int | None = None) -> None:
        """End with this; the first one counts. Without an error it ended well. Its output is another matter."""
        if self.exit_status is None:
            self._error = error if isinstance(error, BaseException) else None
            self.child.exit(_to_status(error))

    @property
    def stdin_bytes(self) -> bytes:
        """All that was written to its input so far."""
        return bytes(self.child.received)

    async def stdin_line(self, number: int) -> bytes:
        """That line of its input, counted from 0, as soon as it is there; `EOFError` when its input ends before."""
        return await self.child.read_line(number)

    @property
    def stdin_closed(self) -> asyncio.Event:
        return self.child.input_over

    def find_error(self) -> BaseException | None:
        return self._error or super().find_error()

    def run_script(self, script: Awaitable[Any]) -> None:
        """What its program does; ended with it."""
        task = self._script = asyncio.ensure_future(script)
        task.add_done_callback(_log_failure)
        self.child.on_exit(lambda: None if task is asyncio.current_task() else _cancel(task))


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()


def _log_failure(script: asyncio.Task[Any]) -> None:
    if not script.cancelled() and (error := script.exception()) is not None and not isinstance(error, EOFError):
        log.error("the script of a fake process failed", exc_info=error)


def _to_status(error: BaseException | ExitStatus | int | None) -> ExitStatus:
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
                process.run_script(script)
        return process

    async def spawn(self, launch: Launch) -> Child:
        process = await self.start(LaunchSpec(command=list(launch.argv), env=dict(launch.env), work_dir=launch.cwd or ""))
        process.child.who = launch.who or process.child.who
        return process.child


def new_fake_factory(on_start: OnStart | None = None) -> FakeFactory:
    return FakeFactory(on_start)


NewFakeFactory = new_fake_factory


def to_seed_message(event: Event) -> Message | None:
    """The message that an event of the mock agent stands for; None: it stands for none, being part of another's."""
    native = event.result.native if isinstance(event, TurnEnded) else event.native
    if event.agent != AGENT or not isinstance(native, dict) or "type" not in native:
        return None
    return {**native, "agent_type": event.agent, "session_id": event.session, "timestamp": event.at}


def to_seed_messages(events: Iterable[Event]) -> list[Message]:
    """All of them, in order."""
    return [one for event in events if (one := to_seed_message(event)) is not None]


class MockRun(msgspec.Struct):
    """What came of a prompt in the seed's words: its messages, the error's text, and what else is known of it."""

    messages: list[Message]
    error: str = ""
    metadata: dict[str, Any] = {}
    outcome: TurnResult | None = None

    @property
    def status(self) -> str:
        """The one of the result."""
        return str(self.messages[-1].get("status", "")) if self.messages else ""


async def run_prompt(
    session: Session,
    prompt: str,
    surface: Surface | None = None,
    *,
    on_message: Callable[[Message], object] = lambda _message: None,
    on_error: Callable[[str], object] = lambda _error: None,
) -> MockRun:
    """Play a prompt to its end. `on_error` gets the text of each error: of an error step, and of a turn that failed."""
    run = MockRun([])

    def handle(event: Event) -> None:
        if isinstance(event, TurnEnded):
            run.outcome = event.result
        if (one := to_seed_message(event)) is None:
            return
        run.messages.append(one)
        on_message(one)
        if one["type"] == "error":
            on_error(one["error"])

    turn = session.turn(prompt)
    try:
        await run_turn(turn, surface or HeadlessSurface(), handle)
    except SeraiError as error:
        run.error = str(error)
        on_error(run.error)
    if run.messages:
        run.metadata = run.messages[-1].get("metadata", {})
    return run
