"""What a session needs of an agent, whether it is the resident or a driven program.

A driver takes one prompt at a time and reports it to the session's `EventHub`. Its capabilities say what it cannot do: callers
degrade on purpose, and a request for it all the same is an error of its own (spec agents 8.2).

`NeedsApproval` and `Interceptors` are what others contribute while a turn runs: the app connects an agent with policy and guests
here. Without them, an agent asks the reader of its turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from serai.errors import NotCapable, SeraiError
from serai.model.approvals import Allow, Deny
from serai.model.events import Message, TurnResult
from serai.model.provider import ModelMessage
from serai.model.tools import ImageBlock, ToolCall, ToolResult

if TYPE_CHECKING:
    from serai.agents.event_hub import EventHub


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent can do."""

    deltas: bool = False  # its text comes in pieces
    approvals: bool = False  # it asks before it acts
    questions: bool = False  # it asks what to do
    interrupt: bool = False  # a turn can be ended and the conversation goes on
    multi_turn: bool = False  # several prompts in one process
    fork: bool = False
    choose_id: bool = False  # the caller may name the session
    steer: bool = False  # takes texts in the middle of a turn
    switch_model: bool = False
    modes: bool = False  # its own permission modes
    compact: bool = False
    background: bool = False
    images: bool = False
    guards: Literal["every-call", "asked-calls", "none"] = "none"  # which of its calls a guard sees
    rewrite: bool = False  # whether a guard may change their arguments


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person wants; `system` is added to the system prompt for the turn's first call of the model (spec piglet 5.6).

    `relayed`: somebody else's words, so that no command of the agent's own runs because of them (spec agents 2.4).
    """

    text: str
    images: tuple[ImageBlock, ...] = ()
    system: str = ""
    relayed: bool = False


class TurnFailed(Exception):
    """A driver raises it for a turn that failed, when there is more to tell than the error: what had come of it until then."""

    def __init__(self, error: SeraiError, result: TurnResult) -> None:
        super().__init__(str(error))
        self.error = error
        self.result = result


class Driver(ABC):
    """One conversation with one agent. The session calls one method at a time, except `interrupt` and `steer`."""

    name: str
    capabilities: Capabilities = Capabilities()
    session_id: str = ""  # known before `open`, or after it

    @abstractmethod
    async def open(self, hub: EventHub) -> None:
        """Start what there is to start; everything that happens is told to the hub from now on."""

    @abstractmethod
    async def run(self, prompt: Prompt) -> TurnResult:
        """One turn. A `SeraiError` or `TurnFailed` says why it failed. Cancelled only when it did not heed an `interrupt`."""

    @abstractmethod
    async def interrupt(self, reason: str) -> None:
        """Have the turn end soon, by itself; the conversation goes on."""

    @abstractmethod
    async def close(self) -> None:
        """Leave nothing running. Called once, also after a failed `open`."""

    async def wait_idle(self) -> None:  # noqa: B027  (most have nothing on the side)
        """Until nothing runs beside turns."""

    # -- what not every agent can do

    def steer(self, text: str) -> None:  # noqa: ARG002
        """A text for the turn that runs."""
        raise self.make_not_capable("steer")

    async def set_model(self, query: str) -> str:  # noqa: ARG002
        """Another model from the next step on; its key."""
        raise self.make_not_capable("switch_model")

    async def set_mode(self, mode: str) -> None:  # noqa: ARG002
        raise self.make_not_capable("modes")

    async def compact(self) -> None:
        """Shorten the conversation now."""
        raise self.make_not_capable("compact")

    def fork(self) -> Driver:
        """Another conversation that begins where this one is."""
        raise self.make_not_capable("fork")

    def make_not_capable(self, capability: str) -> NotCapable:
        return NotCapable(f"it cannot do that: it lacks the capability {capability}", who=self.name)


# May this call run, and with which arguments? Asked for every call; cancelled when nobody wants to know any more. A result stands
# in the place of the call's own: it does not run, and this is what the model is told.
DecideCall = Callable[[ToolCall], Awaitable[Allow | Deny | ToolResult]]


class NeedsApproval(NamedTuple):
    """Nobody has decided: whoever reads the turn is to be asked about this call, which is what guards have made of it."""

    call: ToolCall


# The same of a call that a driven agent runs itself: deny rules, guards, policy, and no person. `NeedsApproval` is put to one
# as an `Approval` with that very call, whose arguments nobody copies: by them it is known that the guards have seen it.
JudgeCall = Callable[[ToolCall], Awaitable[Allow | Deny | NeedsApproval]]

# Shortens a conversation: what it was, what it shall be.
Compactor = Callable[[Sequence[ModelMessage]], Awaitable[Sequence[ModelMessage]]]


class Interceptors(Protocol):
    """Those who may hold back a step or what the model says (spec zot 4.4)."""

    @property
    def hold_text(self) -> bool:
        """Whether text is kept back until `filter_message` has answered: what is blocked or replaced must never be seen."""
        ...

    async def before_step(self, step: int) -> str:
        """Why this call of the model must not be made, or ""."""
        ...

    async def filter_message(self, message: Message) -> Message | None:
        """What may be seen of it; None: nothing. The conversation keeps the original, and its calls run in any case."""
        ...


class NoInterceptors:
    """Nobody has anything to say."""

    hold_text = False

    async def before_step(self, step: int) -> str:  # noqa: ARG002
        return ""

    async def filter_message(self, message: Message) -> Message | None:
        return message
