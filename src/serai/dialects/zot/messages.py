"""Every frame of the zot protocol (spec zot 3.2 and 3.3).

Zero values of optional members are not written; required members always are. What is absent reads as its zero value, and so does
`null` (spec zot 3.1). Opaque members (a schema, arguments) stay bytes (`msgspec.Raw`) when they are read; when a frame is written
they may hold any value that JSON has.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from serai.wire.codec import Codec

__all__ = [
    "EVENTS",
    "FROM_GUEST",
    "FROM_HOST",
    "INTERCEPTABLE",
    "MAX_LINE",
    "NOTHING",
    "PROTOCOL_VERSION",
    "CommandInvoked",
    "CommandResponse",
    "ContentBlock",
    "Event",
    "EventIntercept",
    "EventInterceptResponse",
    "Frame",
    "FromGuest",
    "FromHost",
    "Hello",
    "HelloAck",
    "Notify",
    "PanelClose",
    "PanelKey",
    "PanelRender",
    "PanelResize",
    "PanelSpec",
    "Ready",
    "RegisterCommand",
    "RegisterTool",
    "Shutdown",
    "ShutdownAck",
    "Subscribe",
    "ToolCall",
    "ToolResult",
    "kind_of",
]

PROTOCOL_VERSION = 1
MAX_LINE = 4 * 1024 * 1024  # with its newline, for either side (spec zot 3.1)
EVENTS = ("session_start", "turn_start", "turn_end", "tool_call", "assistant_message")
INTERCEPTABLE = ("tool_call", "turn_start", "assistant_message")

NOTHING = Raw()  # an opaque member that is absent


def _text() -> Any:
    """A required string. A factory's value is written even when it is empty; a plain default would be left out."""
    return msgspec.field(default_factory=str)


def _number() -> Any:
    return msgspec.field(default_factory=int)


def _json(text: bytes) -> Any:
    """A required opaque member, and what its absence means."""
    return msgspec.field(default_factory=lambda: Raw(text))


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """One line. Only requests and answers have an `id`, but in every frame it must be a string if it is there (spec zot 3.1)."""

    id: str = ""


# -- guest to host (spec zot 3.2) -----------------------------------------------------------------------------------------------


class Hello(Frame, frozen=True, tag="hello", gc=False):
    """The first frame. The name must not be empty; the rest is advisory."""

    name: str = _text()
    version: str = _text()
    capabilities: tuple[str, ...] = ()


class RegisterCommand(Frame, frozen=True, tag="register_command", gc=False):
    """Bind `/name`; the name has no slash."""

    name: str = _text()
    description: str = ""


class RegisterTool(Frame, frozen=True, tag="register_tool", gc=False):
    """Offer a tool. The schema is any JSON here; a missing one reads as null."""

    name: str = _text()
    description: str = ""
    schema: Raw = _json(b"null")


class Subscribe(Frame, frozen=True, tag="subscribe", gc=False):
    """Hear of events, be asked at some. Repeatable; the sets are united."""

    events: tuple[str, ...] = ()
    intercept: tuple[str, ...] = ()


class Ready(Frame, frozen=True, tag="ready", gc=False):
    """The registration window may close."""


class PanelSpec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A panel to open."""

    id: str = _text()
    title: str = ""
    lines: tuple[str, ...] = ()
    footer: str = ""


class CommandResponse(Frame, frozen=True, tag="command_response", gc=False):
    """The answer to `command_invoked`."""

    id: str = _text()
    action: str = _text()
    prompt: str = ""
    insert: str = ""
    display: str = ""
    open_panel: PanelSpec | None = None
    error: str = ""


class ContentBlock(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`text` with text, or `image` with mime_type and base64 data. One struct for all: an unknown type is data."""

    type: str = _text()
    text: str = ""
    mime_type: str = ""
    data: str = ""


