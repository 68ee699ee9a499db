"""Who streams a model's answer: an SDK, the offline parrot, a guest. Two methods, so that anybody can be one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, Protocol

import msgspec

from serai.model.events import Stop, Usage
from serai.model.tools import Block, ToolCall, ToolSpec


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    """US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


class Model(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model as the catalogue knows it; its key is `provider/id`."""

    id: str
    name: str = ""
    api: str = "openai"
    provider: str = ""
    base_url: str = ""
    reasoning: bool = False
    context_window: int = 0
    max_tokens: int = 0
    cost: Cost = Cost()
    headers: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.provider}/{self.id}"

    def __repr__(self) -> str:
        """Headers and an address may hold keys."""
        return f"Model({self.key!r}, api={self.api!r})"


class MessageOrigin(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a message came about: when, and an answer's model, usage and end (spec piglet 6.2). For who keeps or shows it: no model
    is told, and it makes no two messages different.
    """

    at: str = ""  # RFC 3339; empty when nobody knows
    model: str = ""  # its id
    provider: str = ""
    usage: Usage = Usage()
    stop: Stop | None = None
    error: str = ""

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, MessageOrigin)

    def __hash__(self) -> int:
        return hash(None)  # it equals None


class ModelMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation as a model sees it. A tool's result has the id of its call."""

    role: Literal["user", "assistant", "tool"]
    content: tuple[Block, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    is_error: bool = False
    thinking: str = ""
    native: Any = None  # what a provider needs again, such as signatures
    made: MessageOrigin | None = None


class ModelOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    temperature: float | None = None
    max_tokens: int | None = None
    thinking: Literal["off", "low", "medium", "high"] = "off"
    headers: dict[str, str] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        """Headers may hold keys."""
        return f"Options({self.temperature}, {self.max_tokens}, {self.thinking!r}, headers={sorted(self.headers)})"


class ModelRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    model: Model
    messages: tuple[ModelMessage, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    options: ModelOptions = ModelOptions()


class Chunk(msgspec.Struct, frozen=True, omit_defaults=True, tag="chunk"):
    """A piece of the answer as it streams."""

    text: str
    what: Literal["text", "thinking", "tool_input"] = "text"
    index: int = 0


class Completion(msgspec.Struct, frozen=True, omit_defaults=True, tag="completion"):
    """The whole answer: last, and what counts."""

    message: ModelMessage
    stop: Stop = "end"
    usage: Usage = Usage()


class ModelProvider(Protocol):
    """A source of models."""

    async def models(self) -> Sequence[Model]:
        """Which ones it can stream."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        """Chunks, then exactly one completion. Raises a `SeraiError` when it fails; closing the iterator cancels the call."""
        ...
