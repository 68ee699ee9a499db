"""The records of all boxes in one SQLite file, shared by every process of this user (spec hooks 5).

A record is enough for another process to end the box and to undo what its hooks did. Durable before effect (design rule 14): WAL
with full sync, one short transaction for each step. Nothing here is asynchronous; the manager calls it from a thread of its own.

Hook state is encrypted at rest when a person has configured a key (spec hooks 5): AES-256-GCM from `cryptography`, which is
imported only here, so that no library is needed without a key.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import sqlite3
import time
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from serai.boxes.backend import BoxResources, BoxSpec
from serai.boxes.hooks import Hook
from serai.database import Database
from serai.errors import BadSettings, BoxNotFound, BoxRefused, NotWritten

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# creating: an intent, its hooks may have run (spec hooks 2.4); running: it was made; terminated: a tombstone, which tells why.
Lifecycle = Literal["creating", "running", "terminated"]

_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxRecord:
    """One box. The token itself is nowhere: only who made the box has it (spec hooks 3.1)."""

    token_hash: str
    generation: str
    box_id: str
    backend: str
    created_at: str
    description: str = ""
    status: Literal["ready", "broken"] = "ready"  # fixed at creation: whether its init script succeeded
    last_error: str = ""
    lifecycle: Lifecycle = "creating"
    hooks: Sequence[Hook] = field(default=(), repr=False)  # in order, with all they need to be told of its end
    hook_state: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold credentials: never shown
    hooks_done: Sequence[str] = ()  # keys of those that have been told of its end
    owner: str = ""  # who looks after it (`serai.boxes.ownership`)
    kept: bool = False
    expires_at: float | None = None  # seconds since the epoch
    time_left: float | None = None  # of its time to live, while it is paused
    rootfs: str | None = None
    allowance: BoxResources = field(default_factory=BoxResources)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    unreadable: str = ""  # why what its hooks need is not known: then it must not be ended without them
    observed_name: str = ""
    observed_image: str = ""
    observed_state: str = ""
    observed_at: str | None = None  # None: never

    @property
    def wanted(self) -> BoxSpec:
        return BoxSpec(box_id=self.box_id, generation=self.generation, rootfs=self.rootfs, allowance=self.allowance)

    @property
    def state(self) -> str:
        """What a person is shown (spec hooks 3.2)."""
        if self.lifecycle == "terminated":
            return "terminated"
        return "creating" if self.lifecycle == "creating" else self.observed_state or "running"

    def to_json(self) -> dict[str, object]:
        """What may be shown of it: neither states nor environment."""
        shown: dict[str, object] = {
            "box_id": self.box_id,
            "generation": self.generation,
            "backend": self.backend,
            "state": self.state,
            "kept": self.kept,
            "created_at": self.created_at,
            "hooks": [hook.key for hook in self.hooks],
        }
        if self.status == "broken":
            shown["phase"] = "broken"
        limits = {"memory": self.allowance.memory, "cpus": self.allowance.cpus, "pids": self.allowance.pids}
        more = {
            "description": self.description,
            "last_error": self.last_error or self.unreadable,
            "rootfs": self.rootfs,
            "image": self.observed_image,
            "last_seen": self.observed_at,
            "limits": {name: value for name, value in limits.items() if value is not None},
        }
        shown |= {key: value for key, value in more.items() if value}
        if self.expires_at is not None:
            shown["expires_at"] = format_time(int(self.expires_at * 1e9))
        return shown


def check_id(box_id: str) -> None:
    """A box id is a host name, which it is inside the box (spec hooks 3.1)."""
    if not box_id:
        raise BoxRefused("a box ID is required", hint="such as `web-1`")
    if not _ID.fullmatch(box_id):
        raise BoxRefused(
            f'invalid box ID "{box_id}": must be a valid hostname (lowercase letters, digits, and hyphens)',
            hint="1 to 63 characters, the first and the last of them a letter or a digit",
        )


def make_token() -> str:
    return secrets.token_hex(32)


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def now() -> str:
    return format_time(time.time_ns())


def format_time(nanoseconds: int) -> str:
    """RFC 3339 with nanoseconds, of one length so that it also sorts (spec hooks 5)."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"


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


