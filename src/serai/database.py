"""A SQLite file of this user's alone, shared by every process of theirs: what boxes and approvals are kept in.

Durable before effect (design rule 14): WAL with full sync, and a transaction is on disk when it ends.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from serai.errors import NotWritten
from serai.paths import make_private_folder

MEMORY = ":memory:"  # a path: nothing is on disk
_BUSY = 5.0  # seconds for somebody else's transaction (spec hooks 5)
_BRIEFLY = 50  # milliseconds for who is just reading


class Database:
    """Used by one thread at a time. `what` says in errors what it holds, `busy` how long others are waited for, in seconds.

    One that only `reads` waits for nobody who writes; its file and tables are there already.
    """

    def __init__(self, path: str, what: str, busy: float = _BUSY, *, reads: bool = False) -> None:
        self.path = path
        self._what = what
        self._busy = busy
        with self._translate_errors("opened", OSError):
            if path != MEMORY and not reads:
                _make_private(path)
            self.rows = sqlite3.connect(path, timeout=busy, isolation_level=None, check_same_thread=False)
            try:
                self._set_up(reads=reads)
            except BaseException:
                self.rows.close()
                raise
        self._file = _read_identity(path)

    def _set_up(self, *, reads: bool) -> None:
        self.rows.row_factory = sqlite3.Row
        if reads:
            self.rows.execute("PRAGMA query_only = ON")
            return
        self._use_wal(self._busy)
        self.rows.execute("PRAGMA synchronous = FULL")
        self.rows.execute("PRAGMA secure_delete = ON")  # what is taken out may be secret (design rule 13)

    def _use_wal(self, busy: float) -> None:
        """SQLite does not wait by itself while another makes the same new file WAL."""
        end = time.monotonic() + busy
        while True:
            try:
                self.rows.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                    raise
            time.sleep(0.01)

    def close(self) -> None:
        self.rows.close()

    def has_moved(self) -> bool:
        """Whether its file was taken away or replaced: nobody else would see what is written from now on."""
        return self.path != MEMORY and _read_identity(self.path) != self._file

    def scrub(self) -> bool:
        """Take what was taken out from the disk too. Who still reads is waited for only briefly: False, try again later."""
        with self.translate_errors():
            self.rows.execute(f"PRAGMA busy_timeout = {_BRIEFLY}")
            try:
                [(blocked, *_)] = self.rows.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                self.rows.execute(f"PRAGMA busy_timeout = {round(self._busy * 1000)}")
        return not blocked

    def ensure_table(self, name: str, columns: Mapping[str, str]) -> None:
        """Make a table, or give an older one the columns that it lacks. Nothing is ever taken away."""
        with self.transaction() as rows:
            rows.execute(f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(f'{key} {kind}' for key, kind in columns.items())})")
            there = {row["name"] for row in rows.execute(f"PRAGMA table_info({name})")}
            for key, kind in columns.items():
                if key not in there:
                    rows.execute(f"ALTER TABLE {name} ADD COLUMN {key} {kind}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction, on disk at its end; nothing of it when it fails."""
        with self.translate_errors():
            self.rows.execute("BEGIN IMMEDIATE")
            try:
                yield self.rows
                self.rows.execute("COMMIT")
            except BaseException:
                if self.rows.in_transaction:
                    self.rows.execute("ROLLBACK")
                raise

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """SQLite's errors as ours, and texts that are none."""
        with self._translate_errors("used"):
            yield

    @contextmanager
    def _translate_errors(self, done: str, *more: type[Exception]) -> Iterator[None]:
        kinds: tuple[type[Exception], ...] = (sqlite3.Error, UnicodeError, *more)
        try:
            yield
        except kinds as error:
            raise NotWritten(f"{self._what} cannot be {done}: {error}", who=self.path, hint=_find_hint(error)) from None


def _find_hint(error: Exception) -> str:
    """What to do about it; empty: what is always to be done, make room or make it writable."""
    if isinstance(error, UnicodeError):
        return "give texts that are UTF-8"
    if isinstance(error, IsADirectoryError):
        return "there is a folder in its place: move it away"
    return _HINTS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "")


_HINTS = {
    sqlite3.SQLITE_BUSY: "another process holds the file: try again when it is done",
    sqlite3.SQLITE_LOCKED: "another process holds the file: try again when it is done",
    sqlite3.SQLITE_NOTADB: "move the file away: a new one is made",
    sqlite3.SQLITE_CORRUPT: "move the file away: a new one is made",
}


def _read_identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make_private(path: str) -> None:
    """The file, and its folder if that is made now, for this user alone, whatever the umask says.

    SQLite's own files take their mode from it. A folder that is there already has the mode that somebody gave it.
    """
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        make_private_folder(folder)
        os.chmod(folder, 0o700)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    # Made without being opened: to close it would drop the locks that another connection of this process has on it.
    with suppress(FileExistsError):
        os.mknod(path, 0o600)
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.chmod(path + suffix, 0o600)
