"""Children of this process: `PlainSpawner` starts them, `PlainChild` has their descriptors, their end, and the end of their tree.

`DetachedProcess` outlives us: no tag, no watchdog, and it is not killed when we end (a box's keeper). It is the one exception to
"nothing is left behind", so its user must make sure that the program ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import signal as signals
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from math import inf
from time import monotonic
from typing import NamedTuple, Self

from serai.errors import Closed, ExitStatus
from serai.limits import WireLimits
from serai.wire import process_tree
from serai.wire.descriptors import ChildPipes, DelayedReaders, Direction, FileTail, Poller, Readers, Tail, close_descriptors
from serai.wire.posix_spawn import EnvironmentBlock, c_strings, posix_spawn
from serai.wire.process import Launch, build_spawn_error, find_program
from serai.wire.watchdog import Watchdog

log = logging.getLogger("serai.wire")

Table = dict[int, process_tree.Process]

# What an ended child left is looked for so many seconds later, unless it is closed before.
_LATER = 0.02

# How soon to look again at one that has ended and cannot be waited for, in seconds.
_TRACED = 0.05

_NONE: Mapping[int, int] = {}
_UNKNOWN = ExitStatus()


class ProcessTable:
    """The machine's processes, read in a thread of its own. Those who ask while a reading is under way share the next one."""

    def __init__(self) -> None:
        me = process_tree.read_process(os.getpid())
        self._since = me.started if me else 0  # our children are younger than we are
        self._thread: ThreadPoolExecutor | None = None
        self._reading: asyncio.Task[Table | None] | None = None
        self._next: asyncio.Task[Table | None] | None = None
        self._due: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self.ours: set[int] = set()  # children that are not reaped: none descends from another

    def settle_later(self, settle: Callable[[], None]) -> None:
        """Have `settle` called a little later: whoever waits for a child's end comes first, and who end together share a look."""
        self._due.append(settle)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LATER, self._settle)

    async def read_now(self, seconds: float) -> Table | None:
        """Read after this call began; None when that is impossible or takes longer."""
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_task(self._read(self._reading), name="read the process table")
        reading = self._next
        done, _ = await asyncio.wait([reading], timeout=seconds)
        if not done:
            log.warning("the process table took longer than %g s, so only process groups are killed", seconds)
        return reading.result() if done and not reading.cancelled() else None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    def _settle(self) -> None:
        self._timer = None
        due, self._due = self._due, []
        for settle in due:
            settle()

    async def _read(self, before: asyncio.Task[Table | None] | None) -> Table | None:
        if before is not None:
            await asyncio.wait([before])
        self._reading, self._next = self._next, None
        # Not the loop's own threads: others may have filled them, and a stop must not wait for those.
        self._thread = self._thread or ThreadPoolExecutor(1, "serai-process-table")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, process_tree.scan_processes, self._since)
        except (OSError, RuntimeError) as error:  # no /proc, or the interpreter is going down
            log.warning("the process table cannot be read, so only process groups are killed: %s", error)
            return None


class SpawnerContext(NamedTuple):
    """What the children of one spawner share."""

    limits: WireLimits
    loop: asyncio.AbstractEventLoop
    table: ProcessTable
    poller: Poller
    delayed: DelayedReaders
    on_closed: Callable[[PlainChild], None]


