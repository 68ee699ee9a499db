"""Start a program that is to outlive us: no tag, no watchdog, nobody kills it when we go (a box's keeper).

It is the one exception to "nothing is left behind", so whoever uses it must see to it that the program ends by itself.
"""

from __future__ import annotations

import asyncio
import os
import signal

from serai.wire import proctree
from serai.wire.pipes import Pipes, close_all
from serai.wire.posix_spawn import posix_spawn, strings
from serai.wire.process import Launch, find_program, spawn_failed

__all__ = ["Detached"]


class Detached:
    """A program in a session of its own. `stdin` and `stdout` are ours to use and to close; it is reaped while our loop runs."""

    def __init__(self, launch: Launch) -> None:
        """`SpawnFailed` says why it cannot be started."""
        env = {name: value for name, value in launch.env.items() if name != proctree.TAG}
        logged = launch.stderr is not None
        try:
            pipes = Pipes({0: "r", 1: "w"} if logged else {0: "r", 1: "w", 2: "null"}, None)
            theirs = {**pipes.theirs, 2: launch.stderr} if launch.stderr is not None else pipes.theirs
            try:
                self.pid = posix_spawn(find_program(launch), strings(launch.argv), strings([*_pairs(env)]), launch.cwd, theirs)
            except BaseException:
                close_all(pipes.ours)
                raise
            finally:
                close_all(pipes.theirs)
        except (OSError, ValueError) as error:
            raise spawn_failed(launch, error) from None
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
