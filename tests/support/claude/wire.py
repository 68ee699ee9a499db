"""What several tests of the dialect need."""

from __future__ import annotations

import json
from typing import Any

from serai.dialects.claude.events import CanUseTool
from serai.dialects.claude.host_side import HostSide
from serai.dialects.claude.peer_side import PeerSide

SYSTEM: dict[str, Any] = {"type": "system", "subtype": "init", "session_id": "s-1", "cwd": "/w", "tools": ["Bash"], "model": "m"}
RESULT: dict[str, Any] = {
    "subtype": "success", "is_error": False, "result": "Hi", "num_turns": 1, "type": "result", "session_id": "s-1",
}  # fmt: skip


def line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def hear(ours: HostSide, run: bytes) -> Any:
    """The one thing that it says."""
    [event] = ours.receive(run)
    return event


def ask(ours: HostSide, theirs: PeerSide, tool: str = "Bash") -> str:
    """The id of an approval that waits."""
    id, frame = theirs.can_use_tool(tool, {"command": "ls"}, "toolu_1")
    assert isinstance(hear(ours, frame), CanUseTool)
    return id


def answer_to(id: str, frame: bytes) -> dict[str, Any]:
    """What is inside a success reply to `id`, which has nothing else."""
    assert frame.count(b"\n") == 1
    whole = json.loads(frame)
    assert whole == {"type": "control_response", "response": whole["response"]}
    reply = whole["response"]
    assert reply == {"subtype": "success", "request_id": id, "response": reply["response"]}
    return dict(reply["response"])