class PlainChild:
    """A running program. Its protocol is `serai.wire.process.Child`, which says what each part promises."""

    __slots__ = (
        "__weakref__", "_closed", "_closing", "_context", "_left", "_loop", "_on_exit", "_pidfd", "_reaped", "_root", "_settling",
        "_since", "_tag", "_users", "_waiting", "extra", "noise", "pid", "status", "stderr", "stdin", "stdout", "who",
    )  # fmt: skip

    def __init__(
        self,
        context: SpawnerContext,
        who: str,
        pid: int,
        tag: str,
        descriptors: dict[int, int],
        since: float,
        *,
        logged: bool = False,
        remarks: bytes = b"",
    ) -> None:
        # First, since it may fail, and then nothing else must know of us. It cannot be another's: we have not reaped it.
        self._pidfd = os.pidfd_open(pid)
        try:
            context.poller.add_reader(self._pidfd, self._handle_end)
        except BaseException:
            os.close(self._pidfd)
            raise
        self.who = who
        self.pid = pid
        self.status: ExitStatus | None = None
        self._context = context
        self._tag = tag
        self._since = since  # it did not run before
        self._loop = context.loop
        self.stdin = descriptors.get(0, -1)
        self.stdout = descriptors.get(1, -1)
        tail = context.limits.stderr_tail
        self.stderr = FileTail(descriptors[2], tail, remarks) if logged else Tail(descriptors[2], tail, context.delayed)
        self.noise: tuple[Tail, ...] = ()
        self.extra: Mapping[int, int] = {number: ours for number, ours in descriptors.items() if number > 2} or _NONE
        self._users: dict[int, Callable[[], None] | None] = dict.fromkeys(descriptors.values())
        del self._users[descriptors[2]]  # the tail's
        self._waiting: list[asyncio.Future[ExitStatus]] = []
        self._on_exit: list[Callable[[], None]] = []
        self._root: process_tree.Process | None = None
        self._left: list[process_tree.Process] | None = None  # of its tree, when it ended; None while that is not known
        self._reaped = False
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        context.table.ours.add(pid)

    def __repr__(self) -> str:
        return f"<{self.who} pid {self.pid}: {self.status or 'running'}>"

    @property
    def root(self) -> process_tree.Process | None:
        """Who it is. Looked up when first asked for: until it is reaped, its number cannot be another's."""
        if self._root is None and not self._reaped:
            root = process_tree.read_process(self.pid)
            if _read_exit_status(self._pidfd) != _UNKNOWN:  # else somebody else reaped it, and that was anybody
                self._root = root
        return self._root

    @property
    def exited(self) -> asyncio.Future[ExitStatus]:
        """A future of one's own each time: who gives up waiting cancels it for nobody else."""
        future: asyncio.Future[ExitStatus] = self._loop.create_future()
        if self.status is not None:
            future.set_result(self.status)
        else:
            if len(self._waiting) & (len(self._waiting) - 1) == 0:  # forget who gave up whenever the list has doubled
                self._waiting = [other for other in self._waiting if not other.done()]
            self._waiting.append(future)
        return future

    @property
    def readers(self) -> Readers:
        return self._context.poller

    def on_exit(self, callback: Callable[[], None]) -> None:
        if self.status is None:
            self._on_exit.append(partial(copy_context().run, callback))  # as a loop would do it
        else:
            self._loop.call_soon(callback)

    def close_descriptor(self, number: int) -> None:
        self._warn_user(number)
        if self._forget_descriptor(number):
            os.close(number)

    def before_close(self, number: int, callback: Callable[[], None]) -> None:
        if number in self._users:
            self._users[number] = callback

    def drain_noise(self, number: int, limit: int | None = None) -> Tail:
        self._warn_user(number)
        if not self._forget_descriptor(number):
            raise Closed(f"its descriptor {number} is closed", who=self.who)
        tail = Tail(number, limit or self._context.limits.noise_tail, self._context.delayed)
        self.noise += (tail,)
        return tail

    def signal(self, number: int, *, group: bool = False) -> None:
        # An unreaped leader, dead or alive, keeps its number from being given to another group.
        if self._reaped or self.status == _UNKNOWN:
            return
        try:
            if group:
                os.killpg(self.pid, number)
            else:
                signals.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            pass
        except OSError as error:  # it became somebody else's, such as root's; whether it ends is seen anyway
            log.debug("%s: it cannot be signalled: %s", self.who, error)

    async def kill_tree(self) -> list[int]:
        end = inf  # the time is for those who were killed to go: to look may take a while
        pause = 0.001
        killed: set[int] = set()
        members: list[process_tree.Process] = []
        while True:
            # The group first and all at once, by the kernel: whoever forks meanwhile does not get away.
            self.signal(signals.SIGKILL, group=True)
            members = process_tree.add_survivors(await self._find_members(), members)
            for process in members:
                process_tree.kill_process(process)
            if not members or monotonic() >= end:
                break
            killed.update(process.pid for process in members)
            end = min(end, monotonic() + self._context.limits.stop_kill)
            await asyncio.sleep(pause)  # the killed need a moment; what is not our child cannot be waited for
            pause = min(pause * 2, 0.05)
        self._reap_adopted(killed)
        return [process.pid for process in members]

    async def close(self) -> None:
        if self.status is not None:
            self.signal(signals.SIGKILL, group=True)  # by the kernel, at once: whoever forks meanwhile does not get away
            self._settle()
        if self._left == [] and self._closing is None:
            self._let_go()
            return
        if self._closing is None:
            self._closing = self._loop.create_task(self._close(), name=f"close {self.who}")
        await asyncio.shield(self._closing)  # a cancelled caller does not leave a half-closed child

    # -- descriptors ------------------------------------------------------------------------------------------------------------

    def _warn_user(self, number: int) -> None:
        callback = self._users.get(number)
        if callback is not None:
            self._users[number] = None  # it may call us again
            try:
                callback()
            except Exception:
                log.exception("%s: the user of its descriptor %d failed", self.who, number)

    def _forget_descriptor(self, number: int) -> bool:
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

    # -- its end ------------------------------------------------------------------------------------------------------------------

    async def _find_members(self) -> list[process_tree.Process]:
        """The living processes of its tree, itself included."""
        if self.status is not None:
            self._settle()
            if self._settling is not None:
                await asyncio.shield(self._settling)
            if self._left == []:  # nothing outlived it, so nothing can have come since
                return []
        everyone = await self._context.table.read_now(self._context.limits.stop_kill)
        return [] if everyone is None else process_tree.find_tree(everyone, self._list_roots(), self._tag, self._left or ())

    def _list_roots(self) -> list[process_tree.Process]:
        return [self.root] if self.root is not None and not self._reaped else []

    def _handle_end(self) -> None:
        """The program has ended. It stays unreaped until its tree has been seen: its number marks its session so long."""
        self.status = _read_exit_status(self._pidfd)
        self._context.poller.remove_reader(self._pidfd)
        if self.status is None:  # it cannot be waited for yet: somebody traces it
            self._loop.call_later(_TRACED, self._watch)
            return
        for tail in (self.stderr, *self.noise):
            tail.drain()
        for future in self._waiting:
            if not future.done():
                future.set_result(self.status)
        for callback in self._on_exit:
            try:
                callback()
            except Exception:
                log.exception("%s: who waited for its end failed", self.who)
        self._waiting.clear()
        self._on_exit.clear()
        self._context.table.settle_later(self._settle)

    def _watch(self) -> None:
        if not self._reaped and not self._closed:
            self._context.poller.add_reader(self._pidfd, self._handle_end)

    def _settle(self) -> None:
        """It has ended: see what outlived it, at once where a short look tells, else in a task. Idempotent."""
        if self._left is not None or self._settling is not None:
            return
        if process_tree.has_no_descendants(self.pid, self._tag, monotonic() - self._since, self._context.table.ours):
            self._left = []
            self._reap()
        else:
            self._settling = self._loop.create_task(self._find_survivors(), name=f"reap {self.who}")

    async def _find_survivors(self) -> None:
        everyone = await self._context.table.read_now(self._context.limits.stop_kill)
        if everyone is not None:
            self._left = process_tree.find_tree(everyone, self._list_roots(), self._tag)
        if self._left == []:  # else only once the rest is killed: their group needs its number
            self._reap()

    def _reap(self) -> None:
        if self._reaped:
            return
        self._reaped = True
        try:
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
        except ChildProcessError:
            log.debug("%s: somebody else reaped it", self.who)
        os.close(self._pidfd)
        self._context.table.ours.discard(self.pid)

    def _reap_adopted(self, pids: set[int]) -> None:
        """Descendants that lost their parents are our children where no init takes them: we as pid 1, or a subreaper.

        What we have started ourselves has somebody who waits for it and wants to know how it ended.
        """
        for pid in pids - self._context.table.ours:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue

    async def _close(self) -> None:
        try:
            survivors = await self.kill_tree()
            if survivors:
                log.error("%s: processes %s survived SIGKILL for %g s", self.who, survivors, self._context.limits.stop_kill)
            await asyncio.wait([self.exited], timeout=self._context.limits.stop_kill)
            if self.status is not None:
                self._settle()
                if self._settling is not None:
                    await self._settling
                self._reap()
        except Exception:
            log.exception("%s: closing it failed", self.who)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Its tree is dead: close what is ours. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for number in list(self._users):
            self.close_descriptor(number)
        for tail in (self.stderr, *self.noise):
            tail.drain()
            tail.close()
        self._context.on_closed(self)


