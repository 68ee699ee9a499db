"""The process of an agent as the seed sees it: a factory that starts it, a handle to feed, read and end it (spec agents 1.5).

There is one way to start a process (design rule 2): a handle is a `wire.process.Child` in the seed's words.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from serai.compat.agentboot.errors import InvalidLaunch, process_error
from serai.compat.agentboot.options import LaunchSpec
from serai.errors import ExitStatus, PeerGone, SeraiError
from serai.limits import Limits
from serai.wire.channel import Outbox
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Child, Launch, Spawner, StopResult, stop_child

log = logging.getLogger("serai.agents")

_READ = 65536
_AHEAD = 16 * _READ  # read and not taken; then its writer waits


class ProcessHandle:
    """A process that runs or ran. `child` is the same for whoever puts a channel on it; then nobody else reads or writes here."""

    def __init__(self, child: Child, *, limits: Limits | None = None, gone: Callable[[], Awaitable[None]] | None = None) -> None:
        """`gone` is awaited when it is closed."""
        self.child = child
        self.limits = limits or Limits()
        self.done = asyncio.Event()
        self._gone = gone
        self._output: Output | None = None
        self._input: Outbox | None = None
        child.on_exit(self.done.set)

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def exit_status(self) -> ExitStatus | None:
        """A code or a signal; None while it runs."""
        return self.child.status

    @property
    def stderr(self) -> str:
        """The last of what it wrote there."""
        return self.child.stderr.text()

    def on_stderr_line(self, listener: Callable[[str], None]) -> None:
        """Have every line of its stderr told from now on. One that never ends is told in pieces."""
        rest = bytearray()

        def on_chunk(chunk: bytes) -> None:
            rest.extend(chunk)
            *lines, last = bytes(rest).split(b"\n")
            if len(last) > self.limits.stderr_tail:
                lines, last = [*lines, last], b""
            rest[:] = last
            for line in lines:
                listener(line.decode(errors="replace").rstrip("\r"))

        self.child.stderr.on_chunk = on_chunk

    # -- its streams

    @property
    def stdout(self) -> Output:
        """Its output as bytes, to be iterated or read whole."""
        self._output = self._output or Output(self.child, self.limits)
        return self._output

    async def write(self, data: bytes) -> None:
        """To its input; returns when the kernel has it."""
        outbox = self._get_input()
        outbox.send(data)
        await outbox.drain()

    def close_stdin(self) -> None:
        """The end of its input, once everything is written. Idempotent."""
        self._get_input().end()

    def _get_input(self) -> Outbox:
        if self._input is None:
            descriptor, child = self.child.stdin, self.child

            def on_broken(_: OSError | None) -> None:
                assert self._input is not None
                self._input.close()
                child.close_descriptor(descriptor)

            self._input = Outbox(
                descriptor, self.limits, who=child.who, on_sent=lambda _: None, on_broken=on_broken, why=self._build_closed_error
            )
            child.before_close(descriptor, self._input.close)
        return self._input

    def _build_closed_error(self) -> SeraiError:
        return PeerGone("its input is closed", who=self.child.who, exit=self.exit_status, stderr=self.stderr)

    # -- its end

    async def wait(self) -> None:
        """Until it has ended; raises `ProcessError` unless it ended well."""
        await self.child.exited
        if (error := self.find_error()) is not None:
            raise error

    def find_error(self) -> BaseException | None:
        """What `wait` raises of a process that has ended."""
        status = self.exit_status
        return None if status is None or status.ok else process_error(self.child.who, status, self.stderr)

    def terminate(self) -> None:
        """Ask it to end. Nothing happens after its end."""
        self.child.signal(signal.SIGTERM, group=True)

    def kill(self) -> None:
        """End it at once. Idempotent; nothing happens after its end."""
        self.child.signal(signal.SIGKILL, group=True)

    async def stop(self, limits: Limits | None = None) -> StopResult:
        """Close its input, wait, ask, and end it with everything it started; then nothing is left (spec agents 2.13)."""
        stopped = await stop_child(self.child, limits or self.limits)
        if self._gone is not None:
            await self._gone()
        return stopped

    async def close(self) -> None:
        """End it with everything it started, now. Idempotent."""
        await self.child.close()
        if self._gone is not None:
            await self._gone()


class Output:
    """What a process writes to its stdout, as bytes. A reader that is behind makes it wait.

    A grandchild may hold the pipe open for ever: it ends at most `drain_grace` after the process (spec agents 7.10).
    """

    def __init__(self, child: Child, limits: Limits) -> None:
        self._child = child
        self._descriptor = child.stdout
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[bytes] = deque()
        self._waiting = 0  # bytes
        self._reading = False
        self._over = self._descriptor < 0
        self._grace: asyncio.TimerHandle | None = None
        self._reader: asyncio.Future[None] | None = None
        if not self._over:
            self._start_reading()
            child.before_close(self._descriptor, self._finish)
            child.on_exit(lambda: self._on_exit(limits.drain_grace))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self._over:
                raise StopAsyncIteration
            self._reader = self._loop.create_future()
            await self._reader
        chunk = self._chunks.popleft()
        self._waiting -= len(chunk)
        self._start_reading()
        return chunk

    async def read(self) -> bytes:
        """All of it."""
        return b"".join([chunk async for chunk in self])

    def _read_chunk(self) -> bool:
        try:
            chunk = os.read(self._descriptor, _READ)
        except BlockingIOError:
            return False
        except OSError as error:
            log.debug("%s: reading: %s", self._child.who, error)
            chunk = b""
        if not chunk:
            self._end()
            return False
        self._chunks.append(chunk)
        self._waiting += len(chunk)
        self._wake()
        if self._waiting >= _AHEAD:
            self._stop_reading()
        return True

    def _start_reading(self) -> None:
        if not self._over and not self._reading and self._waiting < _AHEAD:
            self._reading = True
            self._child.readers.add_reader(self._descriptor, self._read_chunk)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._child.readers.remove_reader(self._descriptor)

    def _on_exit(self, grace: float) -> None:
        if not self._over:
            self._grace = self._loop.call_later(grace, self._finish)

    def _finish(self) -> None:
        """What is in the pipe is all that counts."""
        most = self._waiting + _AHEAD  # a pipe holds no more; somebody may write without end
        while not self._over and self._waiting < most and self._read_chunk():
            pass
        self._end()

    def _end(self) -> None:
        self._stop_reading()
        self._over = True
        if self._grace is not None:
            self._grace.cancel()
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Factory(Protocol):
    """Starts the process of a launch spec. What cannot be started fails here and not later."""

    async def start(self, spec: LaunchSpec) -> ProcessHandle: ...


class OsFactory:
    """Starts real processes, through a spawner that is given or, for each process, one of its own."""

    def __init__(self, spawner: Spawner | None = None, *, limits: Limits | None = None) -> None:
        self._spawner = spawner
        self._limits = limits or Limits()

    async def start(self, spec: LaunchSpec) -> ProcessHandle:
        launch = Launch(argv=spec.command, env=parse_environment(spec.env), cwd=spec.work_dir or None)
        if self._spawner is not None:
            return ProcessHandle(await self._spawner.spawn(launch), limits=self._limits)
        spawner = PlainSpawner(self._limits)
        try:
            child = await spawner.spawn(launch)
        except BaseException:
            await spawner.close()
            raise
        return ProcessHandle(child, limits=self._limits, gone=spawner.close)


def parse_environment(given: Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    """The environment of a launch spec; of two entries with one name the later counts, as with the seed's."""
    if given is None:
        return dict(os.environ)
    if isinstance(given, Mapping):
        return dict(given)
    entries = [entry.partition("=") for entry in given]
    if wrong := next((name for name, equals, _ in entries if not equals or not name), None):
        raise InvalidLaunch(f"an entry of its environment is no NAME=value: {wrong}")
    return {name: value for name, _, value in entries}
