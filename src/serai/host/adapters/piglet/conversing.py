"""A conversation in the words of piglet (spec piglet 6.2): messages with their type beside them or inside, a call's arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from serai.dialects.piglet.messages import CompactMessage
from serai.model.provider import ModelMessage
from serai.model.tools import ToolCall
from serai.store.entries import ZERO
from serai.store.messages import StoredMessage, decode_message, encode, from_model_message, role_of, to_model_message
from serai.wire.codec import BAD_INPUT

__all__ = ["UNREADABLE", "args_of", "from_compact", "read", "spelt", "to_compact", "untagged"]

_TYPES = frozenset({"user", "assistant", "tool_result"})
# What a message's JSON may raise: no JSON at all, or a number that no integer takes.
UNREADABLE = (*BAD_INPUT, ValueError, OverflowError)


# The keys of a message, of its items and of its usage, which match in any case, as all of the protocol do (FIX-4).
_KEYS = {
    key.casefold(): key
    for key in (
        *(
            "content",
            "blocks",
            "timestamp",
            "model",
            "provider",
            "usage",
            "stopReason",
            "error",
            "toolCallId",
            "toolName",
            "isError",
        ),
        *("text", "thinking", "id", "name", "arguments", "providerMeta", "data", "mimeType", "type", "role"),
        *("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "cost"),
    )
}
_members: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])
_items: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])


def args_of(call: ToolCall) -> Any:
    """Its arguments as a guest gets them: null when there are none (spec piglet 10.13)."""
    return call.arguments or None


def read(type: str, raw: Raw) -> StoredMessage:
    """A message of this type, however its keys are spelt; one of `UNREADABLE` when it is none."""
    return decode_message(type, spelt(raw))


def spelt(raw: Raw) -> Raw:
    """With the keys that the protocol has; a message that has them is left byte for byte, and so are arguments and the like."""
    if bytes(raw)[:1] != b"{":
        return raw
    members = _members.decode(raw)
    # The exact one wins, and of several others the last.
    named = {
        name: _inside(name, value)
        for key, value in members.items()
        if (name := _KEYS.get(key.casefold(), key)) == key or name not in members
    }
    return raw if all(named.get(key) is value for key, value in members.items()) else Raw(msgspec.json.encode(named))


def _inside(name: str, value: Raw) -> Raw:
    if name in ("content", "blocks") and bytes(value)[:1] == b"[":
        items = _items.decode(value)
        named = [spelt(item) for item in items]
        same = all(one is other for one, other in zip(named, items, strict=True))
        return value if same else Raw(msgspec.json.encode(named))
    return spelt(value) if name == "usage" else value


def to_compact(messages: Sequence[ModelMessage]) -> list[CompactMessage]:
    """Each with its type beside it, as a compactor gets them (spec piglet 5.8). A `ValueError` for what is no JSON."""
    return [CompactMessage(role_of(message), encode(message)) for message in _stored(messages)]


def from_compact(messages: Sequence[CompactMessage] | None) -> list[ModelMessage]:
    """What a compactor answered; entries of an unknown type, or whose data cannot be read, are left out (spec piglet 5.8)."""
    found: list[ModelMessage] = []
    for message in messages or ():
        if message.type in _TYPES:
            try:
                found.append(to_model_message(read(message.type, message.data)))
            except UNREADABLE:
                continue
    return found


def untagged(messages: Sequence[ModelMessage]) -> list[Raw]:
    """The JSON of each, which says its `role`, and of each item its `type` (FIX-21). A `ValueError` for what is no JSON."""
    return [encode(message, tagged=False) for message in _stored(messages)]


def _stored(messages: Sequence[ModelMessage]) -> Iterator[StoredMessage]:
    """As a session keeps them. A result is of the tool whose call has its id; ids may come again, and the last one counts."""
    tools: dict[str, str] = {}
    for message in messages:
        tools.update((call.id, call.name) for call in message.calls)
        yield from_model_message(message, tool=tools.get(message.call_id, ""), timestamp=ZERO)
