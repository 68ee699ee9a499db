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

__all__ = [
    "Ask",
    "Assistant",
    "Background",
    "Error",
    "Fail",
    "Permission",
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
]
