"""The seed's vocabulary (agent types, formats, event types and kinds), the shape of an event, and JSON lines in and out.

The names are those of spec agents 1.3 and 1.19; the decoder of events and the encoder of values are those of the seed's protocol
layer (spec agents 1.6).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from time import monotonic
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from serai.compat.agentboot.errors import EncoderClosed
from serai.errors import SeraiError
from serai.limits import KIB, MIB, Limits
from serai.wire import codec
from serai.wire.stream import Framer, Oversize, split_lines

log = logging.getLogger("serai.agents")

AgentType = str  # whoever registers an agent names it
AgentTypeClaude = "claude"
AgentTypeMock = "mock"


class OutputFormat(StrEnum):
    TEXT = "text"
    STREAM_JSON = "stream-json"


OutputFormatText = OutputFormat.TEXT
OutputFormatStreamJSON = OutputFormat.STREAM_JSON


class PermissionMode(StrEnum):
    """How this side treats requests, whatever the agent's own permission mode is. `serai.policy` decides by it."""

    AUTO = "auto"
    MANUAL = "manual"
    SKIP = "skip"


PermissionModeAuto = PermissionMode.AUTO
PermissionModeManual = PermissionMode.MANUAL
PermissionModeSkip = PermissionMode.SKIP

EventTypeInit = "init"
EventTypeSystem = "system"
EventTypeAssistant = "assistant"
EventTypeUser = "user"
EventTypeToolUse = "tool_use"
EventTypeToolResult = "tool_result"
EventTypePermissionRequest = "permission_request"
EventTypePermissionResult = "permission_result"
EventTypeResult = "result"
EventTypeError = "error"
EventTypeStreamDelta = "stream_delta"


class EventKind(IntEnum):
    """What a transport makes of an event."""

    IGNORE = 0
    MESSAGE = 1
    CONTROL = 2
    TERMINAL_SUCCESS = 3
    TERMINAL_ERROR = 4
    TURN_END = 5  # ours: a result after which the run goes on (spec agents 2.11)


EventKindIgnore = EventKind.IGNORE
EventKindMessage = EventKind.MESSAGE
EventKindControl = EventKind.CONTROL
EventKindTerminalSuccess = EventKind.TERMINAL_SUCCESS
EventKindTerminalError = EventKind.TERMINAL_ERROR
EventKindTurnEnd = EventKind.TURN_END


def get_now() -> datetime:
    return datetime.now(UTC)


class Event(msgspec.Struct):
    """One frame of an agent as data. `type` is `unknown` where the frame has none, `noise` where the line was no frame."""

    type: str
    data: dict[str, Any] = {}
    timestamp: datetime = msgspec.field(default_factory=get_now)
    raw: str = ""


NOISE = "noise"  # the type of the event of a line that is no frame

_LONG = 1 * MIB  # longer lines are parsed in a thread (spec agents 7.27)
_PIECE = 128 * KIB
_AHEAD = 1 * MIB  # lines that wait to be taken; then their writer waits

_value: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_object: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_members: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])
_items: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])


