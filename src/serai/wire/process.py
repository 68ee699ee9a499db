"""The one way to start a process (design rule 2), and what is known of a process once it runs.

`Spawner` and `Child` are protocols: `PlainSpawner` starts programs on the machine, a box's spawner starts them inside a box and
hands out the same kind of descriptors. Nothing above this module knows which it was.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shutil
import signal as signals
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self

from serai.errors import Closed, ExitStatus, SpawnFailed
from serai.limits import Limits
from serai.wire import proctree
from serai.wire.pipes import Pipes, close_all
from serai.wire.plain_child import PlainChild, ProcessTable
from serai.wire.posix_spawn import posix_spawn
from serai.wire.tail import Tail
from serai.wire.watchdog import Watchdog

__all__ = ["Child", "Launch", "PlainChild", "PlainSpawner", "Spawner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start. `env` is the whole environment: who may see what is decided before (`serai.wire.environ`).

    `extra` gives the child further descriptors at exactly these numbers; the direction is the child's: it reads `"r"`.
    A program name without a slash is looked up in the PATH of `env`; a relative one with a slash starts at `cwd`.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None
    who: str = ""
    stdin: Literal["pipe", "null"] = "pipe"
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

    def close_descriptor(self, number: int) -> None:
        """Close one of ours by our number, such as `stdin`: the end of its input. Idempotent."""
        ...

    def before_close(self, number: int, callback: Callable[[], None]) -> None:
        """Have `callback` called right before that descriptor is closed: its user must let go of it first."""
        ...

    def to_noise(self, number: int) -> Tail:
        """Drain a descriptor that carries no frames, such as the stdout of a child whose wire is elsewhere: it must not block."""
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
        self._table = ProcessTable()
        self._watchdog = Watchdog(self.tag, self.limits.see) if watchdog else None
        self._closed = False
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def spawn(self, launch: Launch) -> PlainChild:
        """Start a program. `SpawnFailed` says why not; nothing is left behind then."""
        await asyncio.sleep(0)  # starting takes a moment: many in a row must let others have theirs
        if self._closed:
            raise Closed("the spawner is closed", who=launch.who)
        path = find_program(launch)
        self._count += 1
        tag = f"{self.tag}.{self._count}"
        wanted: dict[int, Literal["r", "w", "null"]] = {0: "r", 1: "w", 2: "w", **launch.extra}
        if launch.stdin == "null":
            wanted[0] = "null"
        try:
            pipes = Pipes(wanted, launch.pipe)
        except OSError as error:
            raise _spawn_failed(launch, error) from None
        try:
            pid = posix_spawn(path, launch.argv, {**launch.env, proctree.TAG: tag}, launch.cwd, pipes.theirs)
            child = self._take(launch.who or os.path.basename(path), pid, tag, pipes)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            close_all(pipes.ours)
            raise _spawn_failed(launch, error) from None
        finally:
            close_all(pipes.theirs)
        self.children.add(child)
        if self._watchdog is not None:
            self._watchdog.add(pid, child.started)
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
        self._table.close()

    def _take(self, who: str, pid: int, tag: str, pipes: Pipes) -> PlainChild:
        """A child for the program that runs already; should that fail, the program does not run on without an owner."""
        try:
            return PlainChild(who, pid, tag, pipes.ours, limits=self.limits, table=self._table, on_closed=self._forget)
        except BaseException:
            os.kill(pid, signals.SIGKILL)
            os.waitpid(pid, 0)
            raise

    def _forget(self, child: PlainChild) -> None:
        self.children.discard(child)
        if self._watchdog is not None:
            self._watchdog.remove(child.pid)


def find_program(launch: Launch) -> str:
    """The file to execute. Checked here, so that the error can say what was looked for and where."""
    try:
        return _find(launch)
    except OSError as error:  # such as a working directory of ours that was removed
        raise _spawn_failed(launch, error) from None


def _find(launch: Launch) -> str:
    if not launch.argv or not launch.argv[0]:
        hint = "give the program and its arguments"
        raise SpawnFailed("no program to start: the command line is empty", who=launch.who, errno=errno.EINVAL, hint=hint)
    if launch.cwd is not None and not os.path.isdir(launch.cwd):
        hint = "make the directory, or start it in another"
        raise SpawnFailed(f"its working directory {launch.cwd} does not exist", who=launch.who, errno=errno.ENOENT, hint=hint)
    name = launch.argv[0]
    if "/" in name:
        path = os.path.abspath(os.path.join(launch.cwd or "", name))
        if not os.path.exists(path):
            hint = "correct the path, or install what it belongs to"
            raise SpawnFailed(f"{path} does not exist", who=launch.who, errno=errno.ENOENT, hint=hint)
        if not os.path.isfile(path) or not os.access(path, os.X_OK):
            hint = f"make it executable: chmod +x {path}"
            raise SpawnFailed(f"{path} is not an executable file", who=launch.who, errno=errno.EACCES, hint=hint)
        return path
    found = shutil.which(name, path=launch.env.get("PATH", os.defpath))
    if found is None:
        raise SpawnFailed(
            f"there is no program {name} on the PATH", who=launch.who, errno=errno.ENOENT, hint=f"install {name}, or give its path"
        )
    return os.path.abspath(found)


def _spawn_failed(launch: Launch, error: Exception) -> SpawnFailed:
    name = launch.argv[0]
    if not isinstance(error, OSError):  # NUL, not a string, or a C library without what we need
        return SpawnFailed(f"cannot start {name}: {error}", who=launch.who, errno=errno.EINVAL)
    number = error.errno or 0
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
