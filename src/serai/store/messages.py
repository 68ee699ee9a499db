"""The messages of a conversation as sessions store them and guests see them (spec piglet 6.2), and as models see them.

Content items have no discriminator in a session, so their keys tell what they are. We write one all the same: `type` on every
item, and `role` on a message that stands alone (FIX-21); readers that do not know these ignore them. The conversion to model
messages and back loses nothing that both can express.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Literal

import msgspec
from msgspec import Raw

from serai.model.events import Stop, Usage
from serai.model.provider import MessageOrigin, ModelMessage
from serai.model.tools import Block, ImageBlock, OtherBlock, TextBlock, ToolCall
from serai.store import entries
from serai.store.entries import decode_fields, encode_data, members
from serai.wire import codec

# What a model is told of a call that never came to its end (spec piglet 6.4).
INTERRUPTED = "[error:TOOL_INTERRUPTED] tool execution did not complete before session was interrupted; result unavailable"

StopReason = Literal["stop", "length", "toolUse", "error", "aborted", ""]


class StoredText(msgspec.Struct, frozen=True, tag="text"):
    text: str


class StoredThinking(msgspec.Struct, frozen=True, tag="thinking"):
    thinking: str


class StoredToolCall(msgspec.Struct, frozen=True, tag="tool_call", rename="camel", omit_defaults=True):
    """A tool that the model wants. `provider_meta` is what its provider needs again."""

    id: str
    name: str
    arguments: Any = msgspec.field(default_factory=lambda: None)  # written also when it is null
    provider_meta: Any = None


class StoredImage(msgspec.Struct, frozen=True, tag="image", rename="camel"):
    """An image, in base64."""

    data: str
    mime_type: str


class StoredUnknown(msgspec.Struct, frozen=True):
    """An item that none of the words fits, as it came (design rule 4)."""

    raw: Raw


Item = StoredText | StoredThinking | StoredToolCall | StoredImage | StoredUnknown


class TokenUsage(msgspec.Struct, frozen=True, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float = 0.0


def _always_written(value: Any) -> Any:
    """A default that is written all the same: only what has a plain one is left out when it has it."""
    return msgspec.field(default_factory=lambda: value)


class UserMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    content: str = ""
    blocks: tuple[Item, ...] = ()
    timestamp: str = _always_written(entries.ZERO)


class AssistantMessage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`native` is ours: what a provider needs again, such as signatures."""

    content: tuple[Item, ...] = _always_written(())
    model: str = _always_written("")
    provider: str = _always_written("")
    usage: TokenUsage = _always_written(TokenUsage())
    stop_reason: StopReason = _always_written("")
    error: str = ""
    timestamp: str = _always_written(entries.ZERO)
    native: Any = None