class Source(Protocol):
    """Where lines come from: a channel."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Decoder:
    """Takes runs of lines as a channel gives them and hands on events, each parsed when it is wanted.

    It ends with the input: `error` is None then, `cause` is why the channel ended; or by `cancel`, and then `error` says so. A line
    that is no JSON object is an event of the type `noise`, counted in `noise` (design rule 5).
    """

    def __init__(self, source: Source | None = None, *, limits: Limits | None = None) -> None:
        self.source = source
        self.error: BaseException | None = None
        self.cause: SeraiError | None = None
        self.noise = 0
        self.last = monotonic()  # when something came
        self._framer = Framer((limits or Limits()).frame)
        self._lines: deque[bytes | Oversize] = deque()
        self._waiting = 0  # bytes
        self._over = False
        self._reader: asyncio.Future[None] | None = None

    # -- for the channel, or whoever has bytes

    def handle_run(self, run: bytes) -> None:
        self.last = monotonic()
        lines = split_lines(run)
        self._lines.extend(lines)
        self._waiting += sum(map(len, lines))
        if self._waiting > _AHEAD and self.source is not None:
            self.source.pause()
        self._wake()

    def handle_oversize(self, frame: Oversize) -> None:
        self.last = monotonic()
        self._lines.append(frame)
        self._wake()

    def handle_loss(self, cause: SeraiError) -> None:
        self.cause = cause
        self._end()

    def tick(self, now: float) -> float | None:  # noqa: ARG002
        return None

    def feed(self, data: bytes) -> None:
        """Bytes that were not framed yet."""
        for item in self._framer.feed(data):
            self.handle_run(item) if isinstance(item, bytes) else self.handle_oversize(item)

    def feed_eof(self) -> None:
        for item in self._framer.feed_eof():
            self.handle_run(item) if isinstance(item, bytes) else self.handle_oversize(item)
        self._end()

    # -- for its reader

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self._lines:
                item = self._lines.popleft()
                if isinstance(item, Oversize):
                    self.noise += 1
                    return _build_noise(item.head, f"a frame of {item.size} bytes was skipped: the limit frame is {item.limit}")
                self._waiting -= len(item)
                if self._waiting <= _AHEAD // 2 and self.source is not None:
                    self.source.resume()
                return await self._parse_line(item)
            if self._over:
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader

    def cancel(self) -> None:
        """End it now, whatever is there. Idempotent; nothing happens after its end."""
        if not self._over:
            self.error = asyncio.CancelledError("the decoder was cancelled")
            self._lines.clear()
            self._end()

    # -- inside

    async def _parse_line(self, line: bytes) -> Event:
        event = parse_event(line) if len(line) <= _LONG else await asyncio.to_thread(parse_event, line)
        self.noise += event.type == NOISE
        return event

    def _end(self) -> None:
        self._over = True
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


def parse_event(line: bytes) -> Event:
    """A line as an event; one that is no JSON object is noise."""
    try:
        data = parse_object(line)
    except codec.BAD_INPUT as error:
        return _build_noise(line, "not a JSON object" if isinstance(error, msgspec.ValidationError) else f"not JSON: {error}")
    kind = data.get("type")
    return Event(kind if isinstance(kind, str) else "unknown", data, raw=line.decode(errors="replace"))


def _build_noise(line: bytes, why: str) -> Event:
    log.debug("a line that is no frame (%s): %s", why, line[:200])
    return Event(NOISE, {"why": why}, raw=line.decode(errors="replace"))


def parse_object(line: bytes) -> dict[str, Any]:
    """One JSON object. Text that no strict parser reads is mended, as everywhere (spec agents 7.2)."""
    try:
        return _decode_object(line)
    except codec.BAD_INPUT:
        repaired = codec.repair(line)
        if repaired is None:
            raise
        return _decode_object(repaired)


def _decode_object(line: bytes) -> dict[str, Any]:
    if len(line) <= _PIECE:
        return _object.decode(line)
    return {key: _decode_in_pieces(value) for key, value in _members.decode(line).items()}


def _decode_in_pieces(value: Raw) -> Any:
    """A long value part by part: the parser lets no other thread run before it is done, and the loop must go on serving."""
    size = memoryview(value).nbytes
    if size > _PIECE:
        first = bytes(memoryview(value)[:1])
        if first == b"{":
            return {key: _decode_in_pieces(part) for key, part in _members.decode(value).items()}
        if first == b"[":
            return [_decode_in_pieces(part) for part in _items.decode(value)]
    return _value.decode(value)


class Destination(Protocol):
    """Where an encoder's lines go."""

    async def write(self, data: bytes, /) -> None: ...
    async def close(self) -> None: ...


class Encoder:
    """Writes one value a line. Those who write at once do so one after the other, and the end waits for them."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._turn = asyncio.Lock()
        self._closed = False

    async def encode(self, value: Any) -> None:
        line = codec.encode(value)  # first: what is no JSON writes nothing
        async with self._turn:
            if self._closed:
                raise EncoderClosed
            await self._destination.write(line)

    async def close(self) -> None:
        """Idempotent; the destination is closed once."""
        async with self._turn:
            if not self._closed:
                self._closed = True
                await self._destination.close()
