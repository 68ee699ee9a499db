"""A guest's log: its stderr and the host's remarks on it, in one file that stays small (spec zot 2.1).

The child writes straight into the file, without a pipe in between: a flood of it can neither block the child nor hold up the host
(spec zot 7.40). So nobody counts what it writes, and `trim` is called from time to time.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from serai import paths
from serai.atomic_file import write_atomically
from serai.errors import LimitHit, PeerGone, SpawnFailed
from serai.limits import MIB
from serai.plain_text import escape_line, spell_literal

log = logging.getLogger("serai.host")

LOOK = 0.5  # seconds: how often a log is looked at, as nobody counts what a guest writes into its own
REMARK = b"[serai] "  # how a line of ours begins
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_HASHED = re.compile(r"-[0-9a-f]{16}$")
_NAME = 100  # characters: with all that is added it fits any file system
_REMARK = 4000  # characters: what a guest sent may be in it


def to_safe_name(name: str) -> str:
    """A part of a file name for any guest's name: never another's, never out of the folder (spec zot 7.41).

    What is changed gets a digest of the original, and so does what only looks as if it had one.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:_NAME]
    if safe.startswith("."):
        safe = f"_{safe[1:]}"
    if safe == name and name and not _HASHED.search(name):
        return name
    return f"{safe}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}"


def build_log_path(folder: Path, name: str) -> Path:
    """Where the log of the guest of that name lies in the folder of logs."""
    return folder / f"ext-{to_safe_name(name)}.log"


def escape_remark(text: str) -> str:
    """A guest's words on one line of a log, where no character of it does anything; of a long one the beginning."""
    return escape_line(text if len(text) <= _REMARK else f"{text[:_REMARK]}…", spell_literal)


def open_log(path: Path) -> BinaryIO:
    """A log to be read. Never waits: what is no plain file is an `OSError` that says so."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_is_file(descriptor)
        return open(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def _check_is_file(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "it is not a file")


class GuestLog:
    """The open log of one guest. `descriptor` is for the child's stderr; -1 once closed."""

    def __init__(self, folder: Path, name: str, *, limit: int = MIB) -> None:
        self.path = build_log_path(folder, name)
        self.limit = limit
        self.descriptor = -1
        self._complained = False
        self._moved = 0  # how many bytes of this start `trim` has put at the end of the older file
        try:
            paths.make_private_folder(folder)
            folder.chmod(0o700)
            self.descriptor = self._open()
        except OSError as error:
            hint = "make it writable; the guest cannot be started without its log"
            reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
            raise SpawnFailed(f"open log: {self.path}: {reason}", who=name, errno=error.errno or 0, hint=hint) from None
        self._since = self._get_size()
        self.trim()
        self._since, self._moved = self._get_size(), 0

    def _open(self) -> int:
        descriptor = os.open(self.path, _FLAGS, 0o600)
        try:
            _check_is_file(descriptor)
            os.fchmod(descriptor, 0o600)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def remark(self, text: str) -> None:
        """One line of the host's own. Never raises: a full disk must not end what is remarked on."""
        if self.descriptor < 0:
            return
        line = REMARK + f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {escape_remark(text)}\n".encode()
        try:
            size = self._get_size()
            if size and os.pread(self.descriptor, 1, size - 1) != b"\n":  # the child was in the middle of a line
                line = b"\n" + line
            os.write(self.descriptor, line)
        except OSError as error:
            self._complain(error)
        self.trim()

    def write_output(self, run: bytes) -> None:
        """What it wrote where only frames should be, or nothing: kept beside its stderr. Never raises."""
        if self.descriptor >= 0:
            try:
                os.write(self.descriptor, run)
            except OSError as error:
                self._complain(error)

    def read_tail(self, limit: int) -> bytes:
        """The last bytes that were written since this start, at most so many."""
        if self.descriptor < 0:
            return b""
        try:
            size = self._get_size()
            since = self._since if self._since <= size else 0  # another Serai has trimmed it
            fresh = os.pread(self.descriptor, min(limit, size - since), max(since, size - limit))
            missing = min(limit - len(fresh), self._moved)
            return (_read_last(self._older, missing) if missing > 0 else b"") + fresh
        except OSError as error:
            self._complain(error)
            return b""

    def trim(self) -> None:
        """Beyond the limit the last half goes to the older file, `….log.1`, and the rest is forgotten.

        The child may write in the moment between copy and cut; those lines are lost, and nothing else ever.
        """
        if self.descriptor < 0:
            return
        try:
            size = self._get_size()
            if size <= self.limit:
                return
            kept = os.pread(self.descriptor, self.limit // 2, size - self.limit // 2)
            write_atomically(self._older, kept)
            os.ftruncate(self.descriptor, 0)
        except OSError as error:
            self._complain(error)
            return
        self._moved = min(len(kept), max(size - self._since, 0))
        self._since = 0

    def check_size(self) -> int:
        """Keep it small. How many bytes there were, if that was too much."""
        if self.descriptor < 0 or (written := self._get_size()) <= self.limit:
            return 0
        self.trim()
        return written

    def close(self) -> None:
        """Let go of the file; a child that has it goes on writing. Idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    @property
    def _older(self) -> Path:
        return self.path.with_name(f"{self.path.name}.1")

    def _get_size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            log.warning("%s: the log cannot be kept: %s", self.path, error.strerror)


def check_flood(written: int, most: int, who: str) -> PeerGone | None:
    """Why a guest is ended that wrote so much between two looks; None if that is not too much."""
    if written <= most:
        return None
    return PeerGone(f"was ended: it wrote {written} bytes into its log at once", who=who, limit=LimitHit("log_flood", most))


def _read_last(path: Path, count: int) -> bytes:
    with open_log(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - count, 0))
        return file.read(count)
