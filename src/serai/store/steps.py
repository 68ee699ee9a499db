"""What a model says until it is done, and what is kept of a message that no session takes as it is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from serai.model import events
from serai.model.provider import ModelMessage
from serai.model.tools import Block, ToolCall
from serai.store import neutral, times
from serai.store.entries import encode_data
from serai.store.messages import (
    AssistantMessage,
    Call,
    Image,
    Item,
    StopReason,
    Text,
    Thinking,
    ToolResultMessage,
    Unknown,
)

__all__ = ["Step", "items", "shorter"]

_DEEP = 200  # what may be around a call's arguments where they are read, and in the reader: it counts these as one
UNFIT = "[this was too long, or of a form that the session cannot keep; it began so:]\n"


class Step:
    """What the model has said since its last step was written."""

    def __init__(self) -> None:
        self.calls: dict[str, ToolCall] = {}
        self.content: list[Item] = []
        self.model = ""
        self.provider = ""
        self.at = ""
        self.usage: events.Usage | None = None
        self._streamed: list[str] = []  # for when no whole message comes
        self._thinking: list[str] = []
        self.native: Any = None  # what a provider needs again
        self._whole = False  # all of it is known

    @property
    def empty(self) -> bool:
        return not (self.content or self.calls or self._streamed or self._thinking)

    def streams(self, text: str) -> None:
        if not self._whole:
            self._streamed.append(text)

    def thinks(self, text: str) -> None:
        if not self._whole:
            self._thinking.append(text)

    def again(self) -> None:
        """The model starts its answer anew: what had streamed of it counts no more."""
        self._streamed.clear()
        self._thinking.clear()

    def answers(self, message: ModelMessage, model: str) -> None:
        """The whole of it, calls aside, which are told one by one; nothing that is shown of it adds to that."""
        self._streamed.clear()
        self._thinking = [message.thinking] if message.thinking else []
        self.content = items(message.content)
        self.native = message.native
        self.model = model
        if (made := message.made) is not None:
            self.model, self.provider, self.at = made.model, made.provider, made.at
        self._whole = True

    def says(self, message: events.Message) -> None:
        """All of what streamed before, in its final form."""
        if self._whole:
            return
        if message.content:
            self._streamed.clear()
        self.content += items(message.content)
        self.model = message.model or self.model

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.content if isinstance(item, Text)) + "".join(self._streamed)

    def message(self, provider: str, stop: StopReason, error: str) -> AssistantMessage:
        content: list[Item] = [Thinking("".join(self._thinking))] if self._thinking else []
        content += self.content
        content += [Text("".join(self._streamed))] if self._streamed else []
        content += map(_call, self.calls.values())
        usage, now = neutral.usage_of(self.usage), self.at or times.text()
        return AssistantMessage(tuple(content), self.model, self.provider or provider, usage, stop, error, now, self.native)


def items(blocks: Iterable[Block]) -> list[Item]:
    """Neutral content as items; a block that is no JSON does not cost the others."""
    found: list[Item] = []
    for block in blocks:
        try:
            found += neutral.items_of((block,))
        except ValueError:
            found.append(Text(UNFIT + _beginning(block, 1024)))
    return found


Cut = AssistantMessage | ToolResultMessage


def shorter(message: Cut, room: int) -> Cut:
    """The beginnings of what is long in it, and all of the rest: without its calls and results a conversation cannot go on."""
    short = msgspec.structs.replace(message, content=tuple(_shorter(item, room) for item in message.content))
    if isinstance(short, AssistantMessage):
        short = msgspec.structs.replace(short, error=short.error[:room], native=None)
    return short


def _shorter(item: Item, room: int) -> Item:
    match item:
        case Text():
            return item if len(item.text) <= room else Text(UNFIT + item.text[:room])
        case Thinking():
            return item if len(item.thinking) <= room else Thinking(UNFIT + item.thinking[:room])
        case Call():
            return item if _length(item.arguments) <= room else Call(item.id, item.name, _unfit(item.arguments, room))
        case Image():
            return item if len(item.data) <= room else Text(f"[an image that was too long for the session: {len(item.data)} bytes]")
        case Unknown():
            return item if len(bytes(item.raw)) <= room else Text(UNFIT + bytes(item.raw)[:room].decode(errors="replace"))


def _call(call: ToolCall) -> Call:
    """With arguments that can be read back."""
    sound = _length(call.arguments) >= 0
    return Call(call.id, call.name, call.arguments if sound else _unfit(call.arguments, 1024))


def _length(data: object) -> int:
    """Of its JSON; -1 when it has none, or is so deep that a reader may not take it."""
    try:
        text = bytes(encode_data(data))
        msgspec.json.decode(b"[" * _DEEP + text + b"]" * _DEEP)
    except (ValueError, RecursionError):
        return -1
    return len(text)


def _unfit(data: object, room: int) -> dict[str, str]:
    return {"unfit": UNFIT + _beginning(data, room)}


def _beginning(data: object, room: int) -> str:
    try:
        return json.dumps(data, default=repr, ensure_ascii=False)[:room]
    except (ValueError, TypeError, RecursionError):
        return ""
