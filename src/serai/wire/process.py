"""The one way to start a process (design rule 2), and what is known of a process once it runs.

`Spawner` and `Child` are protocols: `PlainSpawner` starts programs on the machine, a box's spawner starts them inside a box and
hands out the same kind of descriptors. Nothing above this module knows which it was.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import shutil
import signal as signals
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fcntl import F_SETPIPE_SZ, fcntl
from time import monotonic
from typing import Literal, Protocol, Self

from serai.errors import Closed, ExitStatus, SpawnFailed
from serai.limits import Limits
from serai.wire import proctree
from serai.wire.posix_spawn import posix_spawn
from serai.wire.tail import Tail
from serai.wire.watchdog import Watchdog

__all__ = ["Child", "Launch", "PlainChild", "PlainSpawner", "Spawner"]

log = logging.getLogger("serai.wire")


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
    def exited(self) -> asyncio.Future[ExitStatus]:
        """Done once the program itself has ended, whatever its descendants do. Wait with `asyncio.shield` or `wait`."""
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

    `async with PlainSpawner() as spawner:` leaves nothing behind: at the end every child that still runs is killed.
    """

    def __init__(self, limits: Limits | None = None, *, watchdog: bool = True) -> None:
        self.limits = limits or Limits()
        self.children: set[PlainChild] = set()  # started and not yet closed, dead or alive
        outer = os.environ.get(proctree.TAG, "")
        # A host inside a host keeps the outer tag in front, so that the outer watchdog finds its children too.
        self.tag = f"{outer}/{secrets.token_hex(8)}" if outer else secrets.token_hex(8)
        self._count = 0
        self._everyone = _Everyone()
        self._watchdog = Watchdog(self.tag, self.limits.see) if watchdog else None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def spawn(self, launch: Launch) -> PlainChild:
        """Start a program. `SpawnFailed` says why not; nothing is left behind then."""
        if self._closed:
            raise Closed("the spawner is closed", who=launch.who)
        path = find_program(launch)
        self._count += 1
        tag = f"{self.tag}.{self._count}"
        ends = _Pipes(launch)
        try:
            pid = posix_spawn(path, launch.argv, {**launch.env, proctree.TAG: tag}, launch.cwd, ends.theirs)
        except (OSError, ValueError) as error:
            ends.close(ends.ours.values())
            raise _spawn_failed(launch, error) from None
        finally:
            ends.close(ends.theirs.values())
        child = PlainChild(launch.who or os.path.basename(path), pid, tag, ends.ours, self)
        self.children.add(child)
        if self._watchdog is not None:
            self._watchdog.add(pid)
        return child

    async def close(self) -> None:
        """Kill every child that is left, then let the watchdog go. Idempotent."""
        self._closed = True
        await asyncio.gather(*(child.close() for child in list(self.children)))
        if self._watchdog is not None:
            self._watchdog.close()

    def _reaped(self, child: PlainChild) -> None:
        if self._watchdog is not None:
            self._watchdog.remove(child.pid)


