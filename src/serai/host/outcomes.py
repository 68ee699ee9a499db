"""What went wrong with a call, as a code for models and scripts: one for each kind of failure (design rule 7)."""

from __future__ import annotations

from serai.errors import SeraiError

__all__ = ["code_of", "command_code", "start_hint"]

_CODES: dict[str, str] = {
    "PeerTimeout": "TIMEOUT",
    "PeerGone": "TOOL_UNAVAILABLE",
    "PeerStalled": "TOOL_UNAVAILABLE",
    "Closed": "TOOL_UNAVAILABLE",
    "BadFrame": "BAD_ANSWER",
    "OversizeFrame": "BAD_ANSWER",
    "FrameTooBig": "INVALID_ARGS",  # more than the guest can read: who asked can ask for less
    "Refused": "REFUSED",
    "Trapped": "FAILED",  # a plugin ended where it stood
}


def code_of(error: SeraiError) -> str:
    """The code of an error that ended the call of a tool."""
    return _CODES.get(type(error).__name__, "FAILED")


def command_code(error: SeraiError) -> str:
    """The same for a command."""
    code = code_of(error)
    return "COMMAND_UNAVAILABLE" if code == "TOOL_UNAVAILABLE" else code


def start_hint(stderr: str) -> str:
    """What to do about a guest that never began, where its last words show it; else nothing."""
    if "No module named 'serai'" in stderr:
        return "the Python that starts it has no serai: name one that has it in `exec`, or bundle it (`serai guest bundle`)"
    if "ERR_UNKNOWN_FILE_EXTENSION" in stderr and '".ts"' in stderr:
        return "this node runs no TypeScript: 22.18 and newer do, and so does bun (`runtime: bun` in manifest.yaml)"
    return ""
