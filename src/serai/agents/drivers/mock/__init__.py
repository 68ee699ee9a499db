"""An agent that plays a script, without program, model or network: for demos and for tests of code around an agent.

`script` has the steps of a script and their TOML and JSON forms, `driver` plays them.
"""

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
