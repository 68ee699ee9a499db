"""Agents: what takes prompts. The same `Session` and `Turn` for our own loop and for every program that is driven.

`opening` is the door, `session` and `turn` are what a caller holds, `stage` and `driver` the agent's side of it; `driving` plays a
turn with a surface, `inbox` takes what people type meanwhile, `keeping` writes it down. `resident` is our own loop, `models` are
whom it asks.
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.agents.driver import Capabilities, Driver, Prompt
    from serai.agents.driving import drive
    from serai.agents.inbox import Inbox
    from serai.agents.opening import agent
    from serai.agents.session import Session
    from serai.agents.stage import Stage
    from serai.agents.turn import Turn

__all__ = ["Capabilities", "Driver", "Inbox", "Prompt", "Session", "Stage", "Turn", "agent", "drive"]

_HOMES = {
    "Capabilities": "driver",
    "Driver": "driver",
    "Inbox": "inbox",
    "Prompt": "driver",
    "Session": "session",
    "Stage": "stage",
    "Turn": "turn",
    "agent": "opening",
    "drive": "driving",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
