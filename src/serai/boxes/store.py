"""The records of all boxes in one SQLite file, shared by every process of this user (spec hooks 5).

Durable before effect (design rule 14): WAL with full sync, one short transaction for each step. Nothing here is asynchronous; the
manager calls it from a thread of its own.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from serai.boxes.backend import Allowance
from serai.boxes.hooks import Hook
from serai.boxes.record import BoxRecord
from serai.database import Database
from serai.errors import BoxNotFound, BoxRefused, NotWritten

__all__ = ["NAME", "SEALED", "Sealer", "Store"]

NAME = "boxes.db"

# Additive only: an older file gets the columns that it lacks.
_COLUMNS = {
    "token_hash": "TEXT PRIMARY KEY",
    "instance_id": "TEXT NOT NULL DEFAULT ''",
    "box_id": "TEXT NOT NULL DEFAULT ''",
    "backend": "TEXT NOT NULL DEFAULT ''",
    "description": "TEXT NOT NULL DEFAULT ''",
    "status": "TEXT NOT NULL DEFAULT 'ready'",
    "last_error": "TEXT NOT NULL DEFAULT ''",
    "hook_state": "TEXT",
    "lifecycle": "TEXT NOT NULL DEFAULT 'running'",
    "created_at": "TEXT NOT NULL DEFAULT ''",
    "observed_name": "TEXT NOT NULL DEFAULT ''",
    "observed_image": "TEXT NOT NULL DEFAULT ''",
    "observed_state": "TEXT NOT NULL DEFAULT ''",
    "observed_at": "TEXT",
    "hooks": "TEXT",
    "hooks_done": "TEXT NOT NULL DEFAULT '[]'",
    "owner": "TEXT NOT NULL DEFAULT ''",
    "kept": "INTEGER NOT NULL DEFAULT 0",
    "expires_at": "REAL",
    "time_left": "REAL",
    "rootfs": "TEXT",
    "allowance": "TEXT NOT NULL DEFAULT '{}'",
    "env": "TEXT",
}


# What may hold credentials.
_PRIVATE = ("hook_state", "env", "hooks")
SEALED = "sealed:"  # no JSON begins so


class Sealer(Protocol):
    """Keeps texts unreadable at rest. `about` is bound to the text: a sealed one is good for that box alone."""

    def seal(self, text: str, about: str) -> str: ...
    def open(self, sealed: str, about: str) -> str: ...


class Store:
    """Opened once by each manager. Every method is one transaction, on disk when it returns."""

    def __init__(self, folder: str, sealer: Sealer | None = None) -> None:
        self.path = os.path.join(folder, NAME)
        self._sealer = sealer
        self._db = Database(self.path, "the records of boxes")
        self._close_to_others(folder)
        self._db.table("boxes", _COLUMNS)
        with self._db.writing() as rows:
            rows.execute("CREATE UNIQUE INDEX IF NOT EXISTS generations ON boxes (instance_id)")

    def close(self) -> None:
        self._db.close()

    def _close_to_others(self, folder: str) -> None:
        """The folder is ours alone, whoever made it: boxes' sockets and files lie below it."""
        try:
            os.chmod(folder, 0o700)
        except OSError as error:
            self._db.close()
            raise NotWritten(f"the records of boxes cannot be kept to you: {error.strerror}", who=folder) from None

    # -- life ---------------------------------------------------------------------------------------------------------------------

    def reserve(self, record: BoxRecord, most: int = 0) -> None:
        """Take the id, against every other process (spec hooks 3.1, 3.3), and write the intent. `most` 0 is any number."""
        with self._db.writing() as db:
            taken = db.execute(
                "SELECT * FROM boxes WHERE lower(box_id) = lower(?) AND lifecycle != 'terminated'", [record.box_id]
            ).fetchone()
            if taken is not None:
                how = "being created" if taken["lifecycle"] == "creating" else f'in use on "{taken["backend"]}"'
                raise BoxRefused(f'box ID "{record.box_id}" is already {how}; choose a different box ID', who=record.box_id)
            if db.execute("SELECT 1 FROM boxes WHERE instance_id = ?", [record.box_id]).fetchone() is not None:
                raise BoxRefused(f'box ID "{record.box_id}" is the generation of another box; choose a different box ID')
            [[count]] = db.execute("SELECT count(*) FROM boxes WHERE lifecycle != 'terminated'")
            if most and count >= most:
                raise BoxRefused(f"box limit reached ({count} boxes already running); destroy a box before creating another")
            row = self._row(record)
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO boxes ({', '.join(row)}) VALUES ({marks})", list(row.values()))  # noqa: S608  (our own names)

    def register(self, generation: str, **changes: Any) -> None:
        """It was made. Tombstones of the same id go in the same step (spec hooks 3.3)."""
        with self._db.writing() as db:
            self._update(db, generation, {**changes, "lifecycle": "running"})
            db.execute(
                "DELETE FROM boxes WHERE lifecycle = 'terminated' AND instance_id != ? AND lower(box_id) = "
                "(SELECT lower(box_id) FROM boxes WHERE instance_id = ?)",
                [generation, generation],
            )

    def change(self, generation: str, **changes: Any) -> None:
        with self._db.writing() as db:
            self._update(db, generation, changes)

    def claim(self, generation: str, old: str, new: str) -> bool:
        """Become its owner in place of one that is dead; False when somebody else was quicker."""
        with self._db.writing() as db:
            return (
                db.execute("UPDATE boxes SET owner = ? WHERE instance_id = ? AND owner = ?", [new, generation, old]).rowcount == 1
            )

    def delete(self, generation: str) -> None:
        with self._db.writing() as db:
            db.execute("DELETE FROM boxes WHERE instance_id = ?", [generation])

    # -- looking ------------------------------------------------------------------------------------------------------------------

    def by_generation(self, generation: str) -> BoxRecord | None:
        return next((record for record in self.all() if record.generation == generation), None)

    def all(self) -> list[BoxRecord]:
        """The newest first."""
        with self._db.told():
            return [self._record(row) for row in self._db.rows.execute("SELECT * FROM boxes ORDER BY created_at DESC, token_hash")]

    def get(self, name: str) -> BoxRecord | None:
        """By box id or generation, exactly; of several the living, then the newest, then the smallest token (spec hooks 3.8)."""
        found = [record for record in self.all() if name in (record.box_id, record.generation)]
        return min(found, key=lambda record: record.lifecycle == "terminated", default=None)

    # -- inside -------------------------------------------------------------------------------------------------------------------

    def _update(self, db: sqlite3.Connection, generation: str, changes: Mapping[str, Any]) -> None:
        fields = {key: self._plain(key, value, generation) for key, value in changes.items()}
        names = ", ".join(f"{name} = ?" for name in fields)
        done = db.execute(f"UPDATE boxes SET {names} WHERE instance_id = ?", [*fields.values(), generation])  # noqa: S608  (our own)
        if not done.rowcount:
            raise BoxNotFound(f"the record of box {generation} is gone", who=self.path)

    def _row(self, record: BoxRecord) -> dict[str, Any]:
        row = {key: getattr(record, "generation" if key == "instance_id" else key) for key in _COLUMNS}
        return {key: self._plain(key, value, record.generation) for key, value in row.items()}

    def _plain(self, key: str, value: Any, generation: str) -> Any:
        """As a column has it. States and variables may be credentials: sealed when a key is configured; none of them is NULL."""
        if key in _PRIVATE:
            if not value:
                return None
            text = json.dumps([asdict(hook) for hook in value] if key == "hooks" else dict(value))
            return self._sealer.seal(text, generation) if self._sealer else text
        if isinstance(value, Allowance):
            return json.dumps({"memory": value.memory, "cpus": value.cpus, "pids": value.pids})
        if isinstance(value, Sequence) and not isinstance(value, str):
            return json.dumps(list(value))
        return value

    def _record(self, row: sqlite3.Row) -> BoxRecord:
        fields = {name: row[name] for name in _COLUMNS}
        generation = fields["generation"] = fields.pop("instance_id")
        try:
            fields |= {key: self._opened(fields[key], generation) for key in _PRIVATE}
            fields["hooks"] = [Hook(**hook) for hook in fields["hooks"]]
        except (NotWritten, ValueError, TypeError) as error:  # of this box alone: the others are not to suffer
            fields |= {"hook_state": {}, "env": {}, "hooks": (), "unreadable": str(error)}
        fields["hooks_done"] = json.loads(fields["hooks_done"])
        fields["kept"] = bool(fields["kept"])
        fields["allowance"] = Allowance(**json.loads(fields["allowance"]))
        return BoxRecord(**fields)

    def _opened(self, text: str | None, generation: str) -> Any:
        if text is None:
            return {}
        if text.startswith(SEALED):
            if self._sealer is None:
                hint = "set `key_file` in [boxes]"
                raise NotWritten("the hook state of a box is encrypted and no key is configured", who=self.path, hint=hint)
            text = self._sealer.open(text, generation)
        return json.loads(text)
