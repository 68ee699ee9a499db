"""A session's conversation as the model sees it, in a form that a model accepts, and what its answers cost.

Every call has its result right behind it, and the conversation is not too long. Providers refuse a conversation in which a call
has no result, or a result no call: one interrupted tool would make a session useless. So it is repaired when it is loaded and when
a turn ends, however that came about (spec piglet 6.4). Values in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import msgspec

from serai.agents.models import api_provider
from serai.agents.tool_results import measure_json
from serai.model.events import Usage
from serai.model.provider import MessageOrigin, Model, ModelMessage
from serai.model.tools import ImageBlock, TextBlock
from serai.store import entries
from serai.store.messages import INTERRUPTED

_MARK = "[Request interrupted: "
_LEAST = 4  # messages, whatever the settings say (spec piglet 6.4)
# What a token is worth when nobody has counted: for texts and JSON, and for an image of the usual size.
_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_IMAGE = 1500


def build_user_message(text: str, images: Iterable[ImageBlock] = ()) -> ModelMessage:
    return ModelMessage("user", ((TextBlock(text),) if text else ()) + tuple(images))


def build_abort_marker(reason: str) -> ModelMessage:
    """What the model finds of a turn that was ended on purpose; the same as a stored session has."""
    return build_user_message(f"{_MARK}{reason}]")


def find_trailing_marks(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Those after which nothing was said."""
    return list(takewhile(_is_mark, reversed(messages)))


def _is_mark(message: ModelMessage) -> bool:
    first = message.content[0] if message.role == "user" and message.content else None
    return isinstance(first, TextBlock) and first.text.startswith(_MARK)


def build_interrupted(call_id: str, made: MessageOrigin | None = None) -> ModelMessage:
    """The result of a call that never came to its end; it is of the time of its call."""
    return ModelMessage("tool", (TextBlock(INTERRUPTED),), call_id=call_id, is_error=True, made=made and MessageOrigin(made.at))


def repair_messages(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
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
        found += (build_interrupted(id, made) for id in owed)
        owed, made = [], message.made
        if message.role == "assistant":
            if not (message.calls or message.content or message.thinking):
                continue
            owed = list(dict.fromkeys(call.id for call in message.calls))
        found.append(message)
    found += (build_interrupted(id, made) for id in owed)
    return found


def cap_messages(messages: Sequence[ModelMessage], most: int) -> Sequence[ModelMessage]:
    """The first and the newest; what is left does not begin with results whose calls are gone."""
    most = max(most, _LEAST)
    if len(messages) <= most:
        return messages
    start = len(messages) - most + 1
    while start < len(messages) and messages[start].role == "tool":
        start += 1
    if start == len(messages):  # one answer has more calls than there is room for: it stays, with all of them
        start = max(place for place, message in enumerate(messages) if message.role != "tool")
    return [*repair_messages(messages[:1]), *messages[start:]]


def estimate_tokens(messages: Iterable[ModelMessage]) -> int:
    """A guess, for when a model has not told."""
    return sum(map(_estimate_message, messages))


def _estimate_message(message: ModelMessage) -> int:
    characters = len(message.thinking)
    images = 0
    for block in message.content:
        if isinstance(block, TextBlock):
            characters += len(block.text)
        elif isinstance(block, ImageBlock):
            images += 1
        else:
            characters += measure_json(block.native)
    characters += sum(len(call.name) + measure_json(call.arguments) for call in message.calls)
    return characters // _CHARACTERS_PER_TOKEN + images * _TOKENS_PER_IMAGE + 4


def with_cost(model: Model, usage: Usage) -> Usage:
    """With its cost, where the catalogue knows the prices; a provider that tells its own is believed."""
    return usage if usage.cost_usd is not None else api_provider.add_price(usage, model.cost)


def add_usage(first: Usage, second: Usage) -> Usage:
    """Both; a cost that is not known adds nothing to one that is."""
    known = [usage.cost_usd for usage in (first, second) if usage.cost_usd is not None]
    return Usage(
        first.input + second.input,
        first.output + second.output,
        first.cache_read + second.cache_read,
        first.cache_write + second.cache_write,
        sum(known) if known else None,
    )


@dataclass(slots=True)
class Conversation:
    messages: list[ModelMessage] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    size: int = 0  # tokens of the newest call, as the model counted them
    counted: int = 0  # messages that are in it

    def count_tokens(self) -> int:
        """How long it is: as the model counted, and a guess of what came since."""
        return self.size + estimate_tokens(self.messages[self.counted :])

    def add(self, message: ModelMessage) -> None:
        """The newest message; one that does not say when it was said was said now."""
        self.messages.append(
            message if message.made else msgspec.structs.replace(message, made=MessageOrigin(entries.format_time()))
        )

    def sum_usage(self) -> Usage:
        """What the answers in it took together (spec piglet 7.1)."""
        total = Usage()
        for message in self.messages:
            if message.role == "assistant" and message.made is not None:
                total = add_usage(total, message.made.usage)
        return total

    def record_usage(self, usage: Usage) -> None:
        """The model has answered; its answer is the newest message."""
        self.usage = add_usage(self.usage, usage)
        self.size = usage.input + usage.output + usage.cache_read + usage.cache_write
        self.counted = len(self.messages) if self.size else 0

    def repair(self) -> None:
        self.messages[:] = repair_messages(self.messages)

    def replace(self, messages: list[ModelMessage], usage: Usage | None = None) -> None:
        """It is these from now on. What it took until now stays spent, unless it is another conversation, which took `usage`."""
        self.messages[:] = messages
        self.size = self.counted = 0
        self.usage = self.usage if usage is None else usage

    def copy(self) -> Conversation:
        """In order, and nobody else's."""
        return Conversation(repair_messages(self.messages), self.usage, self.size, self.counted)
