"""The host's end of the watchdog: started with the first child, told of every child."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Protocol

from serai.wire.posix_spawn import c_strings, posix_spawn
from serai.wire.process_tree import Process

log = logging.getLogger("serai.wire")

# The folder that holds the package: all the watchdog's interpreter needs to know, run isolated and without site-packages.
_ROOT = str(Path(__file__).parents[2])
_PROGRAM = """\
import sys
root, tag, host, see = sys.argv[1:]
sys.path.append(root)
from serai.wire.watchdog_program import main
main(tag, int(host), float(see))
"""


_LATER = 0.02  # seconds
# So many lines are less than PIPE_BUF: written whole, or not at all.
_LINES = 100


class WatchedChild(Protocol):
    """A child, as far as the watchdog cares: by pid and start time, for the pid may be another's by the time it looks."""

    @property
    def root(self) -> Process | None: ...


class Watchdog:
    """Outlives the host by a moment, to kill what carries the host's tag (design rule 2).

    It has no tag itself and a session of its own, so neither a terminal's Ctrl-C nor our own sweeps reach it. Should it die,
    the next child starts another.
    """

    def __init__(self, tag: str, see: float) -> None:
        self._tag = tag
        self._see = see
        self._pipe = -1
        self._children: set[WatchedChild] = set()
        self._news: dict[WatchedChild, bytes] = {}  # not yet told: it came, or it went
        self._timer: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[None] | None = None
        self.pid = 0

    def add(self, child: WatchedChild) -> None:
        """A child has started."""
        self._children.add(child)
        if self._pipe < 0:
            self._start()
        else:
            self._note(child, b"+")

    def remove(self, child: WatchedChild) -> None:
        """A child was closed: what the watchdog alone has seen of it dies too."""
        self._children.discard(child)
        if self._news.pop(child, None) is None:  # else it came and went before the watchdog heard of it
            self._note(child, b"-")

    async def close(self, seconds: float) -> None:
        """Let go, and wait until it has swept and ended, but not longer than that. Idempotent."""
        self._tell()
        self._hang_up()
        if self._over is not None:
            await asyncio.wait([self._over], timeout=seconds)

    def _start(self) -> None:
        if not sys.executable:
            log.warning("no watchdog: this Python does not know its own interpreter")
            return
        try:
            read, write = os.pipe()
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, _ROOT, self._tag, str(os.getpid()), str(self._see)]
            try:
                self.pid = posix_spawn(sys.executable, c_strings(argv), c_strings([]), "/", {0: read, 1: null, 2: null})
                pidfd = _open_pidfd_or_kill(self.pid)
            except OSError:
                os.close(write)
                raise
            finally:
                os.close(read)
                os.close(null)
        except OSError as error:
            log.warning("no watchdog: %s; children may outlive a host that is killed", error)
            return
        os.set_blocking(write, False)
        self._pipe = write
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        loop.add_reader(pidfd, self._handle_end, pidfd, self._over)
        self._news = dict.fromkeys(self._children, b"+")
        self._tell()

    def _note(self, child: WatchedChild, news: bytes) -> None:
        """Tell a little later, all at once: each message wakes the watchdog, and a short-lived child is not worth one."""
        self._news[child] = news
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LATER, self._tell)

    def _tell(self) -> None:
        """Best effort: the tag finds every child anyway, this only adds what dropped its environment."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        roots = ((news, child.root) for child, news in self._news.items())
        lines = [b"%b%d %d\n" % (news, root.pid, root.started) for news, root in roots if root is not None]
        self._news.clear()
        try:
            while lines and self._pipe >= 0:
                os.write(self._pipe, b"".join(lines[:_LINES]))
                del lines[:_LINES]
        except OSError as error:
            log.debug("the watchdog does not listen: %s", error)

    def _hang_up(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def _handle_end(self, pidfd: int, over: asyncio.Future[None]) -> None:
        asyncio.get_running_loop().remove_reader(pidfd)
        try:
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        except ChildProcessError:
            log.debug("somebody else reaped the watchdog")
        os.close(pidfd)
        over.set_result(None)
        if over is self._over and self._pipe >= 0:
            log.warning("the watchdog ended; the next child starts another")
            self._hang_up()


def _open_pidfd_or_kill(pid: int) -> int:
    """Its pidfd; without one it does not run on."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
