"""What a run has said so far, as typed messages: for who wants them all, and not events as they happen (spec agents 2.10)."""

from __future__ import annotations

from typing import Literal, overload

import msgspec

from serai.dialects.claude import blocks
from serai.dialects.claude.messages import Assistant, Result, System, User
from serai.dialects.claude.tools import to_blocks
from serai.model.tools import Block


class ToolOutcome(msgspec.Struct, frozen=True):
    """A tool's result, as the model is told of it."""

    call_id: str
    content: tuple[Block, ...]
    is_error: bool = False


class UserText(msgspec.Struct, frozen=True):
    """Something said to the model."""

    text: str


CollectedMessage = System | Assistant | Result | ToolOutcome | UserText
Kind = Literal["system", "assistant", "result", "tool_result", "user"]
_KINDS: dict[type, Kind] = {
    System: "system",
    Assistant: "assistant",
    Result: "result",
    ToolOutcome: "tool_result",
    UserText: "user",
}


class MessageCollector:
    """Keeps everything: for a run that is looked at as a whole."""

    def __init__(self) -> None:
        self.messages: list[CollectedMessage] = []
        self.session = ""  # an init's counts, others fill it in

    def add(self, frame: object) -> list[CollectedMessage]:
        """The messages that a frame is; pieces and questions are none."""
        if isinstance(frame, User):
            found = _to_messages(frame.message.content)
        elif isinstance(frame, System | Assistant | Result):
            found = [frame]
        else:
            return []
        if frame.session_id and (not self.session or (isinstance(frame, System) and frame.subtype == "init")):
            self.session = frame.session_id
        self.messages += found
        return found

    @overload
    def list_messages(self, kind: Literal["system"]) -> list[System]: ...
    @overload
    def list_messages(self, kind: Literal["assistant"]) -> list[Assistant]: ...
    @overload
    def list_messages(self, kind: Literal["result"]) -> list[Result]: ...
    @overload
    def list_messages(self, kind: Literal["tool_result"]) -> list[ToolOutcome]: ...
    @overload
    def list_messages(self, kind: Literal["user"]) -> list[UserText]: ...
    def list_messages(self, kind: Kind) -> list[CollectedMessage]:  # type: ignore[misc]
        return [message for message in self.messages if _KINDS[type(message)] == kind]

    def reset(self) -> None:
        self.messages.clear()
        self.session = ""


def _to_messages(content: str | list[blocks.Block]) -> list[CollectedMessage]:
    """A text, a list of texts, or results, each of which is a message."""
    if isinstance(content, str):
        return [UserText(content)] if content else []
    found: list[CollectedMessage] = [
        ToolOutcome(block.tool_use_id, to_blocks(block.content), bool(block.is_error))
        for block in content
        if isinstance(block, blocks.ToolResult)
    ]
    text = "\n".join(block.text for block in content if isinstance(block, blocks.Text) and block.text)
    return [*found, UserText(text)] if text else found