class PlainChild:
    """A child of this very process."""

    def __init__(self, who: str, pid: int, tag: str, descriptors: dict[int, int], spawner: PlainSpawner) -> None:
        self.who = who
        self.pid = pid
        self._tag = tag
        self._spawner = spawner
        self._limits = spawner.limits
        self._loop = asyncio.get_running_loop()
        self.stdin = descriptors.get(0, -1)
        self.stdout = descriptors[1]
        self.stderr = Tail(descriptors[2], self._limits.stderr_tail)
        self.noise: list[Tail] = []
        self.extra = {number: ours for number, ours in descriptors.items() if number > 2}
        self._users: dict[int, Callable[[], None] | None] = {ours: None for number, ours in descriptors.items() if number != 2}
        self.exited: asyncio.Future[ExitStatus] = self._loop.create_future()
        self._root = proctree.read(pid)
        self._left: list[proctree.Process] = []  # of its tree, when it ended
        self._reaped = False
        self._closing: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._pidfd = os.pidfd_open(pid)  # cannot be another's: we have not reaped it
        self._loop.add_reader(self._pidfd, self._ended)

    def __repr__(self) -> str:
        state = str(self.exited.result()) if self.exited.done() else "running"
        return f"<{self.who} pid {self.pid}: {state}>"

    def close_descriptor(self, number: int) -> None:
        self._warn_user(number)
        if self._give_up(number):
            os.close(number)

    def before_close(self, number: int, callback: Callable[[], None]) -> None:
        if number in self._users:
            self._users[number] = callback

    def to_noise(self, number: int) -> Tail:
        self._warn_user(number)
        if not self._give_up(number):
            raise Closed(f"its descriptor {number} is closed", who=self.who)
        tail = Tail(number, self._limits.noise_tail)
        self.noise.append(tail)
        return tail

    def signal(self, number: int, *, group: bool = False) -> None:
        # An unreaped leader, dead or alive, keeps its number from being given to another group.
        if self._reaped:
            return
        try:
            if group:
                os.killpg(self.pid, number)
            else:
                signals.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            pass

    async def kill_tree(self) -> list[int]:
        end = monotonic() + self._limits.stop_kill
        pause = 0.001
        self.signal(signals.SIGKILL, group=True)
        while members := await self._members():
            if monotonic() >= end:
                return [process.pid for process in members]
            for process in members:
                proctree.kill(process)
            await asyncio.sleep(pause)  # the killed need a moment; what is not our child cannot be waited for
            pause = min(pause * 2, 0.05)
        return []

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(), name=f"close {self.who}")
        await asyncio.shield(self._closing)  # a cancelled caller does not leave a half-closed child

    # -- inside -------------------------------------------------------------------------------------------------------------

    def _warn_user(self, number: int) -> None:
        callback = self._users.get(number)
        if callback is not None:
            self._users[number] = None  # it may call us again
            callback()

    def _give_up(self, number: int) -> bool:
        """Forget one of our descriptors; False when it is not ours (any more)."""
        if number not in self._users:
            return False
        del self._users[number]
        if number == self.stdin:
            self.stdin = -1
        elif number == self.stdout:
            self.stdout = -1
        else:
            self.extra = {theirs: ours for theirs, ours in self.extra.items() if ours != number}
        return True

    async def _members(self) -> list[proctree.Process]:
        """The living processes of its tree, itself included."""
        if self._settling is not None:
            await asyncio.shield(self._settling)
            if not self._left:  # nothing outlived it, so nothing can have come since
                return []
        everyone = await self._spawner._everyone.now()
        roots = [self._root] if self._root is not None and not self._reaped else []
        return proctree.tree(everyone, roots, self._tag, self._left)

    def _ended(self) -> None:
        """The program has ended. It stays unreaped until its tree has been seen: its number marks its session so long."""
        self._loop.remove_reader(self._pidfd)
        self.exited.set_result(_exit_status(self._pidfd))
        self._settling = self._loop.create_task(self._settle(), name=f"reap {self.who}")

    async def _settle(self) -> None:
        try:
            everyone = await self._spawner._everyone.now()
            self._left = proctree.tree(everyone, [self._root] if self._root else [], self._tag)
        finally:
            self._reap()

    def _reap(self) -> None:
        try:
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
        except ChildProcessError:
            log.debug("%s: somebody else reaped it", self.who)
        os.close(self._pidfd)
        self._reaped = True
        self._spawner._reaped(self)

    async def _close(self) -> None:
        survivors = await self.kill_tree()
        if survivors:
            log.error("%s: processes %s survived SIGKILL for %g s", self.who, survivors, self._limits.stop_kill)
        else:
            await self.exited
            assert self._settling is not None
            await self._settling
        for number in list(self._users):
            self.close_descriptor(number)
        for tail in (self.stderr, *self.noise):
            tail.drain()
            tail.close()
        self._spawner.children.discard(self)


