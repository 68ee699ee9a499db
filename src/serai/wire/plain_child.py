"""A child of this very process: its descriptors, its end, and the end of its tree."""

from __future__ import annotations

import asyncio
import logging
import os
import signal as signals
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from serai.errors import Closed, ExitStatus
from serai.limits import Limits
from serai.wire import proctree
from serai.wire.tail import Tail

__all__ = ["PlainChild", "ProcessTable"]

log = logging.getLogger("serai.wire")

Table = dict[int, proctree.Process]


class ProcessTable:
    """The machine's processes, read in a thread of its own. Those who ask while a reading is under way share the next one."""

    def __init__(self) -> None:
        me = proctree.read(os.getpid())
        self._since = me.started if me else 0  # our children are younger than we are
        self._thread: ThreadPoolExecutor | None = None
        self._reading: asyncio.Task[Table | None] | None = None
        self._next: asyncio.Task[Table | None] | None = None

    async def now(self, seconds: float) -> Table | None:
        """Read after this call began; None when that is impossible or takes longer."""
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_task(self._read(self._reading), name="read the process table")
        reading = self._next
        done, _ = await asyncio.wait([reading], timeout=seconds)
        if not done:
            log.warning("the process table took longer than %g s, so only process groups are killed", seconds)
        return reading.result() if done and not reading.cancelled() else None

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    async def _read(self, before: asyncio.Task[Table | None] | None) -> Table | None:
        if before is not None:
            await asyncio.wait([before])
        self._reading, self._next = self._next, None
        # Not the loop's own threads: others may have filled them, and a stop must not wait for those.
        self._thread = self._thread or ThreadPoolExecutor(1, "serai-process-table")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, proctree.scan, self._since)
        except (OSError, RuntimeError) as error:  # no /proc, or the interpreter is going down
            log.warning("the process table cannot be read, so only process groups are killed: %s", error)
            return None


class PlainChild:
    """A running program. Its protocol is `serai.wire.process.Child`, which says what each part promises."""

    def __init__(
        self,
        who: str,
        pid: int,
        tag: str,
        descriptors: dict[int, int],
        *,
        limits: Limits,
        table: ProcessTable,
        on_closed: Callable[[PlainChild], None],
    ) -> None:
        self._pidfd = os.pidfd_open(pid)  # first, since it may fail; cannot be another's: we have not reaped it
        self.who = who
        self.pid = pid
        self.status: ExitStatus | None = None
        self._tag = tag
        self._limits = limits
        self._table = table
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self.stdin = descriptors.get(0, -1)
        self.stdout = descriptors[1]
        self.stderr = Tail(descriptors[2], limits.stderr_tail)
        self.noise: list[Tail] = []
        self.extra = {number: ours for number, ours in descriptors.items() if number > 2}
        self._users: dict[int, Callable[[], None] | None] = {ours: None for number, ours in descriptors.items() if number != 2}
        self._exit: asyncio.Future[ExitStatus] = self._loop.create_future()
        self._root = proctree.read(pid)
        self._left: list[proctree.Process] | None = None  # of its tree, when it ended; None while that is not known
        self._reaped = False
        self._closing: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._loop.add_reader(self._pidfd, self._ended)

    def __repr__(self) -> str:
        return f"<{self.who} pid {self.pid}: {self.status or 'running'}>"

    @property
    def started(self) -> int:
        """When it started, in the kernel's ticks: with the pid, who it is."""
        return self._root.started if self._root is not None else 0

    @property
    def exited(self) -> asyncio.Future[ExitStatus]:
        """A future of one's own each time: who gives up waiting cancels it for nobody else."""
        return asyncio.shield(self._exit)

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
        except OSError as error:  # it became somebody else's, such as root's; whether it ends is seen anyway
            log.debug("%s: it cannot be signalled: %s", self.who, error)

    async def kill_tree(self) -> list[int]:
        end = monotonic() + self._limits.stop_kill
        pause = 0.001
        killed: set[int] = set()
        while True:
            # The group first and all at once, by the kernel: whoever forks meanwhile does not get away.
            self.signal(signals.SIGKILL, group=True)
            members = await self._members()
            if not members or monotonic() >= end:
                break
            for process in members:
                proctree.kill(process)
            killed.update(process.pid for process in members)
            await asyncio.sleep(pause)  # the killed need a moment; what is not our child cannot be waited for
            pause = min(pause * 2, 0.05)
        self._reap_adopted(killed)
        return [process.pid for process in members]

    async def close(self) -> None:
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

    # -- its end ------------------------------------------------------------------------------------------------------------------

    async def _members(self) -> list[proctree.Process]:
        """The living processes of its tree, itself included."""
        if self._settling is not None:
            await asyncio.shield(self._settling)
            if self._left == []:  # nothing outlived it, so nothing can have come since
                return []
        everyone = await self._table.now(self._limits.stop_kill)
        return [] if everyone is None else proctree.tree(everyone, self._roots(), self._tag, self._left or ())

    def _roots(self) -> list[proctree.Process]:
        return [self._root] if self._root is not None and not self._reaped else []

    def _ended(self) -> None:
        """The program has ended. It stays unreaped until its tree has been seen: its number marks its session so long."""
        self._loop.remove_reader(self._pidfd)
        self.status = _exit_status(self._pidfd)
        self._exit.set_result(self.status)
        self._settling = self._loop.create_task(self._settle(), name=f"reap {self.who}")

    async def _settle(self) -> None:
        everyone = await self._table.now(self._limits.stop_kill)
        if everyone is not None:
            self._left = proctree.tree(everyone, self._roots(), self._tag)
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

    def _reap_adopted(self, pids: set[int]) -> None:
        """Descendants that lost their parents are our children where no init takes them: we as pid 1, or a subreaper."""
        for pid in pids - {self.pid}:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue

    async def _close(self) -> None:
        try:
            survivors = await self.kill_tree()
            if survivors:
                log.error("%s: processes %s survived SIGKILL for %g s", self.who, survivors, self._limits.stop_kill)
            await asyncio.wait([self._exit], timeout=self._limits.stop_kill)
            if self._settling is not None:
                await self._settling
                self._reap()
        except Exception:
            log.exception("%s: closing it failed", self.who)
        finally:
            for number in list(self._users):
                self.close_descriptor(number)
            for tail in (self.stderr, *self.noise):
                tail.drain()
                tail.close()
            self._on_closed(self)


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
