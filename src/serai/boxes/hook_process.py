"""One run of a hook's program: its request in, its answer in a file, its end (spec hooks 1.1, 1.11, 1.12).

The answer goes to a file and not through a pipe, because it must outlive us: a hook may have minted a credential, and the process
that recovers after a killed manager finds its state there and has it revoked.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from fcntl import F_RDLCK, F_SETLEASE, F_SETSIG, fcntl
from signal import SIGTERM, SIGURG
from time import monotonic
from typing import Literal, NamedTuple

from serai.errors import ExitStatus
from serai.limits import BoxLimits
from serai.wire.process import Child, Launch, Spawner

# How often a running hook's output and time are looked at, and how often it is looked whether the last writer is gone; seconds.
_LOOK = 0.02
_SOON = 0.004
_SHORT = 4096

How = Literal["ended", "late", "too much"]


class HookExit(NamedTuple):
    """How a run ended: by itself, or by us because it took too long or printed too much."""

    how: How
    status: ExitStatus | None
    stderr: str
    size: int  # of its answer

    @property
    def ok(self) -> bool:
        return self.how == "ended" and self.status is not None and self.status.ok


class AnswerFile:
    """The file that a hook gets as its stdout. `writer` is what it inherits; afterwards only `reader` is kept."""

    def __init__(self, writer: int, path: str = "") -> None:
        self.path = path
        self.writer = writer
        try:
            # As a file of its own: its writers are counted by the kernel, and a lease needs one that only reads.
            self._reader = os.open(f"/proc/self/fd/{writer}", os.O_RDONLY | os.O_CLOEXEC)
            # Should somebody open the file just then, the kernel tells us by a signal; by default it would be a deadly one.
            fcntl(self._reader, F_SETSIG, SIGURG)
        except OSError:
            os.close(writer)
            raise

    @classmethod
    def create(cls, path: str) -> AnswerFile:
        """A new file that only we can read. One that is there already may hold a state: `FileExistsError`."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND | os.O_CLOEXEC
        return cls(os.open(path, flags, 0o600), path)

    @classmethod
    def create_in_memory(cls) -> AnswerFile:
        """For an answer that need not outlive us."""
        memory = os.memfd_create("answer")
        try:
            # Opened again, because the kernel does not count the first descriptor among the writers.
            return cls(os.open(f"/proc/self/fd/{memory}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
        finally:
            os.close(memory)

    def close_writer(self) -> None:
        """The hook has its own: ours would count as a writer."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    @property
    def size(self) -> int:
        return os.fstat(self._reader).st_size

    def read(self) -> bytes:
        """All of it; most are short."""
        start = os.pread(self._reader, _SHORT, 0)
        return start if len(start) < _SHORT else start + os.pread(self._reader, self.size - _SHORT, _SHORT)

    def has_writers(self, child: Child) -> bool:
        """Whether anybody may still write it. On a filesystem without leases: who holds stdout mostly holds stderr too."""
        written = _is_written(self._reader)
        return not child.stderr.closed if written is None else written

    @property
    def is_disk_full(self) -> bool:
        """Whether there is no room left for it: then it may not be all that the hook said."""
        room = os.fstatvfs(self._reader)
        return room.f_blocks > 0 and room.f_bavail == 0

    def remove(self) -> None:
        """Nobody needs it any more."""
        try:
            if self.path:
                os.unlink(self.path)
        except FileNotFoundError:
            pass  # the hook did it: it can see where its stdout goes

    def close(self) -> None:
        self.close_writer()
        os.close(self._reader)


async def read_left_answer(path: str, limits: BoxLimits) -> bytes:
    """What a hook wrote to a file that nobody removed; nothing when it is none of ours or too long.

    The hook of a manager that was killed a moment ago may still be there, and its watchdog about to end it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        end = monotonic() + limits.stop_kill
        while _is_written(descriptor) and monotonic() < end:  # noqa: ASYNC110  (the kernel tells nobody)
            await asyncio.sleep(_SOON)
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, size, 0) if size <= limits.hook_max_output else b""
    finally:
        os.close(descriptor)


def _is_written(reader: int) -> bool | None:
    """Whether anybody has the file open for writing: a read lease is refused then. None where there are no leases."""
    try:
        fcntl(reader, F_SETLEASE, F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False  # the lease goes with the descriptor


async def run_hook(
    spawner: Spawner, launch: Launch, request: bytes, answer: AnswerFile, limits: BoxLimits, *, started: Callable[[int], None]
) -> HookExit:
    """Run a hook to its end; nothing of its tree is left then. `SpawnFailed` when it cannot be started.

    `started` is told its pid. Whoever cancels this kills the hook.
    """
    child = await spawner.spawn(launch)
    try:
        answer.close_writer()
        started(child.pid)
        _Feed(child, request)
        how = await _Watch(child, answer, limits.hook_timeout, limits.hook_max_output).wait()
        if how == "late":
            child.signal(SIGTERM, group=True)
            await _Watch(child, answer, limits.hook_grace, limits.hook_max_output).wait()
        elif how == "ended" and child.status is not None and child.status.ok:
            await _wait_for_writers(child, answer, limits)
    finally:
        await child.close()
    size = answer.size
    if how == "ended" and size > limits.hook_max_output:
        how = "too much"
    return HookExit(how, child.status, child.stderr.text(), size)


class _Feed:
    """Writes the request as the hook reads it, never waiting for that. It may not read it at all (spec hooks 1.11)."""

    def __init__(self, child: Child, request: bytes) -> None:
        self._child = child
        self._descriptor = child.stdin
        self._left = memoryview(request)
        if not self._write():
            self._loop = asyncio.get_running_loop()
            child.before_close(self._descriptor, self._stop)
            self._loop.add_writer(self._descriptor, self._write)

    def _stop(self) -> None:
        self._loop.remove_writer(self._descriptor)

    def _write(self) -> bool:
        try:
            while self._left:
                self._left = self._left[os.write(self._descriptor, self._left) :]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            pass  # nobody will read the rest
        self._child.close_descriptor(self._descriptor)
        return True


class _Watch:
    """Until it has ended, its time is over, or it has printed too much. One future and one timer: most hooks end at once."""

    def __init__(self, child: Child, answer: AnswerFile, seconds: float, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[How] = self._loop.create_future()
        self._answer = answer
        self._most = most
        now = self._loop.time()
        self._end = now + seconds
        self._timer = self._loop.call_at(now + min(_LOOK, seconds), self._look)
        child.on_exit(self._on_exit)

    async def wait(self) -> How:
        try:
            return await self._over
        finally:
            self._timer.cancel()

    def _on_exit(self) -> None:
        if not self._over.done():
            self._over.set_result("ended")

    def _look(self) -> None:
        rest = self._end - self._loop.time()
        if self._over.done():
            return
        if self._answer.size > self._most:
            self._over.set_result("too much")
        elif rest <= 0:
            self._over.set_result("late")
        else:
            self._timer = self._loop.call_later(min(_LOOK, rest), self._look)


async def _wait_for_writers(child: Child, answer: AnswerFile, limits: BoxLimits) -> None:
    """The hook has ended, but what it started may still be writing its answer (spec hooks 1.12)."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limits.hook_eof
    while answer.has_writers(child) and answer.size <= limits.hook_max_output and loop.time() < end:  # noqa: ASYNC110  (the kernel tells nobody)
        await asyncio.sleep(_SOON)
