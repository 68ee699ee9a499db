"""An approval on disk: what its row says, who may take over what a dead process asked, and what is left once it is settled.

One row's life: `waiting`, then `answered` by another process and `used` by who asked, or settled by who asked: `used`, `timed out`,
`withdrawn`, `failed`. The functions here work inside a transaction of `memory`.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from serai.errors import NoApproval
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question
from serai.model.tools import ToolCall
from serai.policy.subject import Situation
from serai.wire import process_tree

__all__ = ["COLUMNS", "LOST", "Pending", "State", "ended", "fits", "orphan", "pending", "remains", "row_of", "situated", "written"]

LOST = 86400.0  # so long after its time somebody may come back for what a dead process asked

State = Literal["waiting", "answered", "used", "timed out", "withdrawn", "failed", "lost"]

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


def written(text: str) -> str:
    """As a file can hold it: names of folders and of people need not be UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def situated(situation: Situation) -> Situation:
    """The same, as a file can hold it."""
    return Situation(**{name: written(value) for name, value in msgspec.structs.asdict(situation).items()})


def row_of(rows: sqlite3.Connection, id: str) -> Any:
    """By its id or the start of it."""
    id = written(id)
    found = rows.execute("SELECT * FROM approvals WHERE id = ?", [id]).fetchall()
    found = found or rows.execute("SELECT * FROM approvals WHERE substr(id, 1, ?) = ?", [len(id), id]).fetchall()
    if not id or not found:
        raise NoApproval(f"there is no approval {id!r}")
    if len(found) > 1:
        raise NoApproval(f"{len(found)} approvals begin with {id!r}", hint="give more of its id")
    return found[0]


def pending(row: Any, now: float) -> Pending:
    """What a row says at this time."""
    state: State = row["state"]
    if state == "waiting" and now < row["until"] + LOST and process_tree.is_gone(row["owner"]):
        state = "lost"
    elif state == "waiting" and now >= row["until"]:
        state = "timed out"
    return Pending(
        id=row["id"],
        request=_request(row),
        situation=msgspec.json.decode(row["situation"], type=Situation),
        state=state,
        asked=row["asked"],
        until=row["until"],
        decision=None if row["decision"] is None else msgspec.json.decode(row["decision"], type=Decision),
        answered_by=row["answered_by"],
    )


def orphan(rows: sqlite3.Connection, request: Approval | Question, situation: Situation, digest: str) -> Any:
    """The same call of the same session, asked by a process that is gone, and not used yet; an answered one first.

    A call without an id of its own is never the same: the answer to one must not become the answer to another.
    """
    call, asker = _whose(request)
    if not call or not situation.session:
        return None
    query = "SELECT * FROM approvals WHERE digest = ? AND state IN ('waiting', 'answered') ORDER BY state, asked"
    for row in rows.execute(query, [digest]).fetchall():
        same = msgspec.json.decode(row["situation"], type=Situation) == situation
        if same and _whose(_request(row)) == (call, asker) and process_tree.is_gone(row["owner"]):
            return row
    return None


def remains(found: Pending) -> tuple[Approval | Question, Decision | None]:
    """Who asked for which tool, and whether it was allowed; what was in the call, its texts and the answer may be secret."""
    asked = found.request
    kept: dict[str, Any] = {"id": asked.id, "agent": asked.agent, "session": asked.session, "lane": asked.lane, "at": asked.at}
    decision = None if isinstance(found.decision, Answer) else found.decision
    if isinstance(decision, Allow):
        decision = Allow(remember=decision.remember)
    if isinstance(asked, Question):
        return Question(**kept, items=(), tool=asked.tool, call_id=asked.call_id), decision
    return Approval(**kept, call=ToolCall(asked.call.name, id=asked.call.id, asker=asked.call.asker)), decision


def ended(row: Any) -> str:
    by = f" by {row['answered_by']}" if row["answered_by"] else ""
    return f"{'answered' if row['state'] == 'used' else row['state']}{by}"


def _request(row: Any) -> Approval | Question:
    return msgspec.json.decode(row["request"], type=Approval | Question)


def _whose(request: Approval | Question) -> tuple[str, str]:
    """What tells one call from another with the same arguments: the model's own id for it, and who asks."""
    return (request.call.id, request.call.asker) if isinstance(request, Approval) else (request.call_id, request.agent)