class _Everyone:
    """The process table, read in a thread. Those who ask while a reading is under way share the next one."""

    def __init__(self) -> None:
        self._reading: asyncio.Task[dict[int, proctree.Process]] | None = None
        self._next: asyncio.Task[dict[int, proctree.Process]] | None = None

    async def now(self) -> dict[int, proctree.Process]:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._read(self._reading), name="read the process table")
        return await asyncio.shield(self._next)

    async def _read(self, before: asyncio.Task[dict[int, proctree.Process]] | None) -> dict[int, proctree.Process]:
        if before is not None:
            await asyncio.wait([before])
        self._reading, self._next = self._next, None
        try:
            return await asyncio.get_running_loop().run_in_executor(None, proctree.scan)
        except (OSError, RuntimeError) as error:  # no /proc, or the loop is shutting down its threads
            log.warning("the process table cannot be read, so only process groups are killed: %s", error)
            return {}


class _Pipes:
    """The pipes of one child: `theirs` and `ours` by the child's numbers."""

    def __init__(self, launch: Launch) -> None:
        self.theirs: dict[int, int] = {}
        self.ours: dict[int, int] = {}
        wanted: dict[int, Literal["r", "w"]] = {0: "r", 1: "w", 2: "w", **launch.extra}
        try:
            for number, direction in wanted.items():
                if number == 0 and launch.stdin == "null":
                    self.theirs[0] = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                    continue
                read, write = os.pipe()
                self.theirs[number], self.ours[number] = (read, write) if direction == "r" else (write, read)
                os.set_blocking(self.ours[number], False)
                if launch.pipe is not None:
                    fcntl(read, F_SETPIPE_SZ, launch.pipe)
        except OSError as error:
            self.close([*self.theirs.values(), *self.ours.values()])
            raise _spawn_failed(launch, error) from None

    @staticmethod
    def close(descriptors: Iterable[int]) -> None:
        for descriptor in descriptors:
            os.close(descriptor)


def find_program(launch: Launch) -> str:
    """The file to execute. Checked here, so that the error can say what was looked for and where."""
    if not launch.argv or not launch.argv[0]:
        hint = "give the program and its arguments"
        raise SpawnFailed("no program to start: the command line is empty", who=launch.who, errno=errno.EINVAL, hint=hint)
    if launch.cwd is not None and not os.path.isdir(launch.cwd):
        hint = "make the directory, or start it in another"
        raise SpawnFailed(f"its working directory {launch.cwd} does not exist", who=launch.who, errno=errno.ENOENT, hint=hint)
    name = launch.argv[0]
    if "/" in name:
        path = os.path.join(launch.cwd or os.getcwd(), name)
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


def _spawn_failed(launch: Launch, error: OSError | ValueError) -> SpawnFailed:
    name = launch.argv[0]
    if isinstance(error, ValueError):
        return SpawnFailed(f"cannot start {name}: {error}", who=launch.who, errno=errno.EINVAL)
    hints = {
        errno.EMFILE: "too many open files in this process: raise `ulimit -n`",
        errno.ENFILE: "too many open files on this machine",
        errno.EAGAIN: "too many processes: raise `ulimit -u`",
        errno.ENOEXEC: "it is neither a program nor a script with a #! line",
        errno.ENOENT: "its interpreter (the #! line) does not exist",
        errno.E2BIG: "its arguments and environment are too long",
    }
    number = error.errno or 0
    return SpawnFailed(f"cannot start {name}: {os.strerror(number)}", who=launch.who, errno=number, hint=hints.get(number, ""))


def _exit_status(pidfd: int) -> ExitStatus:
    try:
        info = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:  # reaped by somebody else, such as a program that waits for any child
        return ExitStatus()
    if info is None:
        return ExitStatus()
    if info.si_code == os.CLD_EXITED:
        return ExitStatus(code=info.si_status)
    return ExitStatus(signal=info.si_status)