class ToolResult(Frame, frozen=True, tag="tool_result", gc=False):
    """The answer to `tool_call`."""

    id: str = _text()
    content: tuple[ContentBlock, ...] = msgspec.field(default_factory=lambda: ())  # `tuple` itself would not be written
    is_error: bool = False


class EventInterceptResponse(Frame, frozen=True, tag="event_intercept_response", gc=False):
    """The answer to `event_intercept`."""

    id: str = _text()
    block: bool = False
    reason: str = ""
    modified_args: Raw = NOTHING
    replace_text: str = ""


class PanelRender(Frame, frozen=True, tag="panel_render", gc=False):
    """What the open panel shows now."""

    panel_id: str = _text()
    title: str = ""
    lines: tuple[str, ...] = ()
    footer: str = ""


class PanelClose(Frame, frozen=True, tag="panel_close", gc=False):
    """The panel is closed, or should be: the one frame that goes both ways."""

    panel_id: str = _text()


class Notify(Frame, frozen=True, tag="notify", gc=False):
    """A word to the person, at any time."""

    level: str = _text()
    message: str = _text()


class ShutdownAck(Frame, frozen=True, tag="shutdown_ack", gc=False):
    """Ignored: what counts is that the process ends."""


# -- host to guest (spec zot 3.3) -----------------------------------------------------------------------------------------------


class HelloAck(Frame, frozen=True, tag="hello_ack", gc=False):
    """The answer to `hello`."""

    protocol_version: int = msgspec.field(default_factory=lambda: PROTOCOL_VERSION)
    zot_version: str = _text()
    provider: str = _text()
    model: str = _text()
    cwd: str = _text()
    extension_dir: str = ""
    data_dir: str = ""


class CommandInvoked(Frame, frozen=True, tag="command_invoked", gc=False):
    """A person typed `/name args`."""

    id: str = _text()
    name: str = _text()
    args: str = ""


class ToolCall(Frame, frozen=True, tag="tool_call", gc=False):
    """Run a tool. The id is the host's own, not the model's."""

    id: str = _text()
    name: str = _text()
    args: Raw = _json(b"{}")


class Event(Frame, frozen=True, tag="event", gc=False):
    """Something happened; which members it has depends on the event (spec zot 4.3)."""

    event: str = _text()
    step: int = 0
    stop: str = ""
    error: str = ""
    tool_id: str = ""
    tool_name: str = ""
    tool_args: Raw = NOTHING
    text: str = ""


class EventIntercept(Frame, frozen=True, tag="event_intercept", gc=False):
    """Something is about to happen: may it (spec zot 4.4)?"""

    id: str = _text()
    event: str = _text()
    tool_id: str = ""
    tool_name: str = ""
    tool_args: Raw = NOTHING
    step: int = 0
    text: str = ""


class PanelKey(Frame, frozen=True, tag="panel_key", gc=False):
    """A key for the open panel; `text` goes with the key `rune` only."""

    panel_id: str = _text()
    key: str = _text()
    text: str = ""


class PanelResize(Frame, frozen=True, tag="panel_resize", gc=False):
    """The room that the panel has."""

    panel_id: str = _text()
    width: int = _number()
    height: int = _number()


class Shutdown(Frame, frozen=True, tag="shutdown", gc=False):
    """The end; the guest's input is closed right behind it."""


FromGuest = (
    Hello
    | RegisterCommand
    | RegisterTool
    | Subscribe
    | Ready
    | CommandResponse
    | ToolResult
    | EventInterceptResponse
    | PanelRender
    | PanelClose
    | Notify
    | ShutdownAck
)
FromHost = HelloAck | CommandInvoked | ToolCall | Event | EventIntercept | PanelKey | PanelResize | PanelClose | Shutdown

FROM_GUEST: Codec[FromGuest] = Codec(FromGuest)
FROM_HOST: Codec[FromHost] = Codec(FromHost)


def kind_of(frame: Frame | type[Frame]) -> str:
    """What the frame's `type` says on the wire."""
    tag = frame.__struct_config__.tag
    assert isinstance(tag, str)
    return tag
