"""The host's end of the watchdog: started with the first child, told of every child, never waited for."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

from serai.wire.posix_spawn import posix_spawn

__all__ = ["Watchdog"]

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


class Watchdog:
    """Outlives the host by a moment, to kill what carries the host's tag (design rule 2).

    It has no tag itself and a session of its own, so neither a terminal's Ctrl-C nor our own sweeps reach it. Should it die,
    the next child starts another.
    """

    def __init__(self, tag: str, see: float) -> None:
        self._tag = tag
        self._see = see
        self._pipe = -1
        self._pidfd = -1
        self._children: set[int] = set()
        self.pid = 0

    def add(self, pid: int) -> None:
        self._children.add(pid)
        if self._pipe < 0:
            self._start()
        else:
            self._tell(b"+%d\n" % pid)

    def remove(self, pid: int) -> None:
        self._children.discard(pid)
        self._tell(b"-%d\n" % pid)

    def close(self) -> None:
        """Let go: it sweeps once more and ends by itself. Idempotent."""
        for descriptor in (self._pipe, self._pidfd):
            if descriptor >= 0:
                os.close(descriptor)
        self._pipe = self._pidfd = -1

    def _start(self) -> None:
        if not sys.executable:
            log.warning("no watchdog: this Python does not know its own interpreter")
            return
        read, write = os.pipe()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, _ROOT, self._tag, str(os.getpid()), str(self._see)]
        try:
            self.pid = posix_spawn(sys.executable, argv, {}, "/", {0: read, 1: null, 2: null})
        except OSError as error:
            os.close(write)
            log.warning("no watchdog: %s; children may outlive a host that is killed", error)
            return
        finally:
            os.close(read)
            os.close(null)
        os.set_blocking(write, False)
        self._pipe = write
        self._pidfd = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._ended, self._pidfd)
        for child in self._children:
            self._tell(b"+%d\n" % child)

    def _tell(self, line: bytes) -> None:
        """Best effort: the tag finds every child anyway, this only adds what dropped its environment."""
        if self._pipe >= 0:
            try:
                os.write(self._pipe, line)
            except OSError as error:
                log.debug("the watchdog does not listen: %s", error)

    def _ended(self, pidfd: int) -> None:
        asyncio.get_running_loop().remove_reader(pidfd)
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        if pidfd == self._pidfd:
            log.warning("the watchdog ended; the next child starts another")
            self.close()
