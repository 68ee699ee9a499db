"""The one way to start a process (design rule 2), and the one way to stop it.

`Spawner` and `Child` are protocols: `PlainSpawner` starts programs on the machine, a box's spawner starts them inside a box and
returns the same kind of descriptors. Nothing above this module knows which it was.

`stop_child` is the stop ladder: ask, close its input, SIGTERM, SIGKILL the tree. Every step is bounded, the last one always runs.
The ladder is its own task: a caller that is cancelled, or times out, leaves it to finish alone (design rule 11). The tree is swept
even after a polite end, because a program may leave descendants behind.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal, NamedTuple, Protocol

from serai.errors import ExitStatus, SpawnFailed
from serai.limits import Limits
from serai.wire.descriptors import Readers, Tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start. `env` is the whole environment: who may see what is decided before (`serai.wire.child_environment`).

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


log = logging.getLogger("serai.wire")

Step = Literal["already", "polite", "term", "kill", "survived"]


class StopResult(NamedTuple):
    """How a child ended: the step of the ladder that did it, and its exit status (None if it would not die)."""

    step: Step
    exit: ExitStatus | None


Polite = Callable[[], Awaitable[None]]


async def stop_child(child: Child, limits: Limits, *, polite: Polite | None = None) -> StopResult:
    """Stop a child and everything it started.

    `polite` says goodbye in the dialect's way, such as `lambda: channel.farewell(frame)`; it shares its time with the child's end.
    """
    ladder = asyncio.get_running_loop().create_task(_ladder(child, limits, polite), name=f"stop {child.who}")
    return await asyncio.shield(ladder)


async def _ladder(child: Child, limits: Limits, polite: Polite | None) -> StopResult:
    step: Step = "already"
    try:
        if child.status is None:
            step = await _down(child, limits, polite)
    finally:
        await child.close()
    return StopResult("survived" if child.status is None else step, child.status)


async def _down(child: Child, limits: Limits, polite: Polite | None) -> Step:
    end = monotonic() + limits.stop_polite
    if polite is not None:
        try:
            async with asyncio.timeout(limits.stop_polite):
                await polite()
        except Exception as error:  # a full or broken pipe, a child that does not read: the next step does not need it
            log.debug("%s: no farewell: %s", child.who, error)
    child.close_descriptor(child.stdin)
    if await _exits(child, max(end - monotonic(), 0)):
        return "polite"
    # The group, so that a program behind a shell hears it too; what made its own session is for the last step.
    child.signal(signal.SIGTERM, group=True)
    if await _exits(child, limits.stop_term):
        return "term"
    return "kill"


async def _exits(child: Child, seconds: float) -> bool:
    exited = child.exited
    done, _ = await asyncio.wait([exited], timeout=seconds)
    exited.cancel()  # ours alone: what was waited for in vain is not kept
    return bool(done)
