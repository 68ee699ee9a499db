"""Messages as sessions keep them and as models see them: there and back, losing nothing that both can say."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from serai.model.events import Stop, Usage
from serai.model.provider import MessageOrigin, ModelMessage
from serai.model.tools import Block, ImageBlock, OtherBlock, TextBlock, ToolCall
from serai.store import times
from serai.store.entries import encode_data
from serai.store.messages import (
    AssistantMessage,
    Call,
    Image,
    Item,
    Message,
    StopReason,
    Text,
    Thinking,
    TokenUsage,
    ToolResultMessage,
    Unknown,
    UserMessage,
)
from serai.wire import codec

__all__ = ["STOPS", "from_model", "items_of", "to_model", "usage_in", "usage_of"]

STOPS: dict[Stop, StopReason] = {"end": "stop", "length": "length", "tool_use": "toolUse", "error": "error", "aborted": "aborted"}
_REASONS: dict[StopReason, Stop] = {reason: stop for stop, reason in STOPS.items()}
_anything: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_PROVIDER_META = "providerMeta"


def to_model(message: Message) -> ModelMessage:
    """What a model is shown of it."""
    if isinstance(message, UserMessage):
        text = (TextBlock(message.content),) if message.content else ()
        return ModelMessage("user", (*text, *map(_block, message.blocks)), made=MessageOrigin(_at(message)))
    if isinstance(message, ToolResultMessage):
        return ModelMessage(
            "tool",
            tuple(map(_block, message.content)),
            call_id=message.tool_call_id,
            is_error=message.is_error,
            made=MessageOrigin(_at(message)),
        )
    calls = [item for item in message.content if isinstance(item, Call)]
    metas = {call.id: call.provider_meta for call in calls if call.provider_meta is not None}
    return ModelMessage(
        "assistant",
        tuple(_block(item) for item in message.content if not isinstance(item, Call | Thinking)),
        tuple(ToolCall(call.name, call.arguments if call.arguments is not None else {}, call.id) for call in calls),
        thinking="\n".join(item.thinking for item in message.content if isinstance(item, Thinking)),
        native=message.native if message.native is not None else {_PROVIDER_META: metas} if metas else None,
        made=_made(message),
    )


def _made(message: AssistantMessage) -> MessageOrigin:
    used = message.usage
    usage = Usage(used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens, used.cost or None)
    return MessageOrigin(_at(message), message.model, message.provider, usage, _REASONS.get(message.stop_reason), message.error)


def _at(message: Message) -> str:
    return "" if message.timestamp == times.ZERO else message.timestamp


def from_model(
    message: ModelMessage,
    *,
    tool: str = "",
    model: str = "",
    provider: str = "",
    usage: Usage | None = None,
    stop: Stop | None = None,
    error: str = "",
    timestamp: str | None = None,
) -> Message:
    """As a session keeps it. What a `ModelMessage` does not say is said beside it: a result's tool, an answer's model and usage.

    `timestamp` is for a message that does not know its own; now, when none is given.
    """
    made = message.made or MessageOrigin()
    now = made.at or (times.text() if timestamp is None else timestamp)
    items = tuple(items_of(message.content))
    if message.role == "user":
        first = items[0] if items else None
        if isinstance(first, Text) and first.text:
            return UserMessage(first.text, items[1:], now)
        return UserMessage("", items, now)
    if message.role == "tool":
        return ToolResultMessage(message.call_id, tool, items, message.is_error, now)
    native: Any = message.native
    metas: dict[str, Any] = {}
    if isinstance(native, dict) and native.keys() == {_PROVIDER_META} and isinstance(native[_PROVIDER_META], dict):
        metas, native = native[_PROVIDER_META], None
    thinking = (Thinking(message.thinking),) if message.thinking else ()
    calls = (Call(call.id, call.name, call.arguments, metas.get(call.id)) for call in message.calls)
    stop = stop or made.stop
    return AssistantMessage(
        (*thinking, *items, *calls),
        model or made.model,
        provider or made.provider,
        usage_of(usage or made.usage),
        STOPS[stop] if stop else "",
        error or made.error,
        now,
        native,
    )


def usage_in(messages: Iterable[Message]) -> Usage:
    """What the answers among them took together."""
    taken = [message.usage for message in messages if isinstance(message, AssistantMessage)]
    return Usage(
        sum(one.input_tokens for one in taken),
        sum(one.output_tokens for one in taken),
        sum(one.cache_read_tokens for one in taken),
        sum(one.cache_write_tokens for one in taken),
        sum(one.cost for one in taken) if taken else None,
    )


def usage_of(usage: Usage | None) -> TokenUsage:
    if usage is None:
        return TokenUsage()
    return TokenUsage(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.cost_usd or 0.0)


def items_of(blocks: tuple[Block, ...]) -> Iterator[Item]:
    """Neutral content as items."""
    for block in blocks:
        if isinstance(block, TextBlock):
            yield Text(block.text)
        elif isinstance(block, ImageBlock) and block.mime:  # by which others know an image
            yield Image(base64.b64encode(block.data).decode(), block.mime)
        else:
            yield Unknown(encode_data(_Kept(block)))


def _block(item: Item) -> Block:
    if isinstance(item, Text):
        return TextBlock(item.text)
    if isinstance(item, Image):
        try:
            return ImageBlock(base64.b64decode(item.data, validate=True), item.mime_type)
        except (binascii.Error, ValueError):
            return OtherBlock("image", {"data": item.data, "mimeType": item.mime_type})
    assert isinstance(item, Unknown)
    return _unknown(item)


class _Kept(msgspec.Struct, tag="block"):
    """A block of ours that the protocol has no item for."""

    block: Block


_kept = msgspec.json.Decoder(_Kept)


def _unknown(item: Unknown) -> Block:
    """One of our own blocks, or a thing of somebody else's."""
    try:
        return codec.decode(_kept, item.raw).block
    except codec.BAD_INPUT:
        pass
    try:
        native = codec.decode(_anything, item.raw)
    except codec.BAD_INPUT:
        native = None
    kind = native.get("type") if isinstance(native, dict) else None
    return OtherBlock(kind if isinstance(kind, str) and kind else "unknown", native)
