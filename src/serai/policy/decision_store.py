"""Remembered decisions and pending approvals, in one SQLite file shared by every process of this user.

An approval is on disk before a person sees it (design rule 14), and answered once: the process that changes its row from `waiting`
first has answered. The arguments of a call may hold secrets: nothing of them is on disk once it is settled.

The states of a row: `waiting`, then `answered` by another process and `used` by the one that asked, or settled by the one that
asked: `used`, `timed out`, `withdrawn`, `failed`. An approval of a dead process can be taken over.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from serai import paths
from serai.database import MEMORY, Database
from serai.errors import BadSettings, NoApproval, NotWritten
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question, Remember
from serai.model.tools import ToolCall
from serai.plain_text import escape_surrogates
from serai.policy.call_facts import CallContext
from serai.policy.engine import RememberedDecision
from serai.policy.rules import Rule, read_rule
from serai.wire import process_tree

LOST = 86400.0  # so long after its time somebody may come back for what a dead process asked

ApprovalState = Literal["waiting", "answered", "used", "timed out", "withdrawn", "failed", "lost"]

COLUMNS = {
    "id": "TEXT PRIMARY KEY",
    "request": "TEXT NOT NULL",  # the approval or question; only who asked for which tool once it is settled
    "situation": "TEXT NOT NULL",
    "digest": "TEXT NOT NULL",
    "owner": "TEXT NOT NULL",
    "state": "TEXT NOT NULL",
    "asked": "REAL NOT NULL",
    "until": "REAL NOT NULL",
    "settled": "REAL",
    "decision": "TEXT",
    "answered_by": "TEXT NOT NULL DEFAULT ''",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """An approval or a question that was put to a person. `lost`: whoever asked is gone; it may come back for the answer."""

    id: str
    request: Approval | Question
    situation: CallContext
    state: ApprovalState
    asked: float
    until: float
    decision: Decision | None = None
    answered_by: str = ""


def is_valid_answer(answer: object, request: Approval | Question) -> bool:
    """Whether it is an answer to this at all: a question has answers, an approval a yes or no; and it can be written down."""
    kinds = (Answer, Deny) if isinstance(request, Question) else (Allow, Deny)
    if not isinstance(answer, kinds):
        return False
    if isinstance(answer, Allow) and answer.arguments is not msgspec.UNSET and not isinstance(answer.arguments, dict):
        return False
    try:
        msgspec.json.decode(msgspec.json.encode(answer), type=Decision)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return False
    return True


def escape_context(situation: CallContext) -> CallContext:
    """The same, as a file can hold it."""
    return CallContext(**{name: escape_surrogates(value) for name, value in msgspec.structs.asdict(situation).items()})


def find_row(rows: sqlite3.Connection, id: str) -> Any:
    """By its id or the start of it."""
    id = escape_surrogates(id)
    found = rows.execute("SELECT * FROM approvals WHERE id = ?", [id]).fetchall()
    found = found or rows.execute("SELECT * FROM approvals WHERE substr(id, 1, ?) = ?", [len(id), id]).fetchall()
    if not id or not found:
        raise NoApproval(f"there is no approval {id!r}")
    if len(found) > 1:
        raise NoApproval(f"{len(found)} approvals begin with {id!r}", hint="give more of its id")
    return found[0]


def parse_pending(row: Any, now: float) -> PendingApproval:
    """What a row says at this time."""
    state: ApprovalState = row["state"]
    if state == "waiting" and now < row["until"] + LOST and process_tree.is_gone(row["owner"]):
        state = "lost"
    elif state == "waiting" and now >= row["until"]:
        state = "timed out"
    return PendingApproval(
        id=row["id"],
        request=_parse_request(row),
        situation=msgspec.json.decode(row["situation"], type=CallContext),
        state=state,
        asked=row["asked"],
        until=row["until"],
        decision=None if row["decision"] is None else msgspec.json.decode(row["decision"], type=Decision),
        answered_by=row["answered_by"],
    )


def find_orphan(rows: sqlite3.Connection, request: Approval | Question, situation: CallContext, digest: str) -> Any:
    """The same call of the same session, asked by a process that is gone, and not used yet; an answered one first.

    A call without an id of its own is never the same: the answer to one must not become the answer to another.
    """
    call, asker = _identify_call(request)
    if not call or not situation.session:
        return None
    query = "SELECT * FROM approvals WHERE digest = ? AND state IN ('waiting', 'answered') ORDER BY state, asked"
    for row in rows.execute(query, [digest]).fetchall():
        same = msgspec.json.decode(row["situation"], type=CallContext) == situation
        if same and _identify_call(_parse_request(row)) == (call, asker) and process_tree.is_gone(row["owner"]):
            return row
    return None


def redact_settled(found: PendingApproval) -> tuple[Approval | Question, Decision | None]:
    """Who asked for which tool, and whether it was allowed; what was in the call, its texts and the answer may be secret."""
    asked = found.request
    kept: dict[str, Any] = {"id": asked.id, "agent": asked.agent, "session": asked.session, "lane": asked.lane, "at": asked.at}
    decision = None if isinstance(found.decision, Answer) else found.decision
    if isinstance(decision, Allow):
        decision = Allow(remember=decision.remember)
    if isinstance(asked, Question):
        return Question(**kept, items=(), tool=asked.tool, call_id=asked.call_id), decision
    return Approval(**kept, call=ToolCall(asked.call.name, id=asked.call.id, asker=asked.call.asker)), decision


def describe_end(row: Any) -> str:
    by = f" by {row['answered_by']}" if row["answered_by"] else ""
    return f"{'answered' if row['state'] == 'used' else row['state']}{by}"


def _parse_request(row: Any) -> Approval | Question:
    return msgspec.json.decode(row["request"], type=Approval | Question)


def _identify_call(request: Approval | Question) -> tuple[str, str]:
    """What tells one call from another with the same arguments: the model's own id for it, and who asks."""
    return (request.call.id, request.call.asker) if isinstance(request, Approval) else (request.call_id, request.agent)


