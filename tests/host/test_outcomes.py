"""Each kind of failure has a code of its own."""

from __future__ import annotations

import pytest

from serai import errors
from serai.host.adapter import code_of, command_code

# The error; the code of a tool's call that it ended, and of a command's.
CODES: list[tuple[errors.SeraiError, str, str]] = [
    (errors.PeerTimeout("late"), "TIMEOUT", "TIMEOUT"),
    (errors.PeerGone("died"), "TOOL_UNAVAILABLE", "COMMAND_UNAVAILABLE"),
    (errors.PeerStalled("does not read"), "TOOL_UNAVAILABLE", "COMMAND_UNAVAILABLE"),
    (errors.Closed("stopped"), "TOOL_UNAVAILABLE", "COMMAND_UNAVAILABLE"),
    (errors.BadFrame("nonsense"), "BAD_ANSWER", "BAD_ANSWER"),
    (errors.OversizeFrame("too much"), "BAD_ANSWER", "BAD_ANSWER"),
    (errors.FrameTooBig("too much for it"), "INVALID_ARGS", "INVALID_ARGS"),
    (errors.Refused("no"), "REFUSED", "REFUSED"),
    (errors.SpawnFailed("missing"), "FAILED", "FAILED"),
]


@pytest.mark.parametrize(("error", "tool", "command"), CODES, ids=[type(case[0]).__name__ for case in CODES])
def test_a_failure_has_its_code(error: errors.SeraiError, tool: str, command: str) -> None:
    assert (code_of(error), command_code(error)) == (tool, command)
