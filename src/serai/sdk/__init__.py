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
    from serai.errors import BadExtension, NoService, PeerGone, Refused
    from serai.sdk.actions import AttachImage, DetachImage, Handled, Notify, Quit, SetStatus, SetTitle
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
    from serai.sdk.asking import Reply
    from serai.sdk.bus import Published, Subscription
    from serai.sdk.calls import Call, Cancelled
    from serai.sdk.extension import Extension
    from serai.sdk.heard import Event, ToolCall, ToolDone
    from serai.sdk.ingress import IngressEvent, Service
    from serai.sdk.panel import Panel
    from serai.sdk.records import StreamRequest
    from serai.sdk.streams import Deltas

__all__ = [
    "Allow",
    "AttachImage",
    "BadExtension",
    "Block",
    "Call",
    "Cancelled",
    "Deltas",
    "DetachImage",
    "Display",
    "Event",
    "Extension",
    "Failed",
    "Handled",
    "Image",
    "IngressEvent",
    "Insert",
    "NoService",
    "Nothing",
    "Notify",
    "OpenPanel",
    "Panel",
    "PeerGone",
    "Prompt",
    "Published",
    "Quit",
    "Refused",
    "Reply",
    "Rewrite",
    "Service",
    "SetStatus",
    "SetTitle",
    "StreamRequest",
    "Subscription",
    "Text",
    "ToolCall",
    "ToolDone",
    "ToolError",
    "ToolResult",
    "image",
    "text",
]

_HOMES = dict.fromkeys(__all__, "answers") | {
    "AttachImage": "actions",
    "BadExtension": "extension",
    "Call": "calls",
    "Cancelled": "calls",
    "Deltas": "streams",
    "DetachImage": "actions",
    "Event": "heard",
    "Extension": "extension",
    "Handled": "actions",
    "IngressEvent": "ingress",
    "NoService": "host",
    "Notify": "actions",
    "Panel": "panel",
    "PeerGone": "asking",
    "Published": "bus",
    "Quit": "actions",
    "Refused": "asking",
    "Reply": "asking",
    "Service": "ingress",
    "SetStatus": "actions",
    "SetTitle": "actions",
    "StreamRequest": "records",
    "Subscription": "bus",
    "ToolCall": "heard",
    "ToolDone": "heard",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