def _read_exit_status(pidfd: int) -> ExitStatus | None:
    """How it ended; None while it runs."""
    try:
        info = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:  # reaped by somebody else, such as a program that waits for any child
        return _UNKNOWN
    if info is None:
        return None
    return ExitStatus(code=info.si_status) if info.si_code == os.CLD_EXITED else ExitStatus(signal=info.si_status)


class PlainSpawner:
    """Starts programs on the machine, each in a session of its own, all watched over by one watchdog.

    `async with PlainSpawner() as spawner:` leaves nothing behind: at the end every child that still runs is killed. One spawner
    per host is meant: it is handed to whoever starts programs.
    """

    def __init__(self, limits: WireLimits | None = None, *, watchdog: bool = True) -> None:
        self.limits = limits or WireLimits()
        self.children: set[PlainChild] = set()  # started and not yet closed, dead or alive
        outer = os.environ.get(process_tree.TAG, "")
        # A host inside a host keeps the outer tag in front, so that the outer watchdog finds its children too.
        self.tag = f"{outer}/{secrets.token_hex(8)}" if outer else secrets.token_hex(8)
        self._count = 0
        self._environment = EnvironmentBlock(process_tree.TAG)
        self._context: SpawnerContext | None = None
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
        if self._context is not None and self._context.loop is not loop:
            raise Closed(
                "the spawner belongs to another event loop", who=launch.who, hint="make one for each loop, and close it there"
            )
        self._busy = True
        loop.call_soon(self._end_turn)
        try:
            child = self._start(launch)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise build_spawn_error(launch, error) from None
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
        if self._context is not None:
            for part in (self._context.table, self._context.delayed, self._context.poller):
                part.close()

    def _end_turn(self) -> None:
        self._busy = False

    def _start(self, launch: Launch) -> PlainChild:
        path = find_program(launch)
        self._count += 1
        tag = f"{self.tag}.{self._count}"
        argv, env = c_strings(launch.argv), self._environment.build_strings(launch.env, tag)
        stdin: Direction = "r" if launch.stdin == "pipe" else "null"
        stderr: Direction | int = "w" if launch.stderr is None else launch.stderr
        wanted: dict[int, Direction | int] = {0: stdin, 2: stderr, **launch.extra}
        if launch.stdout is None:
            wanted[1] = "w"
        pipes = ChildPipes(wanted, launch.pipe)
        try:
            since = monotonic()
            theirs = pipes.theirs if launch.stdout is None else {**pipes.theirs, 1: launch.stdout}
            pid = posix_spawn(path, argv, env, launch.cwd, theirs)
            return self._adopt(launch, path, pid, tag, pipes, since)
        except BaseException:
            close_descriptors(pipes.ours)
            raise
        finally:
            close_descriptors(pipes.theirs)

    def _adopt(self, launch: Launch, path: str, pid: int, tag: str, pipes: ChildPipes, since: float) -> PlainChild:
        """A child for the program that runs already; should that fail, the program does not run on without an owner."""
        try:
            if self._context is None:
                poller = Poller()
                loop = asyncio.get_running_loop()
                self._context = SpawnerContext(self.limits, loop, ProcessTable(), poller, DelayedReaders(poller), self._forget)
            who = launch.who or path[path.rfind("/") + 1 :]
            return PlainChild(
                self._context, who, pid, tag, pipes.ours, since, logged=launch.stderr is not None, remarks=launch.remarks
            )
        except BaseException:
            os.kill(pid, signals.SIGKILL)
            os.waitpid(pid, 0)
            raise

    def _forget(self, child: PlainChild) -> None:
        self.children.discard(child)
        if self._watchdog is not None:
            self._watchdog.remove(child)


