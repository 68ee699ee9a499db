"""What was said in a session, as the model sees it, and what it took."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from serai.agents.resident import history, spending
from serai.model.events import Usage
from serai.model.provider import MessageOrigin, ModelMessage
from serai.store import entries

__all__ = ["Conversation"]


@dataclass(slots=True)
class Conversation:
    messages: list[ModelMessage] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    size: int = 0  # tokens of the newest call, as the model counted them
    counted: int = 0  # messages that are in it

    def tokens(self) -> int:
        """How long it is: as the model counted, and a guess of what came since."""
        return self.size + history.tokens(self.messages[self.counted :])

    def add(self, message: ModelMessage) -> None:
        """The newest message; one that does not say when it was said was said now."""
        self.messages.append(
            message if message.made else msgspec.structs.replace(message, made=MessageOrigin(entries.format_time()))
        )

    def taken(self) -> Usage:
        """What the answers in it took together (spec piglet 7.1)."""
        total = Usage()
        for message in self.messages:
            if message.role == "assistant" and message.made is not None:
                total = spending.together(total, message.made.usage)
        return total

    def spend(self, usage: Usage) -> None:
        """The model has answered; its answer is the newest message."""
        self.usage = spending.together(self.usage, usage)
        self.size = usage.input + usage.output + usage.cache_read + usage.cache_write
        self.counted = len(self.messages) if self.size else 0

    def repair(self) -> None:
        self.messages[:] = history.repaired(self.messages)

    def replace(self, messages: list[ModelMessage], usage: Usage | None = None) -> None:
        """It is these from now on. What it took until now stays spent, unless it is another conversation, which took `usage`."""
        self.messages[:] = messages
        self.size = self.counted = 0
        self.usage = self.usage if usage is None else usage

    def copy(self) -> Conversation:
        """In order, and nobody else's."""
        return Conversation(history.repaired(self.messages), self.usage, self.size, self.counted)
