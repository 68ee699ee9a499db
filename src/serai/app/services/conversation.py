"""The agent's conversation as it is in memory: to be looked at, and to be replaced (spec piglet 7.1). The session on disk stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from serai.agents.resident import conversation
from serai.agents.resident.driver import Resident
from serai.agents.resident.run_context import is_small_model
from serai.app.services.group import Data, NoArguments, Operation
from serai.app.services.tools import spec_data
from serai.errors import BadRequest
from serai.model.provider import ModelMessage
from serai.model.tools import TextBlock
from serai.store import entries
from serai.store.messages import StoredMessage, decode_message, encode, from_model_message, to_model_message, usage_in
from serai.wire import codec

__all__ = ["Conversation", "messages_data"]

_TYPES = ("user", "assistant", "tool_result")


class Tagged(msgspec.Struct, frozen=True):
    """A message as an entry of a session has it."""

    type: str
    data: Any = None


class Replacement(msgspec.Struct, frozen=True):
    messages: list[Tagged] | None = None


class Conversation:
    """`resident` is the agent; `idle` raises while anything works on its conversation."""

    def __init__(self, resident: Callable[[], Resident], idle: Callable[[], None]) -> None:
        self._resident = resident
        self._must_be_idle = idle
        self.operations: Mapping[str, Operation[Any]] = {
            "messages": Operation(NoArguments, self.messages),
            "set": Operation(Replacement, self.set),
            "snapshot": Operation(NoArguments, self.snapshot),
            "last_text": Operation(NoArguments, self.last_text),
            "stats": Operation(NoArguments, self.stats),
        }

    async def messages(self, _guest: str, _arguments: NoArguments) -> Data:
        return {"messages": messages_data(self._resident().conversation.messages)}

    async def set(self, guest: str, wanted: Replacement) -> Data:
        """In memory alone. None clears it; what is no message is left out, what is a broken one is an error."""
        resident = self._resident()
        self._must_be_idle()
        said = list(_decoded(wanted.messages or (), guest))
        resident.conversation.replace(conversation.repair_messages(map(to_model_message, said)), usage_in(said))
        return {}

    async def snapshot(self, _guest: str, _arguments: NoArguments) -> Data:
        """What the model would be told by the next call."""
        resident = self._resident()
        house, tools = resident.house, resident.tools
        said = conversation.cap_messages(resident.conversation.messages, house.limits.history)
        told = tools.told(compact=is_small_model(house.model))
        return {"system": house.system(tools), "messages": messages_data(said), "tools": [spec_data(tool) for tool in told]}

    async def last_text(self, _guest: str, _arguments: NoArguments) -> Data:
        """The first text of the newest answer that has one."""
        texts = (
            block.text
            for message in reversed(self._resident().conversation.messages)
            if message.role == "assistant"
            for block in message.content
            if isinstance(block, TextBlock) and block.text
        )
        return {"text": next(texts, "")}

    async def stats(self, _guest: str, _arguments: NoArguments) -> Data:
        resident = self._resident()
        usage = resident.conversation.taken()  # of the answers in memory, not of what was compacted away (spec piglet 7.1)
        return {
            "turn_count": sum(message.role == "assistant" for message in resident.conversation.messages),
            "total_input_tokens": usage.input,
            "total_output_tokens": usage.output,
            "total_cache_read_tokens": usage.cache_read,
            "total_cache_write_tokens": usage.cache_write,
            "total_cost": usage.cost_usd or 0.0,
            "model": resident.house.model.key,
        }


def messages_data(said: Sequence[ModelMessage]) -> list[Any]:
    """As spec piglet 6.2 has them, each with its `role` and the `type` of its parts (FIX-21)."""
    names = {call.id: call.name for message in said for call in message.calls}
    kept = (from_model_message(message, tool=names.get(message.call_id, ""), timestamp=entries.ZERO) for message in said)
    return [msgspec.json.decode(encode(message, tagged=False)) for message in kept]


def _decoded(tagged: Iterable[Tagged], guest: str) -> Iterable[StoredMessage]:
    for place, message in enumerate(tagged):
        if message.type in _TYPES:
            try:
                yield decode_message(message.type, Raw(codec.encode(message.data)))
            except (*codec.BAD_INPUT, TypeError) as error:
                raise BadRequest(f"conversation.set: messages[{place}] is no message: {error}", who=guest) from None
