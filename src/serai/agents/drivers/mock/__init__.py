"""An agent that plays a script: no program, no model, no network. For tests of whatever stands around an agent, and for demos."""

from serai.agents.drivers.mock.driver import mock
from serai.agents.drivers.mock.script import (
    Ask,
    Assistant,
    Background,
    Error,
    Fail,
    Permission,
    Result,
    Script,
    Step,
    StreamDelta,
    Thinking,
    ToolResult,
    ToolUse,
    Wait,
    linear,
)
from serai.compat.agentboot.mock_messages import Played, played, seed_event, seed_events

__all__ = [
    "Ask",
    "Assistant",
    "Background",
    "Error",
    "Fail",
    "Permission",
    "Played",
    "Result",
    "Script",
    "Step",
    "StreamDelta",
    "Thinking",
    "ToolResult",
    "ToolUse",
    "Wait",
    "linear",
    "mock",
    "played",
    "seed_event",
    "seed_events",
]
