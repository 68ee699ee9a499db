"""What others have to say while a turn runs. The app joins an agent with policy and guests here; alone it asks its reader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from serai.model.approvals import Allow, Deny
from serai.model.events import Message
from serai.model.provider import ModelMessage
from serai.model.tools import ToolCall, ToolResult

__all__ = ["Ask", "Compactor", "Decide", "Interceptors", "Judge", "NoInterceptors"]

# May this call run, and with which arguments? Asked for every call; cancelled when nobody wants to know any more. A result stands
# in the place of the call's own: it does not run, and this is what the model is told.
Decide = Callable[[ToolCall], Awaitable[Allow | Deny | ToolResult]]


class Ask(NamedTuple):
    """Nobody has decided: whoever reads the turn is to be asked about this call, which is what guards have made of it."""

    call: ToolCall


# The same of a call that a driven agent runs itself: deny rules, guards, policy, and no person. What comes back as `Ask` is put to
# one as an `Approval` with that very call, whose arguments nobody copies: by them it is known that the guards have seen it.
Judge = Callable[[ToolCall], Awaitable[Allow | Deny | Ask]]

# Shortens a conversation: what it was, what it shall be.
Compactor = Callable[[Sequence[ModelMessage]], Awaitable[Sequence[ModelMessage]]]


class Interceptors(Protocol):
    """Those who may hold back a step or what the model says (spec zot 4.4)."""

    @property
    def hold_text(self) -> bool:
        """Whether text is kept back until `message` has answered: what is blocked or replaced must never be seen."""
        ...

    async def before_step(self, step: int) -> str:
        """Why this call of the model must not be made, or ""."""
        ...

    async def message(self, message: Message) -> Message | None:
        """What may be seen of it; None: nothing. The conversation keeps the original, and its calls run in any case."""
        ...


class NoInterceptors:
    """Nobody has anything to say."""

    hold_text = False

    async def before_step(self, step: int) -> str:  # noqa: ARG002
        return ""

    async def message(self, message: Message) -> Message | None:
        return message
