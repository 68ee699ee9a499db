"""A SQLite file of this user's alone, shared by every process of theirs: what boxes and approvals are kept in.

Durable before effect (design rule 14): WAL with full sync, and a transaction is on disk when it ends.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from serai.errors import NotWritten
from serai.home import make_folder

__all__ = ["MEMORY", "Database"]

MEMORY = ":memory:"  # a path: nothing is on disk
_BUSY = 5.0  # seconds for somebody else's transaction (spec hooks 5)


class Database:
    """Used by one thread at a time. `what` says in errors what it holds, `busy` how long others are waited for, in seconds."""

    def __init__(self, path: str, what: str, busy: float = _BUSY) -> None:
        self.path = path
        self._what = what
        try:
            if path != MEMORY:
                _make_private(path)
            self.rows = sqlite3.connect(path, timeout=busy, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise NotWritten(f"{what} cannot be opened: {error}", who=path) from None
        try:
            self.rows.row_factory = sqlite3.Row
            self._use_wal(busy)
            self.rows.execute("PRAGMA synchronous = FULL")
            self.rows.execute("PRAGMA secure_delete = ON")  # what is taken out may be secret (design rule 13)
        except sqlite3.Error as error:
            self.rows.close()
            raise NotWritten(f"{what} cannot be opened: {error}", who=path) from None

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

    def scrub(self) -> None:
        """What was taken out is gone from the disk too, unless somebody still reads: then with the next one."""
        with self.told():
            self.rows.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def table(self, name: str, columns: Mapping[str, str]) -> None:
        """Make a table, or give an older one the columns that it lacks. Nothing is ever taken away."""
        with self.writing() as rows:
            rows.execute(f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(f'{key} {kind}' for key, kind in columns.items())})")
            there = {row["name"] for row in rows.execute(f"PRAGMA table_info({name})")}
            for key, kind in columns.items():
                if key not in there:
                    rows.execute(f"ALTER TABLE {name} ADD COLUMN {key} {kind}")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, on disk at its end; nothing of it when it fails."""
        with self.told():
            self.rows.execute("BEGIN IMMEDIATE")
            try:
                yield self.rows
                self.rows.execute("COMMIT")
            except BaseException:
                if self.rows.in_transaction:
                    self.rows.execute("ROLLBACK")
                raise

    @contextmanager
    def told(self) -> Iterator[None]:
        """SQLite's errors as ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise NotWritten(f"{self._what} cannot be used: {error}", who=self.path) from None


def _make_private(path: str) -> None:
    """The file and its folder, for this user alone, whatever the umask says; SQLite's own files take their mode from it."""
    make_folder(os.path.dirname(path))
    os.chmod(os.path.dirname(path), 0o700)
    # Made without being opened: to close it would drop the locks that another connection of this process has on it.
    with suppress(FileExistsError):
        os.mknod(path, 0o600)
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.chmod(path + suffix, 0o600)
