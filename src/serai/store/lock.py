"""The lock of one session's file, `<file>.lock`: between processes, as every writer of sessions takes it (spec piglet 6.1)."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

from serai.errors import LimitHit, NotWritten

__all__ = ["Lock", "on_fork"]

_LOOK_AGAIN = 0.002


class Forks(Protocol):
    def after_fork(self) -> None: ...


# Whoever has locks: a thread that held one in the parent is not there in the child and never gives it back.
_forking: WeakSet[Forks] = WeakSet()


def on_fork(one: Forks) -> None:
    """Have its `after_fork` called in every child that this process forks, as long as it lives."""
    _forking.add(one)


def _after_fork() -> None:
    for one in list(_forking):
        one.after_fork()


os.register_at_fork(after_in_child=_after_fork)


class Lock:
    """Opened when it is first taken. It does not keep the threads of a process apart."""

    def __init__(self, path: str, who: str, wait: float) -> None:
        self._path = path
        self._who = who
        self._wait = wait
        self._descriptor = -1

    def take(self, given_up: Callable[[], None]) -> None:
        """Wait for it; `given_up` is called now and then and raises when nobody wants it any more."""
        deadline = time.monotonic() + self._wait
        while not self._try():
            given_up()
            if time.monotonic() > deadline:
                limit = LimitHit("session_lock", self._wait)
                raise NotWritten("somebody else holds its lock", who=self._who, limit=limit, hint="end whoever holds it")
            time.sleep(_LOOK_AGAIN)

    def give_back(self) -> None:
        if self._descriptor >= 0:  # not so in a child that was forked while its parent held it: that is still the parent's
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """In a forked child it lets go of the parent's lock, which stays the parent's."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _try(self) -> bool:
        try:
            if self._descriptor < 0:
                self._open()
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same_file(self._descriptor, self._path):
                return True
            self.close()  # somebody removed it, and others lock the one that is there now
        except BlockingIOError:
            pass
        except OSError as error:
            raise NotWritten(f"the session cannot be locked: {error.strerror}", who=self._who) from None
        return False

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        if os.fstat(self._descriptor).st_uid == os.geteuid():
            os.fchmod(self._descriptor, 0o600)  # whatever the umask took


def _same_file(descriptor: int, path: str) -> bool:
    """Whether that is the file of this name: not after it was removed or replaced."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
