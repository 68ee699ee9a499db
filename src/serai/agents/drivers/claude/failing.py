"""Why a process of Claude's is gone, in words that help (spec agents 2.12)."""

from __future__ import annotations

from serai.dialects.claude.neutral import HINTS, start_failure
from serai.errors import AgentFailed, PeerGone, SeraiError

__all__ = ["deaf", "failed"]

_WHAT = {
    "bad_flag": "it does not take its command line",
    "bad_session_id": "it does not take the id of the session",
    "cwd_unavailable": "its working directory is gone",
    "not_logged_in": "it has no login",
    "session_in_use": "the id of the session is taken",
}

_HINT = "prompt again: the conversation goes on in another process; `serai record show` has what this one said"


def failed(cause: SeraiError, who: str) -> SeraiError:
    """Start-up failures are told on stderr alone, and an exit status of 0 without a result is no success."""
    if not isinstance(cause, PeerGone):
        return cause
    kind = start_failure(cause.stderr)
    if not kind:
        kind = "no_result" if cause.exit is not None and cause.exit.ok else "exited"
    what = _WHAT.get(kind) or ("it ended without a result" if kind == "no_result" else cause.message)
    return AgentFailed(what, kind=kind, who=who, exit=cause.exit, stderr=cause.stderr, hint=HINTS.get(kind, _HINT))


def deaf(who: str) -> AgentFailed:
    return AgentFailed("it did not heed an interrupt, and was ended", kind="exited", who=who, hint=_HINT)
