"""A SQLite file of this user's alone, shared by every process of theirs: what boxes and approvals are kept in.

Durable before effect (design rule 14): WAL with full sync, and a transaction is on disk when it ends.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from serai.errors import NotWritten
from serai.home import make_folder

__all__ = ["Database"]

_BUSY = 5.0  # seconds for somebody else's transaction (spec hooks 5)


class Database:
    """Opened once by whoever uses it, and used by one thread at a time. `what` says in errors what it holds."""

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        self._what = what
        try:
            make_folder(os.path.dirname(path))
            os.chmod(os.path.dirname(path), 0o700)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self.rows = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
            self.rows.row_factory = sqlite3.Row
            self.rows.execute("PRAGMA journal_mode = WAL")
            self.rows.execute("PRAGMA synchronous = FULL")
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.chmod(path + suffix, 0o600)
        except (OSError, sqlite3.Error) as error:
            raise NotWritten(f"{what} cannot be opened: {error}", who=path) from None

    def close(self) -> None:
        self.rows.close()

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
