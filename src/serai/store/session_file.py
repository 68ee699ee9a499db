"""One session's file: read from either end, appended to under its lock (spec piglet 6.1).

Several processes may have it open, some of them not ours. All hold `<file>.lock` while they append, readers hold nothing: what
they find at the very end may be half written. One append is one `write` of whole lines; one that fails is cut back, so that the
session goes on when there is room again, and one that a killed writer left half done is closed off by the next.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

from serai.errors import BadSession, Closed, LimitHit, NoSession, NotWritten
from serai.limits import KIB, StoreLimits
from serai.store.entries import ReadProblems, SessionEntry, decode_run
from serai.wire.stream import Framer, Oversize

_LOOK_AGAIN = 0.002


class ForkAware(Protocol):
    def after_fork(self) -> None: ...


# Whoever has locks: a thread that held one in the parent is not there in the child and never gives it back.
_forking: WeakSet[ForkAware] = WeakSet()


def on_fork(one: ForkAware) -> None:
    """Have its `after_fork` called in every child that this process forks, as long as it lives."""
    _forking.add(one)


def _after_fork() -> None:
    for one in list(_forking):
        one.after_fork()


os.register_at_fork(after_in_child=_after_fork)


class SessionLock:
    """Opened when it is first taken. It does not keep the threads of a process apart."""

    def __init__(self, path: str, who: str, wait: float) -> None:
        self._path = path
        self._who = who
        self._wait = wait
        self._descriptor = -1

    def acquire(self, given_up: Callable[[], None]) -> None:
        """Wait for it; `given_up` is called now and then and raises when nobody wants it any more."""
        deadline = time.monotonic() + self._wait
        while not self._try_acquire():
            given_up()
            if time.monotonic() > deadline:
                limit = LimitHit("session_lock", self._wait)
                raise NotWritten("somebody else holds its lock", who=self._who, limit=limit, hint="end whoever holds it")
            time.sleep(_LOOK_AGAIN)

    def release(self) -> None:
        if self._descriptor >= 0:  # not so in a child that was forked while its parent held it: that is still the parent's
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """In a forked child it lets go of the parent's lock, which stays the parent's."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _try_acquire(self) -> bool:
        try:
            if self._descriptor < 0:
                self._open()
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(self._descriptor, self._path):
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


