"""Serai's side of a zot wire (sans-IO): runs in, events out; commands in, frames out.

The life of a wire is its `phase`. "hello": nothing but a hello may come. "registering": from the hello until the guest is ready,
by its own frame or by the clock (spec zot 2.2). "ready": the registration window is closed, yet commands and subscriptions stay
live. "leaving": we stop it, and only read. "over": the guest did not say hello, or is gone; nothing more is read. Guests send
everything at once, so whatever comes after the hello is handled, before and after the `hello_ack`.

Frames that need no state (events, panel keys, shutdown) have no command here: `encode(messages.Shutdown())` makes them.
"""

from __future__ import annotations

from math import inf
from typing import Any, Literal, get_args

import msgspec
from msgspec import Raw

from serai.dialects.zot import messages
from serai.dialects.zot.events import (
    Answer,
    Answered,
    CommandOffered,
    Event,
    Expired,
    Garbled,
    Hello,
    NoHello,
    Notified,
    PanelClosed,
    PanelRendered,
    Ready,
    Repeated,
    ShutdownAcknowledged,
    Subscribed,
    ToolOffered,
    ToolRefused,
)
from serai.dialects.zot.messages import (
    Broken,
    CommandResponse,
    EventIntercept,
    EventInterceptResponse,
    FrameReader,
    FromGuest,
    HelloAck,
    Malformed,
    Odd,
    Stray,
    ToolResult,
    UnknownFrame,
    scan_kind_and_id,
)
from serai.errors import Closed
from serai.wire.codec import BAD_INPUT, decode, encode
from serai.wire.stream import Oversize, PendingCall, PendingCalls

CallFrame = tuple[PendingCall[str], bytes]  # the frame is what makes the call
Phase = Literal["hello", "registering", "ready", "leaving", "over"]

_ANSWERS = (ToolResult, CommandResponse, EventInterceptResponse)
_schema: msgspec.json.Decoder[dict[str, Any] | None] = msgspec.json.Decoder(dict[str, Any] | None)