NAME = "policy.db"
_WHAT = "approvals and decisions"
_KEPT = 30 * 86400.0  # so long a settled row tells how it ended
_TICK = 100_000_000  # nanoseconds: what was written longer ago than this has another time than what is written now
_BRIEFLY = 0.05  # seconds that a reader waits, when SQLite mends its log after a crash: never for who writes

_DECISIONS = {
    "id": "TEXT PRIMARY KEY",
    "rule": "TEXT NOT NULL",
    "scope": "TEXT NOT NULL",
    "key": "TEXT NOT NULL DEFAULT ''",
    "at": "REAL NOT NULL",
    "expires": "REAL",
}


class DecisionStore:
    """The file. Every method is one transaction, on disk when it returns, and may be called from any thread.

    Methods that only read (`list_decisions`, `find_answered`, `read_stamp`, `list_pending`, `find`, `list_ids`) wait for no writer,
    here or in another process, so that an event loop may call them.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.time, *, busy: float = 5.0) -> None:
        """`busy`: seconds for the transactions of others."""
        self._path = path
        self._clock = clock
        self._busy = busy
        self._owner = process_tree.get_own_identity()
        self._lock = threading.Lock()  # of who writes
        self._look = threading.Lock() if path != MEMORY else self._lock  # of who reads; where both are held, after the other
        self._changes = 0  # of our own: SQLite tells only of those of others
        self._latest = 0.0
        self._unscrubbed = False
        self._closed = False
        self._open()

    def _open(self) -> None:
        """Twice: who reads has a door of its own, for who writes may have to wait. In memory there is but one."""
        db = Database(self._path, _WHAT, self._busy)
        try:
            db.ensure_table("decisions", _DECISIONS)
            db.ensure_table("approvals", COLUMNS)
            with db.transaction() as rows:
                self._tidy(rows)
            reader = db if self._path == MEMORY else Database(self._path, _WHAT, _BRIEFLY, reads=True)
        except BaseException:
            db.close()
            raise
        self._db, self._reader = db, reader
        self._seen: object = None
        self._calm: object = None  # the marks of the files when they were last read
        self._known: tuple[RememberedDecision, ...] = ()

    @classmethod
    def usual(cls, environ: Mapping[str, str] = os.environ) -> DecisionStore:
        return cls(os.path.join(paths.state_folder(environ), NAME))

    @classmethod
    def in_memory(cls, clock: Callable[[], float] = time.time) -> DecisionStore:
        """For this process alone, and gone with it."""
        return cls(MEMORY, clock)

    def close(self) -> None:
        with self._lock_both():
            self._closed = True
            if self._unscrubbed:
                self._scrub()
            self._reader.close()
            self._db.close()

    # -- what is remembered -------------------------------------------------------------------------------------------------------

    def list_decisions(self) -> tuple[RememberedDecision, ...]:
        """All that hold, the newest first. Read again only when somebody has written: each call of a tool looks here."""
        marks = self._read_marks()
        if marks is None or marks != self._calm:
            with self._lock_reader() as rows:
                if self._seen != (stamp := self._read_stamp(rows)):
                    self._known = tuple(map(_remembered, rows.execute("SELECT * FROM decisions ORDER BY at DESC, id").fetchall()))
                    self._seen = stamp
            self._calm = marks
        known = self._known
        now = self._read_clock()
        return tuple(one for one in known if one.expires is None or now < one.expires)

    def _read_marks(self) -> object:
        """By which it can be seen that nobody has written since, without asking SQLite; None when that cannot be known."""
        if self._path == MEMORY:
            return None
        try:
            file, log = os.stat(self._path), os.stat(f"{self._path}-wal")
        except OSError:
            return None
        newest = max(file.st_mtime_ns, log.st_mtime_ns)
        if time.time_ns() - newest < _TICK:  # a second write might have the same time; or the clock was set back
            return None
        return self._changes, file.st_ino, file.st_mtime_ns, file.st_size, log.st_ino, log.st_mtime_ns, log.st_size

    def list_ids(self) -> list[str]:
        """Of everything that is remembered, also of what nobody can read."""
        with self._lock_reader() as rows:
            return [row["id"] for row in rows.execute("SELECT id FROM decisions ORDER BY at DESC, id").fetchall()]

    def remember(self, rule: Rule, scope: Remember, key: str, seconds: float | None) -> RememberedDecision:
        """Keep a decision for so long; None: until it is forgotten. The same one again takes the place of the older."""
        now = self._clock()
        key = escape_surrogates(key)
        one = RememberedDecision(secrets.token_hex(4), rule, scope, key, now, None if seconds is None else now + seconds)
        form = self._encode(rule.to_json())
        with self._transaction() as rows:
            for old in rows.execute("SELECT * FROM decisions WHERE scope = ? AND key = ?", [scope, key]).fetchall():
                if _extract_subject(old["rule"]) == _extract_subject(form):
                    rows.execute("DELETE FROM decisions WHERE id = ?", [old["id"]])
            rows.execute(
                "INSERT INTO decisions (id, rule, scope, key, at, expires) VALUES (?, ?, ?, ?, ?, ?)",
                [one.id, form, scope, key, now, one.expires],
            )
        return one

    def forget(self, ids: Sequence[str]) -> list[str]:
        """Those of these that were known."""
        with self._transaction() as rows:
            return [id for id in ids if rows.execute("DELETE FROM decisions WHERE id = ?", [escape_surrogates(id)]).rowcount]

    def forget_all(self, scope: Remember | None = None, key: str | None = None) -> int:
        """Everything, or everything of a scope: a session that has ended takes its decisions along."""
        with self._transaction() as rows:
            return rows.execute(
                "DELETE FROM decisions WHERE (?1 IS NULL OR scope = ?1) AND (?2 IS NULL OR key = ?2)",
                [scope, None if key is None else escape_surrogates(key)],
            ).rowcount

    # -- what waits ---------------------------------------------------------------------------------------------------------------

    def ask(self, request: Approval | Question, situation: CallContext, digest: str, seconds: float) -> PendingApproval:
        """Write down that it is asked, before anybody is. One that a dead process asked before is taken over, answer and all."""
        now = self._clock()
        until = now + seconds
        situation = escape_context(situation)
        with self._transaction() as rows:
            if orphan := find_orphan(rows, request, situation, digest):
                found = self._take_over(rows, orphan["id"], until)
            else:
                id = secrets.token_hex(4)
                found = PendingApproval(id=id, request=request, situation=situation, state="waiting", asked=now, until=until)
                rows.execute(
                    "INSERT INTO approvals (id, request, situation, digest, owner, state, asked, until) "
                    "VALUES (?, ?, ?, ?, ?, 'waiting', ?, ?)",
                    [id, self._encode(request), self._encode(situation), digest, self._owner, now, until],
                )
        return found

    def _take_over(self, rows: sqlite3.Connection, id: str, until: float) -> PendingApproval:
        rows.execute("UPDATE approvals SET owner = ?, until = ? WHERE id = ?", [self._owner, until, id])
        found = self._find_pending(rows, id)
        if found.state == "answered":
            self._settle(rows, found, "used")
        return found

    def answer(self, id: str, decision: Decision, by: str) -> PendingApproval:
        """Answer it, from any process. Who is second is told so."""
        now = self._clock()
        if isinstance(decision, Deny) and isinstance(decision.why, str):
            decision = msgspec.structs.replace(decision, why=escape_surrogates(decision.why))
        with self._transaction() as rows:
            row = find_row(rows, id)
            found = parse_pending(row, now)
            if row["state"] != "waiting":
                raise NoApproval(f"it is not waiting any more: {describe_end(row)}", id=found.id)
            if found.state == "timed out":
                raise NoApproval("it is out of time", id=found.id)
            if not is_valid_answer(decision, found.request):
                wanted = "an answer or a deny" if isinstance(found.request, Question) else "allow or deny"
                raise NoApproval(f"it wants {wanted}", id=found.id, hint="look at what is asked")
            change = "UPDATE approvals SET state = 'answered', decision = ?, answered_by = ?, settled = ? WHERE id = ?"
            rows.execute(change, [self._encode(decision), escape_surrogates(by), now, found.id])
            return self._find_pending(rows, found.id)

    def settle(self, id: str, state: ApprovalState, decision: Decision, by: str) -> PendingApproval:
        """Whoever asked has it from elsewhere, or asks no more. If somebody answered meanwhile, theirs counts, and is told."""
        with self._transaction() as rows:
            found = parse_pending(row := find_row(rows, id), self._clock())
            if row["state"] == "waiting":
                found = replace(found, state=state, decision=decision, answered_by=by)
            if row["state"] in ("waiting", "answered"):
                self._settle(rows, found, "used" if found.state == "answered" else state)
        return found

    def find_answered(self, ids: Sequence[str]) -> list[str]:
        """Those of these that somebody has answered."""
        with self._lock_reader() as rows:
            query = "SELECT id FROM approvals WHERE id = ? AND state != 'waiting'"
            return [id for id in ids if rows.execute(query, [id]).fetchall()]

    def read_stamp(self) -> object:
        """Changes when somebody has written; cheap."""
        with self._lock_reader() as rows:
            return self._read_stamp(rows)

    def list_pending(self, *, everything: bool = False) -> list[PendingApproval]:
        """What waits for an answer, the oldest first; also what was settled lately."""
        now = self._clock()
        with self._lock_reader() as rows:
            found = [parse_pending(row, now) for row in rows.execute("SELECT * FROM approvals ORDER BY asked, id").fetchall()]
        return [one for one in found if everything or one.state in ("waiting", "lost")]

    def find(self, id: str) -> PendingApproval:
        """By its id or the start of it."""
        with self._lock_reader() as rows:
            return self._find_pending(rows, id)

    # -- inside -------------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction of one thread at a time. What it has settled is gone from SQLite's log too, or soon."""
        self._reopen_if_moved()
        with self._lock, self._translate_errors():
            try:
                with self._db.transaction() as rows:
                    self._tidy(rows)
                    yield rows
            finally:
                self._changes += 1
            if self._unscrubbed:
                self._scrub()

    @contextmanager
    def _lock_reader(self) -> Iterator[sqlite3.Connection]:
        self._reopen_if_moved()
        with self._look, self._translate_errors(), self._reader.translate_errors():
            yield self._reader.rows

    @contextmanager
    def _lock_both(self) -> Iterator[None]:
        with self._lock:
            if self._look is self._lock:
                yield
            else:
                with self._look:
                    yield

    def _reopen_if_moved(self) -> None:
        """Somebody may take the file away, to begin anew: what goes into the old one nobody else would see."""
        if not self._db.has_moved():
            return
        with self._lock_both():
            if self._db.has_moved() and not self._closed:
                self._reader.close()
                self._db.close()
                self._open()
                self._changes += 1

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Rows that nobody can read, as our error: what is not known is no yes."""
        try:
            yield
        except (msgspec.MsgspecError, BadSettings) as error:
            hint = "a newer Serai may have written it: use that one, forget it, or move the file away"
            raise NotWritten(f"{_WHAT} cannot be read: {error}", who=self._path, hint=hint) from None

    def _read_stamp(self, rows: sqlite3.Connection) -> object:
        return rows.execute("PRAGMA data_version").fetchall()[0][0], self._changes

    def _read_clock(self) -> float:
        """For what ends: what was seen to be over is over, also when the clock is set back."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def _encode(self, value: Any) -> str:
        """As JSON; arguments may hold what is none."""
        try:
            return msgspec.json.encode(value).decode()
        except (ValueError, TypeError, RecursionError) as error:
            raise NotWritten(f"it cannot be written as JSON: {error}", who=self._path, hint="give JSON alone") from None

    def _find_pending(self, rows: sqlite3.Connection, id: str) -> PendingApproval:
        return parse_pending(find_row(rows, id), self._clock())

    def _settle(self, rows: sqlite3.Connection, found: PendingApproval, state: ApprovalState) -> None:
        """How it ended, and no more."""
        request, decision = redact_settled(found)
        said = None if decision is None else self._encode(decision)
        change = "UPDATE approvals SET state = ?, request = ?, digest = '', decision = ?, answered_by = ?, settled = ? WHERE id = ?"
        rows.execute(change, [state, self._encode(request), said, found.answered_by, self._clock(), found.id])
        self._unscrubbed = True

    def _scrub(self) -> None:
        """Also out of SQLite's log. If that fails it is for the next one to do: what was settled is settled."""
        with suppress(NotWritten):
            self._unscrubbed = not self._db.scrub()

    def _tidy(self, rows: sqlite3.Connection) -> None:
        now = self._clock()
        rows.execute("DELETE FROM decisions WHERE expires <= ?", [self._read_clock()])
        rows.execute("DELETE FROM approvals WHERE coalesce(settled, until) <= ?", [now - _KEPT])
        query = "SELECT id, owner FROM approvals WHERE state IN ('waiting', 'answered') AND until <= ?"
        for row in rows.execute(query, [now - LOST]).fetchall():
            if process_tree.is_gone(row["owner"]):
                rows.execute("DELETE FROM approvals WHERE id = ?", [row["id"]])
                self._unscrubbed = True


def _remembered(row: Any) -> RememberedDecision:
    form = msgspec.json.decode(row["rule"])
    exactly = form.pop("exactly", "")
    rule = replace(read_rule(form, f"remembered {row['id']}"), exactly=exactly)
    return RememberedDecision(row["id"], rule, row["scope"], row["key"], row["at"], row["expires"])


def _extract_subject(rule: str) -> object:
    """What a rule is about, whatever it decides; of one that nobody can read, its text."""
    try:
        form = msgspec.json.decode(rule, type=dict[str, Any])
    except msgspec.MsgspecError:
        return rule
    return {key: value for key, value in form.items() if key not in ("id", "decide", "because")}