class BoxStore:
    """Opened once by each manager. Every method is one transaction, on disk when it returns."""

    def __init__(self, folder: str, sealer: Sealer | None = None) -> None:
        self.path = os.path.join(folder, NAME)
        self._sealer = sealer
        self._db = Database(self.path, "the records of boxes")
        self._make_private(folder)
        self._db.ensure_table("boxes", _COLUMNS)
        with self._db.transaction() as rows:
            rows.execute("CREATE UNIQUE INDEX IF NOT EXISTS generations ON boxes (instance_id)")

    def close(self) -> None:
        self._db.close()

    def _make_private(self, folder: str) -> None:
        """The folder is ours alone, whoever made it: boxes' sockets and files lie below it."""
        try:
            os.chmod(folder, 0o700)
        except OSError as error:
            self._db.close()
            raise NotWritten(f"the records of boxes cannot be kept to you: {error.strerror}", who=folder) from None

    # -- life ---------------------------------------------------------------------------------------------------------------------

    def reserve(self, record: BoxRecord, most: int = 0) -> None:
        """Take the id, against every other process (spec hooks 3.1, 3.3), and write the intent. `most` 0 is any number."""
        with self._db.transaction() as db:
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
            row = self._to_row(record)
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO boxes ({', '.join(row)}) VALUES ({marks})", list(row.values()))  # noqa: S608  (our own names)

    def register(self, generation: str, **changes: Any) -> None:
        """It was made. Tombstones of the same id go in the same step (spec hooks 3.3)."""
        with self._db.transaction() as db:
            self._update(db, generation, {**changes, "lifecycle": "running"})
            db.execute(
                "DELETE FROM boxes WHERE lifecycle = 'terminated' AND instance_id != ? AND lower(box_id) = "
                "(SELECT lower(box_id) FROM boxes WHERE instance_id = ?)",
                [generation, generation],
            )

    def change(self, generation: str, **changes: Any) -> None:
        with self._db.transaction() as db:
            self._update(db, generation, changes)

    def claim(self, generation: str, old: str, new: str) -> bool:
        """Become its owner in place of one that is dead; False when somebody else was quicker."""
        with self._db.transaction() as db:
            return (
                db.execute("UPDATE boxes SET owner = ? WHERE instance_id = ? AND owner = ?", [new, generation, old]).rowcount == 1
            )

    def delete(self, generation: str) -> None:
        with self._db.transaction() as db:
            db.execute("DELETE FROM boxes WHERE instance_id = ?", [generation])

    # -- looking ------------------------------------------------------------------------------------------------------------------

    def find_by_generation(self, generation: str) -> BoxRecord | None:
        return next((record for record in self.list_all() if record.generation == generation), None)

    def list_all(self) -> list[BoxRecord]:
        """The newest first."""
        with self._db.translate_errors():
            return [self._record(row) for row in self._db.rows.execute("SELECT * FROM boxes ORDER BY created_at DESC, token_hash")]

    def get(self, name: str) -> BoxRecord | None:
        """By box id or generation, exactly; of several the living, then the newest, then the smallest token (spec hooks 3.8)."""
        found = [record for record in self.list_all() if name in (record.box_id, record.generation)]
        return min(found, key=lambda record: record.lifecycle == "terminated", default=None)

    # -- inside -------------------------------------------------------------------------------------------------------------------

    def _update(self, db: sqlite3.Connection, generation: str, changes: Mapping[str, Any]) -> None:
        fields = {key: self._to_column(key, value, generation) for key, value in changes.items()}
        names = ", ".join(f"{name} = ?" for name in fields)
        done = db.execute(f"UPDATE boxes SET {names} WHERE instance_id = ?", [*fields.values(), generation])  # noqa: S608  (our own)
        if not done.rowcount:
            raise BoxNotFound(f"the record of box {generation} is gone", who=self.path)

    def _to_row(self, record: BoxRecord) -> dict[str, Any]:
        row = {key: getattr(record, "generation" if key == "instance_id" else key) for key in _COLUMNS}
        return {key: self._to_column(key, value, record.generation) for key, value in row.items()}

    def _to_column(self, key: str, value: Any, generation: str) -> Any:
        """As a column has it. States and variables may be credentials: sealed when a key is configured; none of them is NULL."""
        if key in _PRIVATE:
            if not value:
                return None
            text = json.dumps([asdict(hook) for hook in value] if key == "hooks" else dict(value))
            return self._sealer.seal(text, generation) if self._sealer else text
        if isinstance(value, BoxResources):
            return json.dumps({"memory": value.memory, "cpus": value.cpus, "pids": value.pids})
        if isinstance(value, Sequence) and not isinstance(value, str):
            return json.dumps(list(value))
        return value

    def _record(self, row: sqlite3.Row) -> BoxRecord:
        fields = {name: row[name] for name in _COLUMNS}
        generation = fields["generation"] = fields.pop("instance_id")
        try:
            fields |= {key: self._unseal(fields[key], generation) for key in _PRIVATE}
            fields["hooks"] = [Hook(**hook) for hook in fields["hooks"]]
        except (NotWritten, ValueError, TypeError) as error:  # of this box alone: the others are not to suffer
            fields |= {"hook_state": {}, "env": {}, "hooks": (), "unreadable": str(error)}
        fields["hooks_done"] = json.loads(fields["hooks_done"])
        fields["kept"] = bool(fields["kept"])
        fields["allowance"] = BoxResources(**json.loads(fields["allowance"]))
        return BoxRecord(**fields)

    def _unseal(self, text: str | None, generation: str) -> Any:
        if text is None:
            return {}
        if text.startswith(SEALED):
            if self._sealer is None:
                hint = "set `key_file` in [boxes]"
                raise NotWritten("the hook state of a box is encrypted and no key is configured", who=self.path, hint=hint)
            text = self._sealer.open(text, generation)
        return json.loads(text)


