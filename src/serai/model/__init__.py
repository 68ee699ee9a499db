"""The neutral words: what every guest, agent and surface is translated to. Frozen values with JSON forms, and a few protocols.

`tools` (a tool, a call, its result), `contributions` (what a guest offers), `actions` (what a guest wants done), `board` (what is
on the screen after that), `events` (what happens in a session), `ask` (what is asked of a person, and what they decide), `replies`
(what they typed), `surface` (where a person is reached), `provider` (who streams a model's answer). Nothing here knows a wire, a
process or a dialect.
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.model.actions import (
        Action,
        CloseOverlay,
        Display,
        Insert,
        Nothing,
        Notice,
        OpenPanel,
        Outcome,
        Overlay,
        Panel,
        Prompt,
        SetWidget,
        ShowOverlay,
    )
    from serai.model.ask import Allow, Answer, Approval, Decision, Deny, Question
    from serai.model.board import Board
    from serai.model.contributions import (
        Command,
        Contributions,
        EventHandler,
        Interceptor,
        Pass,
        Refuse,
        Rewrite,
        Verdict,
    )
    from serai.model.events import Event, TurnResult
    from serai.model.provider import ModelProvider
    from serai.model.surface import CallbackSurface, HeadlessSurface, ScriptedSurface, Surface
    from serai.model.tools import Block, ImageBlock, OtherBlock, TextBlock, ToolBox, ToolCall, ToolResult, ToolSpec

__all__ = [
    "Action",
    "Allow",
    "Answer",
    "Approval",
    "Block",
    "Board",
    "CallbackSurface",
    "CloseOverlay",
    "Command",
    "Contributions",
    "Decision",
    "Deny",
    "Display",
    "Event",
    "EventHandler",
    "HeadlessSurface",
    "ImageBlock",
    "Insert",
    "Interceptor",
    "ModelProvider",
    "Nothing",
    "Notice",
    "OpenPanel",
    "OtherBlock",
    "Outcome",
    "Overlay",
    "Panel",
    "Pass",
    "Prompt",
    "Question",
    "Refuse",
    "Rewrite",
    "ScriptedSurface",
    "SetWidget",
    "ShowOverlay",
    "Surface",
    "TextBlock",
    "ToolBox",
    "ToolCall",
    "ToolResult",
    "ToolSpec",
    "TurnResult",
    "Verdict",
]

_HOMES = {
    "Action": "actions",
    "Allow": "ask",
    "Answer": "ask",
    "Approval": "ask",
    "Block": "tools",
    "Board": "board",
    "CallbackSurface": "surface",
    "CloseOverlay": "actions",
    "Command": "contributions",
    "Contributions": "contributions",
    "Decision": "ask",
    "Deny": "ask",
    "Display": "actions",
    "Event": "events",
    "EventHandler": "contributions",
    "HeadlessSurface": "surface",
    "ImageBlock": "tools",
    "Insert": "actions",
    "Interceptor": "contributions",
    "ModelProvider": "provider",
    "Nothing": "actions",
    "Notice": "actions",
    "OpenPanel": "actions",
    "OtherBlock": "tools",
    "Outcome": "actions",
    "Overlay": "actions",
    "Panel": "actions",
    "Pass": "contributions",
    "Prompt": "actions",
    "Question": "ask",
    "Refuse": "contributions",
    "Rewrite": "contributions",
    "ScriptedSurface": "surface",
    "SetWidget": "actions",
    "ShowOverlay": "actions",
    "Surface": "surface",
    "TextBlock": "tools",
    "ToolBox": "tools",
    "ToolCall": "tools",
    "ToolResult": "tools",
    "ToolSpec": "tools",
    "TurnResult": "events",
    "Verdict": "contributions",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
