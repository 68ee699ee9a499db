"""One session's file: read from either end, appended to by whoever holds its lock.

Several processes may have it open, some of them not ours. All hold `<file>.lock` while they append, readers hold nothing: what they
find at the very end may be half written. One append is one `write` of whole lines; one that fails is cut back, so that the session
goes on when there is room again, and one that a killed writer left half done is closed off by the next.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from serai.errors import BadSession, Closed, LimitHit, NoSession, NotWritten
from serai.limits import KIB, Limits
from serai.store.entries import Entry, Problems, decode_run
from serai.wire.framing import Framer, Oversize

__all__ = ["CHUNK", "File", "create"]

CHUNK = 64 * KIB
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a FIFO of that name must not make anybody wait
_LOOK_AGAIN = 0.002


class File:
    """An open session file. Its descriptor for appending, and the lock's, are opened when they are first needed."""

    def __init__(self, path: str, limits: Limits, *, chunk: int = CHUNK) -> None:
        self.path = path
        self._limit = limits.session_line
        self._wait = limits.session_lock
        self._chunk = min(chunk, self._limit)  # so that a line within one chunk is never too long
        self._pid = os.getpid()
        self._turn = threading.Lock()  # a file lock is between processes: threads share it
        self._append = self._lock = -1
        try:
            self._read = os.open(path, _READ)
        except FileNotFoundError:
            raise NoSession("there is no such session", who=path) from None
        except (OSError, ValueError) as error:
            raise BadSession(f"the file cannot be read: {getattr(error, 'strerror', error)}", who=path) from None
        if not stat.S_ISREG(os.fstat(self._read).st_mode):
            self.close()
            raise BadSession("it is no regular file", who=path)

    @property
    def closed(self) -> bool:
        return self._read < 0

    def close(self) -> None:
        for descriptor in (self._read, self._append, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._read = self._append = self._lock = -1

    @property
    def size(self) -> int:
        return os.fstat(self._open()).st_size

    def _open(self) -> int:
        if self._read < 0:
            raise Closed("the session is closed", who=self.path)
        return self._read

    # -- reading

    def piece(self, start: int, size: int) -> bytes:
        """So many bytes from there, or what there is."""
        try:
            return os.pread(self._open(), size, start)
        except OSError as error:
            raise BadSession(f"the file cannot be read: {error.strerror}", who=self.path) from None

    def forwards(self, start: int, problems: Problems) -> Iterator[list[Entry]]:
        """The entries from there on, in order, some at a time; of a line that is too long only its head is ever in memory."""
        framer = Framer(self._limit)
        at = read = start
        while True:
            chunk = self.piece(read, self._chunk)
            read += len(chunk)
            for run in framer.feed(chunk) if chunk else framer.eof():
                if isinstance(run, Oversize):
                    problems.add(at, f"a line of {run.size} bytes: the limit is {run.limit}")
                    at += run.size
                else:
                    yield decode_run(run, at, problems)
                    at += len(run)
            if not chunk:
                return

    def backwards(self, problems: Problems) -> Iterator[tuple[int, bytes]]:
        """Stretches of whole lines with their offsets, the last one first."""
        later: list[bytes] = []  # the rest of a line whose beginning is not found yet, its last piece first
        kept = 0
        start = self.size
        while start > 0:
            end, start = start, max(0, start - self._chunk)
            chunk = self.piece(start, end - start)
            cut = chunk.find(b"\n") + 1 if start else 0
            if cut or not start:
                run = self._joined(chunk[cut:], later, kept, start + cut, problems)
                if run:
                    yield start + cut, run
                later, kept = [], 0
                chunk = chunk[:cut]
            kept += len(chunk)
            later.append(chunk)
            if kept > self._limit:
                later.clear()  # only its length matters now

    def _joined(self, run: bytes, later: list[bytes], kept: int, at: int, problems: Problems) -> bytes:
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
    def locked(self) -> Iterator[int]:
        """Hold the lock; the size of the file, which nobody changes meanwhile."""
        self._open()
        with self._turn:
            self._prepare()
            self._wait_for_lock()
            try:
                now = os.fstat(self._append)
                if not now.st_nlink:
                    raise NotWritten("the session's file was removed", who=self.path, hint="go on with another session")
                yield now.st_size
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _prepare(self) -> None:
        if self._append >= 0 and self._pid == os.getpid():
            return  # a forked child has its parent's lock, which keeps nobody out: it opens its own
        lock = -1
        try:
            lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            if os.fstat(lock).st_uid == os.geteuid():
                os.fchmod(lock, 0o600)  # whatever the umask took
            self._append = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if lock >= 0:
                os.close(lock)
            raise NotWritten(f"the session cannot be written: {error.strerror}", who=self.path) from None
        self._lock, self._pid = lock, os.getpid()

    def _wait_for_lock(self) -> None:
        deadline = time.monotonic() + self._wait
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    limit = LimitHit("session_lock", self._wait)
                    hint = "end whoever holds it"
                    raise NotWritten("somebody else holds its lock", who=self.path, limit=limit, hint=hint) from None
            time.sleep(_LOOK_AGAIN)

    def ends_open(self, size: int) -> bool:
        """Whether the last line has no end: somebody was killed, or the disk was full."""
        return size > 0 and self.piece(size - 1, 1) != b"\n"

    def write(self, lines: bytes, size: int) -> None:
        """Append them all or none, under the lock, to a file that has this size."""
        done = 0
        try:
            while done < len(lines):
                done += os.write(self._append, memoryview(lines)[done:])
        except BaseException as error:
            try:
                os.ftruncate(self._append, size)
            except OSError:
                pass  # the next append closes the torn line off
            if isinstance(error, OSError):
                raise NotWritten(f"the session cannot be written: {error.strerror}", who=self.path) from None
            raise

    def sync(self) -> None:
        """What was appended is on the disk."""
        self._open()
        if self._append >= 0:
            try:
                os.fdatasync(self._append)
            except OSError as error:
                raise NotWritten(f"the session cannot be synced: {error.strerror}", who=self.path) from None


def create(path: str, lines: Iterator[bytes]) -> None:
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
