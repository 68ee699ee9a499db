"""A conversation that a model will take: every call has its result right behind it, and it is not too long. Values in, values out.

Providers refuse a conversation in which a call has no result, or a result no call: one interrupted tool would make a session
useless for ever. So it is repaired when it is loaded and when a turn ends, however that came about (spec piglet 6.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from serai.model.provider import MessageOrigin, ModelMessage
from serai.model.tools import ImageBlock, TextBlock
from serai.store.messages import INTERRUPTED
from serai.wire import codec

__all__ = ["capped", "interrupted", "mark", "marks_at_the_end", "repaired", "size_of", "tokens", "user"]

_MARK = "[Request interrupted: "
_LEAST = 4  # messages, whatever the settings say (spec piglet 6.4)
# What a token is worth when nobody has counted: for texts and JSON, and for an image of the usual size.
_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_IMAGE = 1500


def user(text: str, images: Iterable[ImageBlock] = ()) -> ModelMessage:
    return ModelMessage("user", ((TextBlock(text),) if text else ()) + tuple(images))


def mark(reason: str) -> ModelMessage:
    """What the model finds of a turn that was ended on purpose; the same as a stored session has."""
    return user(f"{_MARK}{reason}]")


def marks_at_the_end(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Those after which nothing was said."""
    return list(takewhile(_is_mark, reversed(messages)))


def _is_mark(message: ModelMessage) -> bool:
    first = message.content[0] if message.role == "user" and message.content else None
    return isinstance(first, TextBlock) and first.text.startswith(_MARK)


def interrupted(call_id: str, made: MessageOrigin | None = None) -> ModelMessage:
    """The result of a call that never came to its end; it is of the time of its call."""
    return ModelMessage("tool", (TextBlock(INTERRUPTED),), call_id=call_id, is_error=True, made=made and MessageOrigin(made.at))


def repaired(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """The same conversation with one result for each call, right behind it; results without a call go, empty answers too."""
    found: list[ModelMessage] = []
    owed: list[str] = []  # calls of the last answer that have no result yet
    made: MessageOrigin | None = None  # of that answer
    for message in messages:
        if message.role == "tool":
            if message.call_id in owed:
                owed.remove(message.call_id)
                found.append(message)
            continue
        found += (interrupted(id, made) for id in owed)
        owed, made = [], message.made
        if message.role == "assistant":
            if not (message.calls or message.content or message.thinking):
                continue
            owed = list(dict.fromkeys(call.id for call in message.calls))
        found.append(message)
    found += (interrupted(id, made) for id in owed)
    return found


def capped(messages: Sequence[ModelMessage], most: int) -> Sequence[ModelMessage]:
    """The first and the newest; what is left does not begin with results whose calls are gone."""
    most = max(most, _LEAST)
    if len(messages) <= most:
        return messages
    start = len(messages) - most + 1
    while start < len(messages) and messages[start].role == "tool":
        start += 1
    if start == len(messages):  # one answer has more calls than there is room for: it stays, with all of them
        start = max(place for place, message in enumerate(messages) if message.role != "tool")
    return [*repaired(messages[:1]), *messages[start:]]


def tokens(messages: Iterable[ModelMessage]) -> int:
    """A guess, for when a model has not told."""
    return sum(map(_tokens, messages))


def _tokens(message: ModelMessage) -> int:
    characters = len(message.thinking)
    images = 0
    for block in message.content:
        if isinstance(block, TextBlock):
            characters += len(block.text)
        elif isinstance(block, ImageBlock):
            images += 1
        else:
            characters += size_of(block.native)
    characters += sum(len(call.name) + size_of(call.arguments) for call in message.calls)
    return characters // _CHARACTERS_PER_TOKEN + images * _TOKENS_PER_IMAGE + 4


def size_of(data: object) -> int:
    """Of its JSON; 0 when it has none."""
    try:
        return len(codec.encode(data))
    except (*codec.BAD_INPUT, TypeError, OverflowError):
        return 0
