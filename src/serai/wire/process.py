"""The one way to start a process (design rule 2), and what is known of a process once it runs.

`Spawner` and `Child` are protocols: `PlainSpawner` starts programs on the machine, a box's spawner starts them inside a box and
hands out the same kind of descriptors. Nothing above this module knows which it was.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import signal as signals
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal, Protocol, Self

from serai.errors import Closed, ExitStatus, SpawnFailed
from serai.limits import Limits
from serai.wire import proctree
from serai.wire.pipes import Direction, Pipes, close_all
from serai.wire.plain_child import House, PlainChild, ProcessTable
from serai.wire.poller import Patient, Poller, Readers
from serai.wire.posix_spawn import Environment, posix_spawn, strings
from serai.wire.tail import Tail
from serai.wire.watchdog import Watchdog

__all__ = ["Child", "Launch", "PlainChild", "PlainSpawner", "Spawner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start. `env` is the whole environment: who may see what is decided before (`serai.wire.environ`).

    `extra` gives the child further descriptors at exactly these numbers; the direction is the child's: it reads `"r"`.
    `stderr` is a descriptor of ours that it gets as its own, such as that of a log that can be read and appended to; we keep ours.
    `stdout` likewise, for an answer that is to outlive us; then there is nothing to read from the child.
    A program name without a slash is looked up in the PATH of `env`; a relative one with a slash starts at `cwd`.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None
    who: str = ""
    stdin: Literal["pipe", "null"] = "pipe"
    stdout: int | None = None  # None: a pipe
    stderr: int | None = None  # None: a pipe, always drained
    remarks: bytes = b""  # lines of that file which begin so are ours, not the program's
    extra: Mapping[int, Literal["r", "w"]] = field(default_factory=dict)
    pipe: int | None = None  # bytes: make the pipes this large at once, for programs that lose what does not fit


class Child(Protocol):
    """A running program as its wire sees it: descriptors to read and write, a stderr tail, and its end.

    Descriptors are non-blocking and belong to the child; -1 means closed or never there. Every method may be called at any
    time from any task of the loop, also after the end.
    """

    @property
    def who(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def stdin(self) -> int: ...
    @property
    def stdout(self) -> int: ...
    @property
    def extra(self) -> Mapping[int, int]: ...
    @property
    def stderr(self) -> Tail: ...
    @property
    def status(self) -> ExitStatus | None:
        """How the program itself ended, whatever its descendants do; None while it runs."""
        ...

    @property
    def exited(self) -> asyncio.Future[ExitStatus]:
        """Done once it has ended. A future of one's own: to give up waiting harms nobody."""
        ...

    @property
    def readers(self) -> Readers:
        """Who calls back when one of its descriptors can be read: the loop, or a poller for many."""
        ...

    def on_exit(self, callback: Callable[[], None]) -> None:
        """Have `callback` called in the moment its end is known; soon, when it is known already."""
        ...

    def close_descriptor(self, number: int) -> None:
        """Close one of ours by our number, such as `stdin`: the end of its input. Idempotent."""
        ...

    def before_close(self, number: int, callback: Callable[[], None]) -> None:
        """Have `callback` called right before that descriptor is closed: its user must let go of it first."""
        ...

    def to_noise(self, number: int, limit: int | None = None) -> Tail:
        """Drain a descriptor that carries no frames, such as the stdout of a child whose wire is elsewhere: it must not block.

        The last bytes are kept, `limits.noise_tail` of them unless told otherwise; at the child's end all that it wrote is there.
        """
        ...

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the program, or to its process group; nothing happens after its end."""
        ...

    async def kill_tree(self) -> list[int]:
        """SIGKILL the program and everything that descends from it; the pids that would not die within `stop_kill`."""
        ...

    async def close(self) -> None:
        """Kill what is left of the tree, reap, close every descriptor. Idempotent, never raises."""
        ...


class Spawner(Protocol):
    """Starts programs."""

    def spawn(self, launch: Launch) -> Awaitable[Child]: ...


class PlainSpawner:
    """Starts programs on the machine, each in a session of its own, all watched over by one watchdog.

    `async with PlainSpawner() as spawner:` leaves nothing behind: at the end every child that still runs is killed. One spawner
    per host is meant: it is handed to whoever starts programs.
    """

    def __init__(self, limits: Limits | None = None, *, watchdog: bool = True) -> None:
        self.limits = limits or Limits()
        self.children: set[PlainChild] = set()  # started and not yet closed, dead or alive
        outer = os.environ.get(proctree.TAG, "")
        # A host inside a host keeps the outer tag in front, so that the outer watchdog finds its children too.
        self.tag = f"{outer}/{secrets.token_hex(8)}" if outer else secrets.token_hex(8)
        self._count = 0
        self._environment = Environment(proctree.TAG)
        self._house: House | None = None
        self._watchdog = Watchdog(self.tag, self.limits.see) if watchdog else None
        self._busy = False  # a program was started in this turn of the loop
        self._closed = False
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def spawn(self, launch: Launch) -> PlainChild:
        """Start a program. `SpawnFailed` says why not; nothing is left behind then."""
        while self._busy:  # noqa: ASYNC110  (a turn of the loop is what we wait for)
            await asyncio.sleep(0)  # starting takes a moment: one in a turn, or others would have to wait for many
        if self._closed:
            raise Closed("the spawner is closed", who=launch.who)
        loop = asyncio.get_running_loop()
        if self._house is not None and self._house.loop is not loop:
            raise Closed(
                "the spawner belongs to another event loop", who=launch.who, hint="make one for each loop, and close it there"
            )
        self._busy = True
        loop.call_soon(self._turn_over)
        try:
            child = self._start(launch)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise spawn_failed(launch, error) from None
        self.children.add(child)
        if self._watchdog is not None:
            self._watchdog.add(child)
        return child

    async def close(self) -> None:
        """Kill every child that is left, then let the watchdog sweep and end. Idempotent; a cancelled caller does not stop it."""
        self._closed = True
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(), name="close the spawner")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await asyncio.gather(*(child.close() for child in list(self.children)), return_exceptions=True)
        if self._watchdog is not None:
            await self._watchdog.close(self.limits.stop_kill)
        if self._house is not None:
            for part in (self._house.table, self._house.patient, self._house.poller):
                part.close()

    def _turn_over(self) -> None:
        self._busy = False

    def _start(self, launch: Launch) -> PlainChild:
        path = find_program(launch)
        self._count += 1
        tag = f"{self.tag}.{self._count}"
        argv, env = strings(launch.argv), self._environment.strings(launch.env, tag)
        stdin: Direction = "r" if launch.stdin == "pipe" else "null"
        stderr: Direction | int = "w" if launch.stderr is None else launch.stderr
        wanted: dict[int, Direction | int] = {0: stdin, 2: stderr, **launch.extra}
        if launch.stdout is None:
            wanted[1] = "w"
        pipes = Pipes(wanted, launch.pipe)
        try:
            since = monotonic()
            theirs = pipes.theirs if launch.stdout is None else {**pipes.theirs, 1: launch.stdout}
            pid = posix_spawn(path, argv, env, launch.cwd, theirs)
            return self._take(launch, path, pid, tag, pipes, since)
        except BaseException:
            close_all(pipes.ours)
            raise
        finally:
            close_all(pipes.theirs)

    def _take(self, launch: Launch, path: str, pid: int, tag: str, pipes: Pipes, since: float) -> PlainChild:
        """A child for the program that runs already; should that fail, the program does not run on without an owner."""
        try:
            if self._house is None:
                poller = Poller()
                loop = asyncio.get_running_loop()
                self._house = House(self.limits, loop, ProcessTable(), poller, Patient(poller), self._forget)
            who = launch.who or path[path.rfind("/") + 1 :]
            return PlainChild(
                self._house, who, pid, tag, pipes.ours, since, logged=launch.stderr is not None, remarks=launch.remarks
            )
        except BaseException:
            os.kill(pid, signals.SIGKILL)
            os.waitpid(pid, 0)
            raise

    def _forget(self, child: PlainChild) -> None:
        self.children.discard(child)
        if self._watchdog is not None:
            self._watchdog.remove(child)


def find_program(launch: Launch) -> str:
    """The file to execute. Whether it can be executed is for the kernel to say; only when it says no, we look why."""
    name = launch.argv[0] if launch.argv else ""
    if name.startswith("/"):
        return name
    if "/" in name:
        return os.path.abspath(os.path.join(launch.cwd or "", name))
    if not name:
        hint = "give the program and its arguments"
        raise SpawnFailed("no program to start: the command line is empty", who=launch.who, errno=errno.EINVAL, hint=hint)
    for folder in launch.env.get("PATH", os.defpath).split(os.pathsep):
        if folder and _executable(path := os.path.join(folder, name)):  # an empty one would mean our own directory
            return os.path.abspath(path)
    hint = f"install {name}, or give its path"
    raise SpawnFailed(f"there is no program {name} on the PATH", who=launch.who, errno=errno.ENOENT, hint=hint)


def _executable(path: str) -> bool:
    return os.access(path, os.X_OK) and os.path.isfile(path)


def spawn_failed(launch: Launch, error: Exception) -> SpawnFailed:
    name = launch.argv[0]
    if not isinstance(error, OSError):  # NUL, not a string, or a C library without what we need
        return SpawnFailed(f"cannot start {name}: {error}", who=launch.who, errno=errno.EINVAL)
    number = error.errno or 0
    if number in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
        if launch.cwd is not None and not os.path.isdir(launch.cwd):
            hint = "make the directory, or start it in another"
            return SpawnFailed(f"its working directory {launch.cwd} does not exist", who=launch.who, errno=number, hint=hint)
        path = error.filename
        if path and not os.path.exists(path):
            hint = "correct the path, or install what it belongs to"
            return SpawnFailed(f"{path} does not exist", who=launch.who, errno=number, hint=hint)
        if path and not _executable(path):
            hint = f"make it executable: chmod +x {path}"
            return SpawnFailed(f"{path} is not an executable file", who=launch.who, errno=number, hint=hint)
    return SpawnFailed(f"cannot start {name}: {os.strerror(number)}", who=launch.who, errno=number, hint=_HINTS.get(number, ""))


_HINTS = {
    errno.EMFILE: "too many open files in this process: raise `ulimit -n`",
    errno.ENFILE: "too many open files on this machine",
    errno.EAGAIN: "too many processes: raise `ulimit -u`",
    errno.ENOEXEC: "it is neither a program nor a script with a #! line",
    errno.ENOENT: "its interpreter (the #! line) does not exist",
    errno.E2BIG: "its arguments and environment are too long",
    errno.EPERM: "the machine does not allow it: a sandbox around this process?",
    errno.ENOSYS: "the kernel is too old: Serai needs Linux 5.4 or newer",
}