class DetachedProcess:
    """A program in a session of its own. `stdin` and `stdout` are ours to use and to close; it is reaped while our loop runs."""

    def __init__(self, launch: Launch) -> None:
        """`SpawnFailed` says why it cannot be started."""
        env = {name: value for name, value in launch.env.items() if name != process_tree.TAG}
        logged = launch.stderr is not None
        try:
            pipes = ChildPipes({0: "r", 1: "w"} if logged else {0: "r", 1: "w", 2: "null"}, None)
            theirs = {**pipes.theirs, 2: launch.stderr} if launch.stderr is not None else pipes.theirs
            try:
                self.pid = posix_spawn(find_program(launch), c_strings(launch.argv), c_strings([*_pairs(env)]), launch.cwd, theirs)
            except BaseException:
                close_descriptors(pipes.ours)
                raise
            finally:
                close_descriptors(pipes.theirs)
        except (OSError, ValueError) as error:
            raise build_spawn_error(launch, error) from None
        self.stdin, self.stdout = pipes.ours[0], pipes.ours[1]
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._pidfd = os.pidfd_open(self.pid)
        self._loop.add_reader(self._pidfd, self._reap)

    def let_go(self) -> None:
        """Close what is ours; the program goes on. Idempotent."""
        for number in (self.stdin, self.stdout):
            if number >= 0:
                os.close(number)
        self.stdin = self.stdout = -1

    def forget(self) -> None:
        """Stop waiting for its end as well: our loop is about to go. Whoever comes after us reaps it."""
        self.let_go()
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    async def end(self, seconds: float) -> None:
        """It is to end after all, and has been told: wait for that, and kill it when it takes longer."""
        self.let_go()
        await asyncio.wait([self._ended], timeout=seconds)
        if self._pidfd >= 0:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            await asyncio.wait([self._ended])

    def _reap(self) -> None:
        try:
            os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            pass
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        if not self._ended.done():
            self._ended.set_result(None)


def _pairs(env: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in env.items()]
