"""The guest's side of a zot wire (sans-IO): for fakes, bridges, and the other view of a replay.

Three kinds of frames from the host are requests: `ToolCalled`, `CommandInvoked` and `Intercepted`. Each is owed one answer, and
gets no second one: an `answer_…` to what is not open gives None. Ids are unique per kind only (spec zot 3.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import msgspec
from msgspec import Raw

from serai.dialects.zot import messages
from serai.dialects.zot.messages import (
    NOTHING,
    Broken,
    ContentBlock,
    FrameReader,
    FromHost,
    HelloAck,
    Malformed,
    Odd,
    PanelSpec,
    Stray,
    UnknownFrame,
    scan_kind_and_id,
)
from serai.wire.codec import encode
from serai.wire.stream import Oversize

CAPABILITIES = ("commands", "tools", "events", "panels")


class Welcomed(msgspec.Struct, frozen=True, gc=False):
    """The host answered the hello."""

    about: HelloAck


class ToolCalled(msgspec.Struct, frozen=True, gc=False):
    """Arguments are whatever JSON the model produced, not always an object (spec zot 7.51)."""

    id: str
    name: str
    args: Raw


class CommandInvoked(msgspec.Struct, frozen=True, gc=False):
    id: str
    name: str
    args: str


class Intercepted(msgspec.Struct, frozen=True, gc=False):
    """May this happen? `question` has the members of its event (spec zot 4.4)."""

    id: str
    question: messages.EventIntercept


class TooLong(msgspec.Struct, frozen=True, gc=False):
    """A request that was too long to be kept. It is owed an answer all the same."""

    id: str
    kind: str
    size: int
    limit: int


class EventHeard(msgspec.Struct, frozen=True, gc=False):
    event: messages.Event


class PanelKey(msgspec.Struct, frozen=True, gc=False):
    panel_id: str
    key: str
    text: str


class PanelResized(msgspec.Struct, frozen=True, gc=False):
    panel_id: str
    width: int
    height: int


class PanelClosed(msgspec.Struct, frozen=True, gc=False):
    panel_id: str


class Shutdown(msgspec.Struct, frozen=True, gc=False):
    """The host wants an end; the end of input means the same (spec zot 5.1)."""


Request = ToolCalled | CommandInvoked | Intercepted | TooLong
Event = Welcomed | Request | EventHeard | PanelKey | PanelResized | PanelClosed | Shutdown | Stray | Malformed | UnknownFrame
Kind = Literal["tool_call", "command_invoked", "event_intercept"]


class PeerSide:
    """The guest's end of its wire."""

    def __init__(self) -> None:
        self._reader = FrameReader(messages.FROM_HOST, get_args(FromHost))
        self._open: dict[tuple[str, str], Request] = {}  # by kind and id

    def next_deadline(self) -> float | None:
        """A guest waits for nobody."""
        return None

    # -- commands: each gives the frame to send ---------------------------------------------------------------------------------

    def hello(self, name: str, version: str = "", capabilities: Iterable[str] = CAPABILITIES) -> bytes:
        return encode(messages.Hello(name, version, tuple(capabilities)))

    def register_command(self, name: str, description: str = "") -> bytes:
        return encode(messages.RegisterCommand(name, description))

    def register_tool(self, name: str, description: str = "", schema: object = None) -> bytes:
        """No schema means any object."""
        given: Raw = {"type": "object"} if schema is None else schema  # type: ignore[assignment]  # written as it is
        return encode(messages.RegisterTool(name, description, given))

    def subscribe(self, events: Iterable[str] = (), intercept: Iterable[str] = ()) -> bytes:
        return encode(messages.Subscribe(tuple(events), tuple(intercept)))

    def ready(self) -> bytes:
        return encode(messages.Ready())

    def notify(self, level: str, message: str) -> bytes:
        return encode(messages.Notify(level, message))

    def panel_render(self, panel_id: str, *, title: str = "", lines: Iterable[str] = (), footer: str = "") -> bytes:
        return encode(messages.PanelRender(panel_id, title, tuple(lines), footer))

    def panel_close(self, panel_id: str) -> bytes:
        return encode(messages.PanelClose(panel_id))

    def shutdown_ack(self) -> bytes:
        return encode(messages.ShutdownAck())

    def answer_tool(self, id: str, content: Iterable[ContentBlock] = (), *, is_error: bool = False) -> bytes | None:
        return self._answer("tool_call", messages.ToolResult(id, tuple(content), is_error))

    def answer_command(
        self,
        id: str,
        action: str = "noop",
        *,
        prompt: str = "",
        insert: str = "",
        display: str = "",
        open_panel: PanelSpec | None = None,
        error: str = "",
    ) -> bytes | None:
        """An empty action is written as noop."""
        return self._answer(
            "command_invoked", messages.CommandResponse(id, action or "noop", prompt, insert, display, open_panel, error)
        )

    def answer_intercept(
        self, id: str, *, block: bool = False, reason: str = "", modified_args: object = NOTHING, replace_text: str = ""
    ) -> bytes | None:
        """Nothing said means allow, unchanged. `modified_args` is not written unless it is given (spec zot 4.4)."""
        args: Raw = modified_args  # type: ignore[assignment]  # written as it is
        return self._answer("event_intercept", messages.EventInterceptResponse(id, block, reason, args, replace_text))

    def _answer(self, kind: Kind, frame: messages.Frame) -> bytes | None:
        if (kind, frame.id) not in self._open:
            return None
        line = encode(frame)
        del self._open[kind, frame.id]  # only now: what cannot be encoded leaves it open for another answer
        return line

    # -- input: each gives what happened ----------------------------------------------------------------------------------------

    def receive(self, run: bytes) -> list[Event]:
        return [self._interpret(frame) for frame in self._reader.read(run)]

    def note_sent(self, run: bytes, now: float) -> None:  # noqa: ARG002  (a guest has no deadlines)
        """Take up what this side said earlier, as in a replay: what it answered is no longer open."""
        for frame in FrameReader(messages.FROM_GUEST, get_args(messages.FromGuest)).read(run):
            match frame:
                case messages.ToolResult(id=id):
                    self._open.pop(("tool_call", id), None)
                case messages.CommandResponse(id=id):
                    self._open.pop(("command_invoked", id), None)
                case messages.EventInterceptResponse(id=id):
                    self._open.pop(("event_intercept", id), None)

    def oversize(self, frame: Oversize) -> list[Event]:
        """A request that its head shows can still be answered; anything else that was too long is lost."""
        kind, id = scan_kind_and_id(frame.head)
        if kind not in get_args(Kind) or not id or (kind, id) in self._open:
            return []
        self._open[kind, id] = request = TooLong(id, kind, frame.size, frame.limit)
        return [request]

    def lose(self) -> list[Request]:
        """The host is gone: the requests that nobody needs to answer any more."""
        left = list(self._open.values())
        self._open.clear()
        return left

    # -- inside -----------------------------------------------------------------------------------------------------------------

    def _interpret(self, frame: FromHost | Odd) -> Event:
        match frame:
            case messages.ToolCall(id=id):
                return self._open_request(frame, ToolCalled(id, frame.name, frame.args))
            case messages.CommandInvoked(id=id):
                return self._open_request(frame, CommandInvoked(id, frame.name, frame.args))
            case messages.EventIntercept(id=id):
                return self._open_request(frame, Intercepted(id, frame))
            case messages.Event():
                return EventHeard(frame)
            case messages.PanelKey():
                return PanelKey(frame.panel_id, frame.key, frame.text)
            case messages.PanelResize():
                return PanelResized(frame.panel_id, frame.width, frame.height)
            case messages.PanelClose(panel_id=panel_id):
                return PanelClosed(panel_id)
            case HelloAck():
                return Welcomed(frame)
            case messages.Shutdown():
                return Shutdown()
            case Broken():
                return frame.to_malformed()
            case Malformed() | UnknownFrame():
                return frame

    def _open_request(self, frame: messages.Frame, request: Request) -> Event:
        key = (messages.get_kind(frame), request.id)
        if key in self._open:  # the frame was repeated: it is served once
            return Stray(encode(frame).rstrip(), f'a second {key[0]} with the open id "{request.id}"')
        self._open[key] = request
        return request