class HostSide:
    """The host's end of one guest's wire."""

    def __init__(self, *, hello: float = 10.0, idle: float = 0.25, ready: float = 3.0) -> None:
        self.phase: Phase = "hello"
        self._limits = (hello, idle, ready)
        self._reader = FrameReader(messages.FROM_GUEST, get_args(FromGuest))
        self._shut = False  # nothing is asked any more
        self._last_id = 0
        # One table for each kind of request, so that an answer of another kind finds nothing (ids are per kind, spec zot 3.1).
        self._tools: PendingCalls[str] = PendingCalls()
        self._commands: PendingCalls[str] = PendingCalls()
        self._intercepts: PendingCalls[str] = PendingCalls()
        self._waiting = {"tool_call": self._tools, "command_invoked": self._commands, "event_intercept": self._intercepts}
        tables = self._waiting.values()
        self._answers: dict[type[messages.Frame], PendingCalls[str]] = dict(zip(_ANSWERS, tables, strict=True))
        self._by_kind = {messages.get_kind(frame): calls for frame, calls in self._answers.items()}
        self._offered: set[tuple[str, str]] = set()
        self._events: frozenset[str] = frozenset()
        self._intercept: frozenset[str] = frozenset()
        self._heard = False  # in the current window
        self._due = inf  # when a hello, and later a frame in the current window, must have come
        self._latest = inf  # when the guest counts as ready whatever it does
        self._unkept = ""  # why the first line, which was too long to be kept, is no hello

    # -- time -------------------------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """The process runs: the time for its hello counts from here."""
        self._due = now + self._limits[0]

    def expire(self, now: float) -> list[Event]:
        """What the passing of time has brought about."""
        events: list[Event] = [Expired(call) for calls in self._waiting.values() for call in calls.expire(now)]
        if self.phase == "hello" and now >= self._due:
            late = not self._unkept
            events.append(self._fail(self._unkept or f"no hello within {self._limits[0]:g} s", b"", late=late))
        elif self.phase == "registering":
            events += self._check_window(now)
        return events

    def next_deadline(self) -> float | None:
        deadlines = [at for calls in self._waiting.values() if (at := calls.next_deadline()) is not None]
        if self.phase in ("hello", "registering"):
            deadlines += [at for at in (self._due, self._latest) if at != inf]
        return min(deadlines, default=None)

    def _open_window(self, now: float) -> None:
        if self.phase == "registering":
            self._heard = False
            self._due, self._latest = now + self._limits[1], now + self._limits[2]

    def _check_window(self, now: float) -> list[Event]:
        """A window in which nothing was heard ends it; a guest that always says something is cut off (spec zot 2.2)."""
        if now >= self._due and not self._heard:
            return self._close_window("idle")
        if now >= self._latest:
            return self._close_window("late")
        if now >= self._due:
            self._heard = False
            self._due = now + self._limits[1]
        return []

    def _close_window(self, how: Literal["frame", "idle", "late"]) -> list[Event]:
        self.phase = "ready"
        return [Ready(how)]

    @property
    def pending(self) -> int:
        """How many answers are waited for."""
        return len(self._tools) + len(self._commands) + len(self._intercepts)

    # -- commands: each gives the frame to send ---------------------------------------------------------------------------------

    def welcome(self, about: HelloAck, *, now: float) -> bytes:
        """Answer the hello; the time to get ready counts from here."""
        self._open_window(now)
        return encode(about)

    def call_tool(self, name: str, args: object, now: float, timeout: float | None, waiter: Any = None) -> CallFrame:
        """Run a tool. Arguments are any JSON, `{}` for none at all (spec zot 3.3). The call is waiting from now on."""
        if self._shut:
            raise Closed(f"{name} cannot be asked: the guest is gone")
        self._last_id = number = self._last_id + 1  # as in `_new_id`: this is the hot path
        id = str(number)
        frame = encode(messages.ToolCall(id, name, {} if args is None else args))  # type: ignore[arg-type]  # written as it is
        call = PendingCall(id, f"tool_call {name}", now, inf if timeout is None else now + timeout, timeout, waiter)
        self._tools.waiting[id] = call
        return call, frame

    def invoke_command(self, name: str, args: str, *, now: float, timeout: float | None, waiter: Any = None) -> CallFrame:
        id = self._new_id(name)
        frame = encode(messages.CommandInvoked(id, name, args))
        return self._commands.start(id, f"command_invoked {name}", now=now, timeout=timeout, waiter=waiter), frame

    def intercept_tool_call(
        self, tool_id: str, tool_name: str, tool_args: object, *, now: float, timeout: float | None, waiter: Any = None
    ) -> CallFrame:
        args: Raw = {} if tool_args is None else tool_args  # type: ignore[assignment]  # written as it is
        question = EventIntercept(self._new_id("tool_call"), "tool_call", tool_id, tool_name, args)
        return self._ask(question, now, timeout, waiter)

    def intercept_turn_start(self, step: int, *, now: float, timeout: float | None, waiter: Any = None) -> CallFrame:
        return self._ask(EventIntercept(self._new_id("turn_start"), "turn_start", step=step), now, timeout, waiter)

    def intercept_assistant_message(self, text: str, *, now: float, timeout: float | None, waiter: Any = None) -> CallFrame:
        return self._ask(EventIntercept(self._new_id("assistant_message"), "assistant_message", text=text), now, timeout, waiter)

    def forget(self, call: PendingCall[str]) -> bool:
        """No longer wait for it; zot has no way to tell the guest. False when it has ended already."""
        return any(calls.finish(call.id) is not None for calls in self._waiting.values())

    def waits_for(self, call: PendingCall[str]) -> bool:
        """Whether it has not ended: a request that has must not be written any more."""
        return any(call.id in calls for calls in self._waiting.values())

    def _new_id(self, what: str) -> str:
        """Ours are unique across kinds, which is more than the protocol asks for."""
        if self._shut:
            raise Closed(f"{what} cannot be asked: the guest is gone")
        self._last_id += 1
        return str(self._last_id)

    def _ask(self, question: EventIntercept, now: float, timeout: float | None, waiter: Any) -> CallFrame:
        frame = encode(question)
        what = f"event_intercept {question.event}"
        return self._intercepts.start(question.id, what, now=now, timeout=timeout, waiter=waiter), frame

    # -- input: each gives what happened ----------------------------------------------------------------------------------------

    def receive(self, run: bytes) -> list[Event]:
        if self.phase == "hello":
            return self._receive_first(run)
        if self.phase == "over":
            return []
        self._heard = True
        events: list[Event] = []
        tables = self._answers
        frames: list[Any] = self._reader.read(run)  # the table tells the answers, which checkers cannot see
        for frame in frames:
            calls = tables.get(type(frame))
            if calls is None:
                events += self._interpret(frame)
            elif (call := calls.waiting.pop(frame.id, None)) is not None:
                events.append(Answered(call, frame))
            else:
                events.append(_build_stray(frame))
        return events

    def note_sent(self, run: bytes, now: float) -> None:
        """Take up what this side said earlier, as in a replay: the answers to it then find their calls.

        A recording whose beginning is gone has no hello, but whoever is asked something has said it.
        """
        for frame in FrameReader(messages.FROM_HOST, get_args(messages.FromHost)).read(run):
            match frame:
                case HelloAck():
                    self._start_registering()
                    self._open_window(now)
                case messages.ToolCall(id=id, name=name) | messages.CommandInvoked(id=id, name=name):
                    self._take_up(frame, id, name, now)
                case EventIntercept(id=id, event=event):
                    self._take_up(frame, id, event, now)

    def oversize(self, frame: Oversize) -> list[PendingCall[str]]:
        """The calls that an oversize frame ends: the one it answered if its head tells, else all (design rule 5).

        As the first line of all it is no hello: `next_deadline` is then past, and `expire` says so.
        """
        if self.phase == "hello":
            self._unkept = f"parse hello: the first line has {frame.size} bytes; the limit is {frame.limit}"
            self._due = 0.0
            return []
        kind, id = scan_kind_and_id(frame.head)
        if kind and kind not in self._by_kind:
            return []
        if not id:
            return self._abandon()
        tables = [self._by_kind[kind]] if kind else self._waiting.values()
        return [call for calls in tables if (call := calls.finish(id)) is not None]

    def leave(self) -> list[PendingCall[str]]:
        """We stop the guest: every waiting call, and nothing more is asked. What it still says is heard (spec zot 7.34)."""
        self.phase = "leaving"
        self._shut = True
        return self._abandon()

    def lose(self) -> list[PendingCall[str]]:
        """The guest is gone: every waiting call, to be failed with that one cause."""
        self.phase = "over"
        self._shut = True
        return self._abandon()

    # -- inside -----------------------------------------------------------------------------------------------------------------

    def _abandon(self) -> list[PendingCall[str]]:
        return [call for calls in self._waiting.values() for call in calls.abandon()]

    def _take_up(self, frame: messages.Frame, id: str, name: str, now: float) -> None:
        self._start_registering()
        kind = messages.get_kind(frame)
        self._last_id = max(self._last_id, int(id)) if id.isdecimal() and len(id) < 20 else self._last_id
        self._waiting[kind].start(id, f"{kind} {name}", now=now, timeout=None)

    def _fail(self, why: str, raw: bytes, *, late: bool = False) -> NoHello:
        self.phase = "over"
        self._shut = True
        return NoHello(why, raw, late)

    def _receive_first(self, run: bytes) -> list[Event]:
        """The first line of all, then the rest of its run."""
        if self._unkept:
            return [self._fail(self._unkept, b"")]
        end = run.find(b"\n") + 1 or len(run)
        for first in self._reader.read(run[:end]):  # just one, or none of no bytes at all
            if not isinstance(first, messages.Hello) or not first.name:
                return [self._fail(_explain_no_hello(first), run[:end].strip(b" \t\r\n"))]
            self._start_registering()
            hello = Hello(first.name, first.version, first.capabilities)
            return [hello, *self.receive(run[end:])]
        return []

    def _start_registering(self) -> None:
        if self.phase == "hello":
            self.phase = "registering"
            self._due = inf

    def _interpret(self, frame: FromGuest | Odd) -> list[Event]:
        """What is no answer."""
        match frame:
            case messages.Notify(level=level, message=message):
                return [Notified(level, message)]
            case messages.PanelRender():
                return [PanelRendered(frame.panel_id, frame.title, frame.lines, frame.footer)]
            case messages.PanelClose(panel_id=panel_id):
                return [PanelClosed(panel_id)]
            case messages.RegisterTool():
                return [self._offer_tool(frame)]
            case messages.RegisterCommand():
                return [self._offer_command(frame)]
            case messages.Subscribe():
                return [self._subscribe(frame)]
            case messages.Ready():
                return self._close_window("frame") if self.phase == "registering" else []
            case messages.ShutdownAck():
                return [ShutdownAcknowledged()]
            case messages.Hello():
                return [Stray(encode(frame).rstrip(), "a second hello")]
            case Broken():
                return [self._handle_broken(frame)]
            case Malformed() | UnknownFrame():
                return [frame]
        raise AssertionError(frame)  # pragma: no cover  (answers are taken before)

    def _offer_tool(self, frame: messages.RegisterTool) -> Event:
        """A missing schema takes any object; one that is none is refused (spec zot 3.2)."""
        try:
            schema = decode(_schema, frame.schema)
        except BAD_INPUT as error:
            return ToolRefused(frame.name, f"its schema is no JSON object: {error}")
        if not frame.name:
            return ToolRefused("", "it has no name")
        if self._is_taken("tool", frame.name):
            return Repeated("tool", frame.name)
        return ToolOffered(frame.name, frame.description, {"type": "object"} if schema is None else schema)

    def _offer_command(self, frame: messages.RegisterCommand) -> Event:
        if not frame.name:
            return Malformed(encode(frame).rstrip(), "register_command: it has no name")
        if self._is_taken("command", frame.name):
            return Repeated("command", frame.name)
        return CommandOffered(frame.name, frame.description)

    def _is_taken(self, what: str, name: str) -> bool:
        """Whether this name was offered before; from now on it is."""
        before = len(self._offered)
        self._offered.add((what, name))
        return len(self._offered) == before

    def _subscribe(self, frame: messages.Subscribe) -> Subscribed:
        self._events |= {name for name in frame.events if name in messages.EVENTS}
        self._intercept |= {name for name in frame.intercept if name in messages.INTERCEPTABLE}
        unknown = [name for name in frame.events if name not in messages.EVENTS]
        unknown += [name for name in frame.intercept if name not in messages.INTERCEPTABLE]
        return Subscribed(self._events, self._intercept, tuple(unknown))

    def _handle_broken(self, frame: Broken) -> Event:
        """If it was an answer, its call must not wait for another."""
        waiting = self._by_kind.get(frame.kind)
        call = waiting.finish(frame.id) if waiting is not None else None
        return frame.to_malformed() if call is None else Garbled(call, frame.raw, frame.why)


def _build_stray(frame: Answer) -> Stray:
    why = f'{messages.get_kind(frame)} for "{frame.id}", which nobody waits for: late, repeated or never asked'
    return Stray(encode(frame).rstrip(), why)


def _explain_no_hello(first: FromGuest | Odd) -> str:
    """Why the first line is no hello (spec zot 1.2)."""
    match first:
        case messages.Hello():
            return "parse hello: its name is empty"
        case Malformed(why=why) | Broken(kind="hello", why=why):
            return f"parse hello: {why}"
        case Broken(kind=kind) | UnknownFrame(kind=kind):
            return f'first frame must be hello (got "{kind}")'
        case _:
            return f'first frame must be hello (got "{messages.get_kind(first)}")'