def _is_same_file(descriptor: int, path: str) -> bool:
    """Whether that is the file of this name: not after it was removed or replaced."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


CHUNK = 64 * KIB
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a FIFO of that name must not make anybody wait
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK


class SessionFile:
    """An open session file. Threads may share it. Its descriptor for appending is opened when it is first needed."""

    def __init__(self, path: str, limits: StoreLimits, *, chunk: int = CHUNK) -> None:
        self.path = path
        # How long the file was when its user last knew how it ends; -1 when that is not known, as after it was replaced.
        self.seen = -1
        self._limit = limits.session_line
        self._chunk = min(chunk, self._limit)  # so that a line within one chunk is never too long
        self.closed = False
        self._read = self._append = -1
        try:
            self._real = os.path.realpath(path)  # where everybody finds the lock, whatever links lead here
            self._read = self._open(_READ)
        except FileNotFoundError:
            raise NoSession("there is no such session", who=path) from None
        except (OSError, ValueError) as error:
            raise BadSession(f"the file cannot be read: {getattr(error, 'strerror', error)}", who=path) from None
        self._lock = SessionLock(f"{self._real}.lock", path, limits.session_lock)
        self.after_fork()
        on_fork(self)

    def after_fork(self) -> None:
        """In a child: its own locks, for the parent's threads are not here to give back what they hold."""
        self._turn = threading.Lock()  # who appends: the file's lock is between processes, threads share it
        self._held = threading.Lock()  # so that a descriptor that is used is not closed meanwhile
        self._lock.close()

    def close(self) -> None:
        """Waits for an append that has begun, not for one that is still waiting for the lock."""
        self.closed = True
        with self._turn, self._held:
            for descriptor in (self._read, self._append):
                if descriptor >= 0:
                    os.close(descriptor)
            self._read = self._append = -1
            self._lock.close()

    def _check_open(self) -> None:
        if self.closed:
            raise Closed("the session is closed", who=self.path)

    @property
    def size(self) -> int:
        with self._held:
            self._check_open()
            return os.fstat(self._read).st_size

    # -- reading

    def read_piece(self, start: int, size: int) -> bytes:
        """So many bytes from there, or what there is."""
        with self._held:
            self._check_open()
            try:
                return os.pread(self._read, size, start)
            except OSError as error:
                raise BadSession(f"the file cannot be read: {error.strerror}", who=self.path) from None

    @contextmanager
    def hold_for_update(self) -> Iterator[bool]:
        """Whether what was seen is true no more. Not told while another thread appends: that one looks itself."""
        self._check_open()
        turn = self._turn
        if not turn.acquire(blocking=False):
            yield False
            return
        try:
            self._check_open()
            self._follow()  # of one that was removed we still have all
            yield self.size != self.seen
        except OSError as error:
            raise BadSession(f"the file cannot be read: {error.strerror}", who=self.path) from None
        finally:
            turn.release()

    def read_forwards(self, start: int, problems: ReadProblems) -> Iterator[list[SessionEntry]]:
        """The entries from there on, in order, some at a time; of a line that is too long only its head is ever in memory."""
        framer = Framer(self._limit)
        at = read = start
        while True:
            chunk = self.read_piece(read, self._chunk)
            read += len(chunk)
            for run in framer.feed(chunk) if chunk else framer.feed_eof():
                if isinstance(run, Oversize):
                    problems.add(at, f"a line of {run.size} bytes: the limit is {run.limit}")
                    at += run.size
                else:
                    yield decode_run(run, at, problems)
                    at += len(run)
            if not chunk:
                return

    def read_backwards(self, problems: ReadProblems) -> Iterator[tuple[int, bytes]]:
        """Stretches of whole lines with their offsets, the last one first."""
        later: list[bytes] = []  # the rest of a line whose beginning is not found yet, its last piece first
        kept = 0
        start = self.size
        while start > 0:
            end, start = start, max(0, start - self._chunk)
            chunk = self.read_piece(start, end - start)
            cut = chunk.find(b"\n") + 1 if start else 0
            if cut or not start:
                run = self._join_line(chunk[cut:], later, kept, start + cut, problems)
                if run:
                    yield start + cut, run
                later, kept = [], 0
                chunk = chunk[:cut]
            kept += len(chunk)
            later.append(chunk)
            if kept > self._limit:
                later.clear()  # only its length matters now

    def _join_line(self, run: bytes, later: list[bytes], kept: int, at: int, problems: ReadProblems) -> bytes:
        """A run and the line that ends it, unless that is too long."""
        last = run.rfind(b"\n") + 1
        if len(run) - last + kept > self._limit:
            problems.add(at + last, f"a line of {len(run) - last + kept} bytes: the limit is {self._limit}")
            run = run[:last]
        elif kept:
            run = b"".join((run, *reversed(later)))
        return run

    # -- appending

    @contextmanager
    def lock(self) -> Iterator[int]:
        """Hold the lock; the size of the file, which nobody changes meanwhile."""
        turn = self._turn
        with turn:
            self._check_open()
            self._lock.acquire(self._check_open)
            try:
                if not self._follow():
                    raise NotWritten("the session's file was removed", who=self.path, hint="go on with another session")
                if self._append < 0:
                    self._append = self._open(_APPEND)
                yield os.fstat(self._append).st_size
            except OSError as error:
                raise NotWritten(f"the session cannot be written: {error.strerror}", who=self.path) from None
            finally:
                self._lock.release()

    def _follow(self) -> bool:
        """Go on in the file that has the name now: some programs replace what they change. False when there is none.

        Only for who has the turn.
        """
        try:
            there = os.stat(self._real)
        except FileNotFoundError:
            return False
        for own, flags in ((self._read, _READ), (self._append, _APPEND)):
            if own >= 0 and not os.path.samestat(there, os.fstat(own)):
                fresh = self._open(flags)
                # Under the old number, so that whoever reads at this moment is not left with another file's.
                os.dup2(fresh, own, inheritable=False)
                os.close(fresh)
                self.seen = -1
        return True

    def _open(self, flags: int) -> int:
        descriptor = os.open(self._real, flags)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise BadSession("it is no regular file", who=self.path)
        return descriptor

    def ends_open(self, size: int) -> bool:
        """Whether the last line has no end: somebody was killed, or the disk was full."""
        return size > 0 and self.read_piece(size - 1, 1) != b"\n"

    def write(self, lines: bytes, size: int) -> None:
        """Append them all or none, under the lock, to a file that has this size."""
        done = 0
        try:
            while done < len(lines):
                done += os.write(self._append, memoryview(lines)[done:])
        except BaseException:
            try:
                os.ftruncate(self._append, size)
            except OSError:
                pass  # the next append closes the torn line off
            raise

    def sync(self) -> None:
        """What was appended is on the disk. Others may append meanwhile."""
        with self._held:
            self._check_open()
            if self._append < 0:
                return
            own = os.dup(self._append)
        try:
            os.fdatasync(own)
        except OSError as error:
            raise NotWritten(f"the session cannot be synced: {error.strerror}", who=self.path) from None
        finally:
            os.close(own)


def create_session_file(path: str, lines: Iterator[bytes]) -> None:
    """Make a session's file with these lines: for this user alone, on the disk, and whole or not at all."""
    draft = f"{path}.part"
    folder = os.path.dirname(path)
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb", buffering=CHUNK) as file:
                os.fchmod(descriptor, 0o600)
                file.writelines(lines)
                file.flush()
                os.fsync(descriptor)
            os.rename(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
        sync_folder(folder)
    except OSError as error:
        raise NotWritten(f"the session cannot be made: {error.strerror}", who=path) from None


def sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
