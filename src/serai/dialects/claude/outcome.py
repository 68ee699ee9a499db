"""What came of a turn, and why the program did not start (spec agents 1.11, 2.11, 2.12)."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import Raw

from serai.dialects.claude.lanes import usage_of
from serai.dialects.claude.messages import Result
from serai.dialects.claude.texts import shown
from serai.dialects.claude.tools import ASKER
from serai.errors import AgentFailed
from serai.model.events import TurnResult, Usage

__all__ = ["HINTS", "Outcome", "outcome", "started"]

# What its word for an error lets a person do.
HINTS: Final = {
    "api_error": "the model's API failed: try again, or look at its status",
    "bad_flag": "the program does not take these options: look at its version, and at the options of the session",
    "bad_session_id": "a session's id is a UUID: leave it out, or give one",
    "budget_exhausted": "raise the budget, or prompt again to go on",
    "cwd_unavailable": "the working directory is gone: start in one that is there",
    "error_max_budget_usd": "raise the budget, or prompt again to go on",
    "error_max_turns": "raise the number of turns, or prompt again to go on",
    "not_logged_in": "log in with `claude` and /login, or set ANTHROPIC_API_KEY",
    "prompt_too_long": "the conversation is too long for the model: shorten it with /compact, or begin another one",
    "session_in_use": "the session is open elsewhere, or its id was used before: resume it, or take another id",
}
_BY_STATUS: Final = {
    401: "the API key or the login is not taken: check ANTHROPIC_API_KEY, or log in with `claude` and /login",
    403: "the API key or the login may not do this: check whose it is",
    429: "too many requests, or too much used: wait, then prompt again",
    529: "the API is overloaded: wait, then prompt again",
}
_NO_SESSION: Final = re.compile(r"No conversation found", re.IGNORECASE)
_NOT_LOGGED_IN: Final = re.compile(
    r"not logged in|please run /login|invalid api key|no api key|oauth token .*expired", re.IGNORECASE
)
# What it writes to its stderr when it does not start; the first that fits counts (spec agents 2.12).
_STARTED: Final = (
    ("session_in_use", re.compile(r"session id \S+ is already in use", re.IGNORECASE)),
    ("bad_session_id", re.compile(r"invalid session id|is not a valid uuid|no conversation found with session id", re.IGNORECASE)),
    ("not_logged_in", _NOT_LOGGED_IN),
    ("cwd_unavailable", re.compile(r"current directory no longer exists|\buv_cwd\b|\bgetcwd\b", re.IGNORECASE)),
    (
        "bad_flag",
        re.compile(
            r"^error: (unknown option|unknown command|option '|missing required argument|required option|too many arguments)"
            r"|^error: .*--[a-z][\w-]*.* (requires|can only be used|cannot be used|must be)"
            r"|^--[a-z][\w-]* cannot be used"
            r"|^error: (invalid mcp config|settings file not found|invalid settings)",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`error` is there for every error, also for one that calls itself a success. `usage.cost_usd` is that of the program so far:
    the last result's counts, and costs are never summed. `steps` are those that the program counts.
    """

    status: str
    text: str = ""
    error: AgentFailed | None = None
    usage: Usage = Usage()
    steps: int = 0
    seconds: float = 0.0
    session_id: str = ""
    queued: int = 0  # prompts that wait
    origin: str = ""  # whose prompt it was: empty or `human` for a person's
    uuids: tuple[str, ...] = ()  # of the prompts that it answers
    index: int = 0  # of the results of the program
    reason: str = ""  # its own word for why the turn ended
    native: Any = None

    @property
    def interrupted(self) -> bool:
        return self.reason.startswith("aborted_")

    def answers(self, uuid: str = "") -> bool:
        """Whether it is the end of our prompt, and not of a turn that the program began itself (spec agents 2.11)."""
        if uuid and self.uuids:
            return uuid in self.uuids
        return self.origin in ("", "human")

    def result(self) -> TurnResult:
        """In neutral words."""
        status = self.status if self.status in ("success", "cancelled") else "error"
        return TurnResult(
            status=status,  # type: ignore[arg-type]
            text=self.text,
            session=self.session_id,
            error="" if self.error is None else self.error.message,
            steps=self.steps,
            usage=self.usage,
            seconds=self.seconds,
            native=self.native,
        )


def outcome(result: Result, line: bytes, *, stderr: str = "") -> Outcome:
    """What a result says; `stderr` is the tail of the program's, for the error."""
    native = Raw(line)
    failed = bool(result.is_error) or result.subtype != "success"
    reason = result.terminal_reason or ""
    error = _error(result, native, stderr) if failed else None
    used = usage_of(result.usage) if result.usage is not None else Usage()
    origin = result.origin.get("kind") if isinstance(result.origin, dict) else result.origin
    return Outcome(
        status="success" if not failed else "cancelled" if reason.startswith("aborted_") else "error",
        text="" if failed else result.result or "",
        error=error,
        usage=msgspec.structs.replace(used, cost_usd=result.total_cost_usd),
        steps=result.num_turns,
        seconds=result.duration_ms / 1000,
        session_id=result.session_id,
        queued=result.queued_turn_count or 0,
        origin=origin if isinstance(origin, str) else "",
        uuids=tuple(dict.fromkeys(filter(None, (result.user_message_uuid, *(result.user_message_uuids or ()))))),
        index=result.result_index or 0,
        reason=reason,
        native=native,
    )


def started(stderr: str) -> str:
    """Why the program did not start, by what it wrote to its stderr; empty when that does not tell."""
    text = shown(stderr)
    return next((kind for kind, pattern in _STARTED if pattern.search(text)), "")


def _error(result: Result, native: Raw, stderr: str) -> AgentFailed:
    details = _details(result)
    kind = _kind(result, details)
    status = result.api_error_status or 0
    said = "; ".join(details)
    what = _what(result, kind)
    hint = _BY_STATUS.get(status) or HINTS.get(kind, "")
    if any(map(_NO_SESSION.search, details)):
        hint = "look at the list of its sessions; one that was never prompted is not kept"
    aborted = (result.terminal_reason or "").startswith("aborted_")  # its details are for its makers
    message = f"{what}: {said}" if said and not aborted else what
    return AgentFailed(message, kind=kind, details=details, status=status, native=native, who=ASKER, stderr=stderr, hint=hint)


def _details(result: Result) -> tuple[str, ...]:
    """Its lines about the error or, without any, the first other text that there is (spec agents 1.11)."""
    errors = tuple(shown(error if isinstance(error, str) else _json(error)) for error in result.errors or () if error)
    if errors:
        return errors
    for other in (result.error, result.result, result.startup_failure_reason):
        if other:
            return (shown(other if isinstance(other, str) else _json(other)),)
    return ()


def _kind(result: Result, details: tuple[str, ...]) -> str:
    """Its own word: the subtype, unless that says success; then why the turn ended."""
    if result.subtype not in ("", "success"):
        return result.subtype
    if any(map(_NOT_LOGGED_IN.search, details)) and not result.api_error_status:
        return "not_logged_in"
    return result.terminal_reason if result.terminal_reason not in (None, "", "completed") else "error"


def _what(result: Result, kind: str) -> str:
    """Never "error result: success" (spec agents 1.11)."""
    if (result.terminal_reason or "").startswith("aborted_"):
        return f"the turn was interrupted ({result.terminal_reason})"
    if kind == "api_error":
        return f"the model's API failed (status {result.api_error_status})" if result.api_error_status else "the model's API failed"
    if kind == "not_logged_in":
        return "it has no login"
    return f"returned an error result ({kind})"


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError):
        return str(value)