class ToolResultMessage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`code` is ours: what went wrong, in one word."""

    tool_call_id: str = _always_written("")
    tool_name: str = _always_written("")
    content: tuple[Item, ...] = _always_written(())
    is_error: bool = _always_written(False)
    timestamp: str = _always_written(entries.ZERO)
    code: str = ""


StoredMessage = UserMessage | AssistantMessage | ToolResultMessage
Role = Literal["user", "assistant", "tool_result"]
_ROLES: dict[type[StoredMessage], Role] = {UserMessage: "user", AssistantMessage: "assistant", ToolResultMessage: "tool_result"}


def get_role(message: StoredMessage) -> Role:
    """Which is also the type of its entry."""
    return _ROLES[type(message)]


# What may stand in the file: nulls for what is not there, items still to be told apart.


class _RawItem(msgspec.Struct, rename="camel"):
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    arguments: Any = None
    provider_meta: Any = None
    data: str | None = None
    mime_type: str | None = None


class _RawUsage(msgspec.Struct, rename="camel"):
    input_tokens: float | None = None
    output_tokens: float | None = None
    cache_read_tokens: float | None = None
    cache_write_tokens: float | None = None
    cost: float | None = None


class _RawUser(msgspec.Struct):
    content: str | None = None
    blocks: list[Raw] | None = None
    timestamp: str | None = None


class _RawAssistant(msgspec.Struct, rename="camel"):
    content: list[Raw] | None = None
    model: str | None = None
    provider: str | None = None
    usage: _RawUsage | None = None
    stop_reason: str | None = None
    error: str | None = None
    timestamp: str | None = None
    native: Any = None


class _RawResult(msgspec.Struct, rename="camel"):
    tool_call_id: str | None = None
    tool_name: str | None = None
    content: list[Raw] | None = None
    is_error: bool | None = None
    timestamp: str | None = None
    code: str | None = None


class _RawCustom(msgspec.Struct):
    role: str | None = None
    content: str | None = None


_item = msgspec.json.Decoder(_RawItem)
_user = msgspec.json.Decoder(_RawUser)
_assistant = msgspec.json.Decoder(_RawAssistant)
_result = msgspec.json.Decoder(_RawResult)
_custom = msgspec.json.Decoder(_RawCustom)
_STOPS: dict[str, StopReason] = {"stop": "stop", "length": "length", "toolUse": "toolUse", "error": "error", "aborted": "aborted"}


def decode_message(type: str, raw: Raw) -> StoredMessage:
    """The message of an entry of this type; one of `codec.BAD_INPUT` when the data is none. Odd details are left out."""
    if type == "user":
        user = decode_fields(_user, raw, "content")
        return UserMessage(user.content or "", tuple(map(_parse_block, user.blocks or ())), user.timestamp or entries.ZERO)
    if type == "assistant":
        return _as_assistant(decode_fields(_assistant, raw, "content"))
    if type == "tool_result":
        found = decode_fields(_result, raw, "content", "toolCallId")
        return ToolResultMessage(
            found.tool_call_id or "",
            found.tool_name or "",
            tuple(map(_parse_block, found.content or ())),
            bool(found.is_error),
            found.timestamp or entries.ZERO,
            found.code or "",
        )
    if type == "custom_message":
        custom_ = decode_fields(_custom, raw, "content")
        return build_custom_message(custom_.role or "", custom_.content or "")
    raise msgspec.ValidationError(f"an entry of type {type} is no message")


def _as_assistant(found: _RawAssistant) -> AssistantMessage:
    usage = found.usage or _RawUsage()
    return AssistantMessage(
        tuple(map(_parse_part, found.content or ())),
        found.model or "",
        found.provider or "",
        TokenUsage(
            int(usage.input_tokens or 0),
            int(usage.output_tokens or 0),
            int(usage.cache_read_tokens or 0),
            int(usage.cache_write_tokens or 0),
            usage.cost or 0.0,
        ),
        _STOPS.get(found.stop_reason or "", ""),
        found.error or "",
        found.timestamp or entries.ZERO,
        found.native,
    )


def build_custom_message(role: str, content: str) -> StoredMessage:
    """A message that a guest added: one text of the assistant, or of the user whatever else the role says (spec piglet 6.1)."""
    return AssistantMessage((StoredText(content),)) if role == "assistant" else UserMessage(content)


def decode_untagged(raw: Raw) -> StoredMessage:
    """A message that does not say what it is, by its keys (spec piglet 6.2)."""
    keys = codec.decode(members, raw)
    if _is_set(keys.get("toolCallId")):
        return decode_message("tool_result", raw)
    listed = bytes(keys.get("content", b"")).lstrip()[:1] == b"["
    return decode_message("assistant" if listed or _is_set(keys.get("provider")) or _is_set(keys.get("model")) else "user", raw)


def _is_set(raw: Raw | None) -> bool:
    """Whether a key is there and not empty."""
    return raw is not None and bytes(raw) not in (b"null", b'""')


def _parse_part(raw: Raw) -> Item:
    """An item of an assistant: who it is by what is not empty."""
    found = _decode_item(raw)
    if found is None:
        return StoredUnknown(raw.copy())
    if found.id or found.name:
        return StoredToolCall(found.id or "", found.name or "", found.arguments, found.provider_meta)
    return StoredThinking(found.thinking) if found.thinking else _parse_text(found, raw)


def _parse_block(raw: Raw) -> Item:
    """An item of a user or a tool."""
    found = _decode_item(raw)
    if found is None:
        return StoredUnknown(raw.copy())
    return StoredImage(found.data or "", found.mime_type) if found.mime_type else _parse_text(found, raw)


def _decode_item(raw: Raw) -> _RawItem | None:
    try:
        return codec.decode(_item, raw)
    except codec.BAD_INPUT:  # no object, or a text that is a number
        return None


def _parse_text(found: _RawItem, raw: Raw) -> Item:
    """All else is text; but what has none and says something else is kept as it is, so that it is not lost."""
    if found.text is None:
        if found.mime_type:  # an assistant's image
            return StoredImage(found.data or "", found.mime_type)
        if any(_is_set(value) for key, value in codec.decode(members, raw).items() if key != "type"):
            return StoredUnknown(raw.copy())
    return StoredText(found.text or "")


def encode(message: StoredMessage, *, tagged: bool = True) -> Raw:
    """Its JSON; a `ValueError` when it has none.

    `tagged`: it stands beside its type, as in an entry; else it says its `role` (FIX-21).
    """
    data = encode_data(_restore_raw_items(message))
    # Every message has a timestamp, so there is always something after the role.
    return data if tagged else Raw(b'{"role":"%s",' % get_role(message).encode() + bytes(data)[1:])


def _restore_raw_items(message: StoredMessage) -> StoredMessage:
    """What we do not understand is written as it came."""
    name = "blocks" if isinstance(message, UserMessage) else "content"
    items: tuple[Item, ...] = getattr(message, name)
    if not any(isinstance(item, StoredUnknown) for item in items):
        return message
    return msgspec.structs.replace(
        message, **{name: tuple(item.raw if isinstance(item, StoredUnknown) else item for item in items)}
    )


def place_results(messages: list[StoredMessage]) -> list[StoredMessage]:
    """Each call's result after the message that made it, and an error for each call that has none (spec piglet 6.4).

    Some writers put what a person said meanwhile in between (FIX-19); agents that run tools at once, their next call. Some
    providers count the ids of calls from 0 in each answer: a result is that of the last call before it.
    """
    placed: list[_Placed] = []
    calling: dict[str, _Placed] = {}  # by the id of a call, who made it last
    for message in messages:
        if isinstance(message, ToolResultMessage):
            caller = calling.get(message.tool_call_id)
            if caller is not None and caller.lacks.get(message.tool_call_id):
                caller.lacks[message.tool_call_id].pop()
                caller.has.append(message)
                continue
        placed.append(here := _Placed(message))
        calling.update(dict.fromkeys(here.lacks, here))
    return [one for here in placed for one in here.iter_messages()]


class _Placed:
    """A message, the calls in it that lack a result, and the results it has."""

    __slots__ = ("has", "lacks", "message")

    def __init__(self, message: StoredMessage) -> None:
        self.message = message
        self.has: list[StoredMessage] = []
        self.lacks: dict[str, list[StoredToolCall]] = {}
        if isinstance(message, AssistantMessage):
            for item in message.content:
                if isinstance(item, StoredToolCall):
                    self.lacks.setdefault(item.id, []).append(item)

    def iter_messages(self) -> Iterator[StoredMessage]:
        yield self.message
        for call in chain.from_iterable(self.lacks.values()):
            yield build_interrupted_result(call.id, call.name, self.message.timestamp)
        yield from self.has


def build_interrupted_result(id: str, name: str, timestamp: str) -> ToolResultMessage:
    """The result of a call that never came to its end."""
    return ToolResultMessage(id, name, (StoredText(INTERRUPTED),), True, timestamp, "TOOL_INTERRUPTED")


STOPS: dict[Stop, StopReason] = {"end": "stop", "length": "length", "tool_use": "toolUse", "error": "error", "aborted": "aborted"}
_REASONS: dict[StopReason, Stop] = {reason: stop for stop, reason in STOPS.items()}
_anything: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_PROVIDER_META = "providerMeta"


def to_model_message(message: StoredMessage) -> ModelMessage:
    """What a model is shown of it."""
    if isinstance(message, UserMessage):
        text = (TextBlock(message.content),) if message.content else ()
        return ModelMessage("user", (*text, *map(_to_model_block, message.blocks)), made=MessageOrigin(_at(message)))
    if isinstance(message, ToolResultMessage):
        return ModelMessage(
            "tool",
            tuple(map(_to_model_block, message.content)),
            call_id=message.tool_call_id,
            is_error=message.is_error,
            made=MessageOrigin(_at(message)),
        )
    calls = [item for item in message.content if isinstance(item, StoredToolCall)]
    metas = {call.id: call.provider_meta for call in calls if call.provider_meta is not None}
    return ModelMessage(
        "assistant",
        tuple(_to_model_block(item) for item in message.content if not isinstance(item, StoredToolCall | StoredThinking)),
        tuple(ToolCall(call.name, call.arguments if call.arguments is not None else {}, call.id) for call in calls),
        thinking="\n".join(item.thinking for item in message.content if isinstance(item, StoredThinking)),
        native=message.native if message.native is not None else {_PROVIDER_META: metas} if metas else None,
        made=_build_origin(message),
    )


def _build_origin(message: AssistantMessage) -> MessageOrigin:
    used = message.usage
    usage = Usage(used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens, used.cost or None)
    return MessageOrigin(_at(message), message.model, message.provider, usage, _REASONS.get(message.stop_reason), message.error)


def _at(message: StoredMessage) -> str:
    return "" if message.timestamp == entries.ZERO else message.timestamp


def from_model_message(
    message: ModelMessage,
    *,
    tool: str = "",
    model: str = "",
    provider: str = "",
    usage: Usage | None = None,
    stop: Stop | None = None,
    error: str = "",
    timestamp: str | None = None,
) -> StoredMessage:
    """As a session keeps it. What a `ModelMessage` does not say is said beside it: a result's tool, an answer's model and usage.

    `timestamp` is for a message that does not know its own; now, when none is given.
    """
    made = message.made or MessageOrigin()
    now = made.at or (entries.format_time() if timestamp is None else timestamp)
    items = tuple(to_items(message.content))
    if message.role == "user":
        first = items[0] if items else None
        if isinstance(first, StoredText) and first.text:
            return UserMessage(first.text, items[1:], now)
        return UserMessage("", items, now)
    if message.role == "tool":
        return ToolResultMessage(message.call_id, tool, items, message.is_error, now)
    native: Any = message.native
    metas: dict[str, Any] = {}
    if isinstance(native, dict) and native.keys() == {_PROVIDER_META} and isinstance(native[_PROVIDER_META], dict):
        metas, native = native[_PROVIDER_META], None
    thinking = (StoredThinking(message.thinking),) if message.thinking else ()
    calls = (StoredToolCall(call.id, call.name, call.arguments, metas.get(call.id)) for call in message.calls)
    stop = stop or made.stop
    return AssistantMessage(
        (*thinking, *items, *calls),
        model or made.model,
        provider or made.provider,
        to_token_usage(usage or made.usage),
        STOPS[stop] if stop else "",
        error or made.error,
        now,
        native,
    )


def sum_usage(messages: Iterable[StoredMessage]) -> Usage:
    """What the answers among them took together."""
    taken = [message.usage for message in messages if isinstance(message, AssistantMessage)]
    return Usage(
        sum(one.input_tokens for one in taken),
        sum(one.output_tokens for one in taken),
        sum(one.cache_read_tokens for one in taken),
        sum(one.cache_write_tokens for one in taken),
        sum(one.cost for one in taken) if taken else None,
    )


def to_token_usage(usage: Usage | None) -> TokenUsage:
    if usage is None:
        return TokenUsage()
    return TokenUsage(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.cost_usd or 0.0)


def to_items(blocks: tuple[Block, ...]) -> Iterator[Item]:
    """Neutral content as items."""
    for block in blocks:
        if isinstance(block, TextBlock):
            yield StoredText(block.text)
        elif isinstance(block, ImageBlock) and block.mime:  # by which others know an image
            yield StoredImage(base64.b64encode(block.data).decode(), block.mime)
        else:
            yield StoredUnknown(encode_data(_Kept(block)))


def _to_model_block(item: Item) -> Block:
    if isinstance(item, StoredText):
        return TextBlock(item.text)
    if isinstance(item, StoredImage):
        try:
            return ImageBlock(base64.b64decode(item.data, validate=True), item.mime_type)
        except (binascii.Error, ValueError):
            return OtherBlock("image", {"data": item.data, "mimeType": item.mime_type})
    assert isinstance(item, StoredUnknown)
    return _parse_unknown(item)


class _Kept(msgspec.Struct, tag="block"):
    """A block of ours that the protocol has no item for."""

    block: Block


_kept = msgspec.json.Decoder(_Kept)


def _parse_unknown(item: StoredUnknown) -> Block:
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