_LEAST = 32  # bytes of a key file
_NONCE = 12


class KeyFile:
    """Seals with what a file holds: at least 32 bytes, best from the machine's random source, for its owner alone."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._cipher: AESGCM | None = None

    def check(self) -> Self:
        """Whether it can be used, said now and not when the first secret is there."""
        self._get_cipher()
        return self

    def seal(self, text: str, about: str) -> str:
        nonce = os.urandom(_NONCE)
        sealed = nonce + self._get_cipher().encrypt(nonce, text.encode(), about.encode())
        return SEALED + b2a_base64(sealed, newline=False).decode()

    def open(self, sealed: str, about: str) -> str:
        from cryptography.exceptions import InvalidTag

        try:
            raw = a2b_base64(sealed.removeprefix(SEALED))
            return self._get_cipher().decrypt(raw[:_NONCE], raw[_NONCE:], about.encode()).decode()
        except (Error, ValueError, InvalidTag):
            raise NotWritten(
                f"the hook state of box {about} cannot be decrypted",
                who=self.path,
                hint="was the key changed? Put the old one back",
            ) from None

    def _get_cipher(self) -> AESGCM:
        if self._cipher is None:
            try:
                from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            except ImportError:
                raise BadSettings(
                    "`key_file` is set and the package cryptography is not there", who=self.path, hint="pip install 'serai[seal]'"
                ) from None
            self._cipher = AESGCM(hashlib.sha256(self._read_key()).digest())
        return self._cipher

    def _read_key(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise BadSettings("the key file can be read by others", who=self.path, hint=f"chmod 600 {self.path}")
                contents = file.read(1 << 20)
        except OSError as error:
            raise BadSettings(f"the key file cannot be read: {error.strerror}", who=self.path) from None
        if len(contents) < _LEAST:
            raise BadSettings(f"the key file has fewer than {_LEAST} bytes", who=self.path, hint="head -c 32 /dev/urandom > FILE")
        return contents
