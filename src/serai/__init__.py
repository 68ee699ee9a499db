"""Serai takes in any extension, drives any coding agent, under one policy, with every wire on record.

This package is the public surface; `docs/architecture.md` draws the house. Names are imported when they are first used, so
`import serai` itself costs nothing.
"""

from __future__ import annotations

from serai.lazy import lazy
from serai.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.agents.driver import Prompt
    from serai.agents.opening import agent
    from serai.agents.session import Session
    from serai.agents.turn import Turn
    from serai.app.app import App
    from serai.boxes.box import Box
    from serai.boxes.hooks import Hook
    from serai.boxes.manager import Boxes
    from serai.errors import LocalError, MachineError, PeerError, SeraiError
    from serai.host.host import Host
    from serai.limits import Limits
    from serai.model.ask import Allow, Answer, Approval, Deny, Question
    from serai.model.events import Text, Thinking, TurnResult
    from serai.model.tools import ToolCall, ToolResult, ToolSpec

__all__ = [
    "Allow",
    "Answer",
    "App",
    "Approval",
    "Box",
    "Boxes",
    "Deny",
    "Hook",
    "Host",
    "Limits",
    "LocalError",
    "MachineError",
    "PeerError",
    "Prompt",
    "Question",
    "SeraiError",
    "Session",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "ToolSpec",
    "Turn",
    "TurnResult",
    "__version__",
    "agent",
]

_HOMES = {
    "Allow": "model.ask",
    "Answer": "model.ask",
    "App": "app.app",
    "Approval": "model.ask",
    "Box": "boxes.box",
    "Boxes": "boxes.manager",
    "Deny": "model.ask",
    "Hook": "boxes.hooks",
    "Host": "host.host",
    "Limits": "limits",
    "LocalError": "errors",
    "MachineError": "errors",
    "PeerError": "errors",
    "Prompt": "agents.driver",
    "Question": "model.ask",
    "SeraiError": "errors",
    "Session": "agents.session",
    "Text": "model.events",
    "Thinking": "model.events",
    "ToolCall": "model.tools",
    "ToolResult": "model.tools",
    "ToolSpec": "model.tools",
    "Turn": "agents.turn",
    "TurnResult": "model.events",
    "agent": "agents.opening",
}

__getattr__, __dir__ = lazy(__name__, _HOMES, "__version__")
