"""What went wrong with a call, as a code for models and scripts: one for each kind of failure (design rule 7)."""

from __future__ import annotations

from serai.errors import SeraiError

__all__ = ["code_of"]

_CODES: dict[str, str] = {
    "PeerTimeout": "TIMEOUT",
    "PeerGone": "TOOL_UNAVAILABLE",
    "PeerStalled": "TOOL_UNAVAILABLE",
    "Closed": "TOOL_UNAVAILABLE",
    "BadFrame": "BAD_ANSWER",
    "OversizeFrame": "BAD_ANSWER",
    "Refused": "REFUSED",
}


def code_of(error: SeraiError) -> str:
    """The code of an error that ended a call."""
    return _CODES.get(type(error).__name__, "FAILED")
