"""For authors: an extension in Python, written once (docs/extensions.md).

    from serai.sdk import Extension
    ext = Extension("weather", version="1.0")

    @ext.tool
    async def weather(city: str) -> str:
        "The current weather in a city."
        return f"{city}: 16 degrees, fog"

    ext.main()

Standard library only, and as little of it as can be before hello is out: a bundle has nothing else, and a host waits.
"""

from __future__ import annotations

from serai.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.errors import BadExtension, NoService
    from serai.sdk.answers import (
        Allow,
        Block,
        Display,
        Failed,
        Image,
        Insert,
        Nothing,
        OpenPanel,
        Prompt,
        Rewrite,
        Text,
        ToolError,
        ToolResult,
        image,
        text,
    )
    from serai.sdk.calls import Call, Cancelled
    from serai.sdk.extension import Extension
    from serai.sdk.heard import Event, ToolCall
    from serai.sdk.panel import Panel

__all__ = [
    "Allow",
    "BadExtension",
    "Block",
    "Call",
    "Cancelled",
    "Display",
    "Event",
    "Extension",
    "Failed",
    "Image",
    "Insert",
    "NoService",
    "Nothing",
    "OpenPanel",
    "Panel",
    "Prompt",
    "Rewrite",
    "Text",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "image",
    "text",
]

_HOMES = dict.fromkeys(__all__, "answers") | {
    "BadExtension": "extension",
    "Call": "calls",
    "Cancelled": "calls",
    "Event": "heard",
    "Extension": "extension",
    "NoService": "host",
    "Panel": "panel",
    "ToolCall": "heard",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
