"""What was decided and what still waits for an answer, in one SQLite file shared by every process of this user.

An approval asked of a person is on disk before they see it (design rule 14), and answered once: whoever changes its row from
`waiting` first has answered. The arguments of a call may hold secrets: nothing of them is on disk once it is settled.
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

from serai import home
from serai.database import MEMORY, Database
from serai.errors import BadSettings, NoApproval, NotWritten
from serai.model.ask import Allow, Answer, Approval, Decision, Deny, Question, Remember
from serai.model.tools import ToolCall
from serai.policy.engine import Remembered
from serai.policy.rules import Rule, read_rule
from serai.policy.subject import Situation
from serai.wire import owners

__all__ = ["NAME", "Decisions", "Pending", "State", "fits"]

NAME = "policy.db"
_DAY = 86400.0
_KEPT = 30 * _DAY  # so long a settled row tells how it ended

State = Literal["waiting", "answered", "used", "timed out", "withdrawn", "failed", "lost"]

_DECISIONS = {
    "id": "TEXT PRIMARY KEY",
    "rule": "TEXT NOT NULL",
    "scope": "TEXT NOT NULL",
    "key": "TEXT NOT NULL DEFAULT ''",
    "at": "REAL NOT NULL",
    "expires": "REAL",
}
_APPROVALS = {
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
class Pending:
    """An approval or a question that was put to a person. `lost`: whoever asked is gone; it may come back for the answer."""

    id: str
    request: Approval | Question
    situation: Situation
    state: State
    asked: float
    until: float
    decision: Decision | None = None
    answered_by: str = ""


def fits(answer: object, request: Approval | Question) -> bool:
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


class Decisions:
    """The file. Every method is one transaction, on disk when it returns, and may be called from any thread."""

    def __init__(self, path: str, clock: Callable[[], float] = time.time, *, busy: float = 5.0) -> None:
        """`busy`: seconds for the transactions of others."""
        self._clock = clock
        self._lock = threading.Lock()
        self._owner = owners.myself()
        self._changes = 0  # of our own: SQLite tells only of those of others
        self._seen: object = None
        self._known: tuple[Remembered, ...] = ()
        self._db = Database(path, "approvals and decisions", busy)
        try:
            self._db.table("decisions", _DECISIONS)
            self._db.table("approvals", _APPROVALS)
            self._tidy()
        except BaseException:
            self._db.close()
            raise

    @classmethod
    def usual(cls, environ: Mapping[str, str] = os.environ) -> Decisions:
        return cls(os.path.join(home.state_folder(environ), NAME))

    @classmethod
    def in_memory(cls, clock: Callable[[], float] = time.time) -> Decisions:
        """For this process alone, and gone with it."""
        return cls(MEMORY, clock)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    # -- what is remembered -------------------------------------------------------------------------------------------------------

    def decisions(self) -> tuple[Remembered, ...]:
        """All that hold, the newest first. Read again only when somebody has written: each call of a tool looks here."""
        with self._lock, self._reading():
            if self._seen != (stamp := self._stamp()):
                rows = self._db.rows.execute("SELECT * FROM decisions ORDER BY at DESC, id").fetchall()
                self._known = tuple(map(_remembered, rows))
                self._seen = stamp
            known = self._known
        now = self._clock()
        valid = tuple(one for one in known if one.expires is None or now < one.expires)
        if len(valid) < len(known):
            with suppress(NotWritten):
                self._tidy()  # what was seen to be over is over, also when the clock is set back
        return valid

    def remember(self, rule: Rule, scope: Remember, key: str, seconds: float | None) -> Remembered:
        """Keep a decision for so long; None: until it is forgotten. The same one again takes the place of the older."""
        now = self._clock()
        one = Remembered(secrets.token_hex(4), rule, scope, key, now, None if seconds is None else now + seconds)
        form = rule.to_json()
        row = [one.id, self._text(form), scope, key, now, one.expires]
        with self._changing() as rows:
            for old in rows.execute("SELECT * FROM decisions WHERE scope = ? AND key = ?", [scope, key]).fetchall():
                if _about(msgspec.json.decode(old["rule"])) == _about(form):
                    rows.execute("DELETE FROM decisions WHERE id = ?", [old["id"]])
            rows.execute("INSERT INTO decisions (id, rule, scope, key, at, expires) VALUES (?, ?, ?, ?, ?, ?)", row)
        return one

    def forget(self, ids: Sequence[str]) -> list[str]:
        """Those of these that were known."""
        with self._changing() as rows:
            return [id for id in ids if rows.execute("DELETE FROM decisions WHERE id = ?", [id]).rowcount]

    def forget_all(self, scope: Remember | None = None, key: str | None = None) -> int:
        """Everything, or everything of a scope: a session that has ended takes its decisions along."""
        with self._changing() as rows:
            return rows.execute(
                "DELETE FROM decisions WHERE (?1 IS NULL OR scope = ?1) AND (?2 IS NULL OR key = ?2)", [scope, key]
            ).rowcount

    # -- what waits ---------------------------------------------------------------------------------------------------------------

    def ask(self, request: Approval | Question, situation: Situation, digest: str, seconds: float) -> Pending:
        """Write down that it is asked, before anybody is. One that a dead process asked before is taken over, answer and all."""
        now = self._clock()
        with self._changing() as rows:
            if orphan := self._orphan(rows, situation, digest, request):
                found = self._take_over(rows, orphan, now + seconds)
            else:
                found = Pending(
                    id=secrets.token_hex(4), request=request, situation=situation, state="waiting", asked=now, until=now + seconds
                )
                rows.execute(
                    "INSERT INTO approvals (id, request, situation, digest, owner, state, asked, until) "
                    "VALUES (?, ?, ?, ?, ?, 'waiting', ?, ?)",
                    [found.id, self._text(request), self._text(situation), digest, self._owner, found.asked, found.until],
                )
        if found.state == "answered":
            self._scrub()
        return found

    def _orphan(self, rows: sqlite3.Connection, situation: Situation, digest: str, request: Approval | Question) -> Any:
        """The same call of the same session, asked by a process that is gone, and not used yet; an answered one first."""
        query = "SELECT * FROM approvals WHERE digest = ? AND state IN ('waiting', 'answered') ORDER BY state, asked"
        for row in rows.execute(query, [digest]).fetchall() if situation.session else ():
            same = msgspec.json.decode(row["situation"], type=Situation) == situation
            if same and _whose(_request(row)) == _whose(request) and not owners.alive(row["owner"]):
                return row
        return None

    def _take_over(self, rows: sqlite3.Connection, row: Any, until: float) -> Pending:
        id = row["id"]
        rows.execute("UPDATE approvals SET owner = ?, until = ? WHERE id = ?", [self._owner, until, id])
        found = self._pending(self._row(rows, id))
        if found.state == "answered":
            self._settle(rows, found, "used")
        return found

    def answer(self, id: str, decision: Decision, by: str) -> Pending:
        """Answer it, from any process. Who is second is told so."""
        now = self._clock()
        with self._changing() as rows:
            row = self._row(rows, id)
            if row["state"] != "waiting":
                raise NoApproval(f"it is not waiting any more: {_ended(row)}", id=row["id"])
            if now >= row["until"] and owners.alive(row["owner"]):
                raise NoApproval("it is out of time", id=row["id"])
            if not fits(decision, request := _request(row)):
                wanted = "an answer or a deny" if isinstance(request, Question) else "allow or deny"
                raise NoApproval(f"it wants {wanted}", id=row["id"], hint="look at what is asked")
            change = "UPDATE approvals SET state = 'answered', decision = ?, answered_by = ?, settled = ? WHERE id = ?"
            rows.execute(change, [self._text(decision), by, now, row["id"]])
            return self._pending(self._row(rows, row["id"]))

    def settle(self, id: str, state: State, decision: Decision, by: str) -> Pending:
        """Whoever asked has it from elsewhere, or asks no more. If somebody answered meanwhile, theirs counts, and is told."""
        with self._changing() as rows:
            found = self._pending(row := self._row(rows, id))
            if row["state"] == "waiting":
                found = replace(found, state=state, decision=decision, answered_by=by)
            if row["state"] in ("waiting", "answered"):
                self._settle(rows, found, "used" if found.state == "answered" else state)
        self._scrub()
        return found

    def answered(self, ids: Sequence[str]) -> list[str]:
        """Those of these that somebody has answered."""
        with self._lock, self._reading():
            query = "SELECT 1 FROM approvals WHERE id = ? AND state != 'waiting'"
            return [id for id in ids if self._db.rows.execute(query, [id]).fetchone()]

    def stamp(self) -> object:
        """Changes when somebody has written; cheap."""
        with self._lock, self._reading():
            return self._stamp()

    def pending(self, *, everything: bool = False) -> list[Pending]:
        """What waits for an answer, the oldest first; also what was settled lately."""
        with self._lock, self._reading():
            rows = self._db.rows.execute("SELECT * FROM approvals ORDER BY asked, id").fetchall()
            found = [self._pending(row) for row in rows]
        return [one for one in found if everything or one.state in ("waiting", "lost")]

    def find(self, id: str) -> Pending:
        """By its id or the start of it."""
        with self._lock, self._reading():
            return self._pending(self._row(self._db.rows, id))

    # -- inside -------------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """One transaction of one thread at a time, after which what is remembered is read anew."""
        with self._lock, self._reading():
            try:
                with self._db.writing() as rows:
                    yield rows
            finally:
                self._changes += 1

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """SQLite's errors, and rows that nobody can read, as ours: what is not known is no yes."""
        try:
            with self._db.told():
                yield
        except (msgspec.MsgspecError, BadSettings) as error:
            hint = "a newer Serai may have written it: use that one, or move the file away"
            raise NotWritten(f"approvals and decisions cannot be read: {error}", who=self._db.path, hint=hint) from None

    def _stamp(self) -> object:
        return self._db.rows.execute("PRAGMA data_version").fetchone()[0], self._changes

    def _text(self, value: Any) -> str:
        """As JSON; arguments may hold what is none."""
        try:
            return msgspec.json.encode(value).decode()
        except (ValueError, TypeError, RecursionError) as error:
            raise NotWritten(f"it cannot be written as JSON: {error}", who=self._db.path, hint="give JSON alone") from None

    def _row(self, rows: sqlite3.Connection, id: str) -> Any:
        found = rows.execute("SELECT * FROM approvals WHERE id = ?", [id]).fetchall()
        found = found or rows.execute("SELECT * FROM approvals WHERE substr(id, 1, ?) = ?", [len(id), id]).fetchall()
        if not id or not found:
            raise NoApproval(f"there is no approval {id!r}")
        if len(found) > 1:
            raise NoApproval(f"{len(found)} approvals begin with {id!r}", hint="give more of its id")
        return found[0]

    def _pending(self, row: Any) -> Pending:
        known: State = row["state"]
        if known == "waiting" and not owners.alive(row["owner"]):
            known = "lost"
        elif known == "waiting" and self._clock() >= row["until"]:
            known = "timed out"
        return Pending(
            id=row["id"],
            request=_request(row),
            situation=msgspec.json.decode(row["situation"], type=Situation),
            state=known,
            asked=row["asked"],
            until=row["until"],
            decision=None if row["decision"] is None else msgspec.json.decode(row["decision"], type=Decision),
            answered_by=row["answered_by"],
        )

    def _settle(self, rows: sqlite3.Connection, found: Pending, state: State) -> None:
        """How it ended. Who asked for which tool is kept; what was in the call, its texts and the answer may be secret."""
        asked = found.request
        kept: dict[str, Any] = {"id": asked.id, "agent": asked.agent, "session": asked.session, "lane": asked.lane, "at": asked.at}
        request: Approval | Question = Question(**kept, items=(), tool=asked.tool)
        if isinstance(asked, Approval):
            request = Approval(**kept, call=ToolCall(asked.call.name, id=asked.call.id, asker=asked.call.asker))
        decision = found.decision
        if isinstance(decision, Allow):
            decision = Allow(remember=decision.remember)
        said = None if decision is None or isinstance(decision, Answer) else self._text(decision)
        change = "UPDATE approvals SET state = ?, request = ?, digest = '', decision = ?, answered_by = ?, settled = ? WHERE id = ?"
        rows.execute(change, [state, self._text(request), said, found.answered_by, self._clock(), found.id])

    def _scrub(self) -> None:
        """Also out of SQLite's log. If that fails it is for the next one to do: what was settled is settled."""
        with self._lock, suppress(NotWritten):
            self._db.scrub()

    def _tidy(self) -> None:
        now = self._clock()
        with self._changing() as rows:
            rows.execute("DELETE FROM decisions WHERE expires <= ?", [now])
            rows.execute("DELETE FROM approvals WHERE coalesce(settled, until) <= ?", [now - _KEPT])


def _remembered(row: Any) -> Remembered:
    form = msgspec.json.decode(row["rule"])
    exactly = form.pop("exactly", "")
    rule = replace(read_rule(form, f"remembered {row['id']}"), exactly=exactly)
    return Remembered(row["id"], rule, row["scope"], row["key"], row["at"], row["expires"])


def _request(row: Any) -> Approval | Question:
    return msgspec.json.decode(row["request"], type=Approval | Question)


def _whose(request: Approval | Question) -> tuple[str, str]:
    """What tells one call from another with the same arguments: the model's own id for it, and who asks."""
    return (request.call.id, request.call.asker) if isinstance(request, Approval) else ("", request.agent)


def _about(rule: Mapping[str, Any]) -> dict[str, Any]:
    """What a rule is about, whatever it decides."""
    return {key: value for key, value in rule.items() if key not in ("id", "decide", "because")}


def _ended(row: Any) -> str:
    by = f" by {row['answered_by']}" if row["answered_by"] else ""
    return f"{'answered' if row['state'] == 'used' else row['state']}{by}"
