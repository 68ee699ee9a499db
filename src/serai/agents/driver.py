"""What a session needs of an agent, whether it is our own loop or a program that is driven.

A driver takes one prompt at a time and plays it on the session's `Stage`. What it cannot do, its capabilities say: callers degrade
on purpose, and asking for it all the same is an error of its own (spec agents 8.2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

import msgspec

from serai.errors import NotCapable, SeraiError
from serai.model.events import TurnResult
from serai.model.tools import ImageBlock

if TYPE_CHECKING:
    from serai.agents.stage import Stage

__all__ = ["Capabilities", "Driver", "Prompt", "Unfinished"]


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


class Unfinished(Exception):
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
    async def open(self, stage: Stage) -> None:
        """Start what there is to start; everything that happens is told to the stage from now on."""

    @abstractmethod
    async def run(self, prompt: Prompt) -> TurnResult:
        """One turn. A `SeraiError` or `Unfinished` says why it failed. Cancelled only when it did not heed an `interrupt`."""

    @abstractmethod
    async def interrupt(self, reason: str) -> None:
        """Have the turn end soon, by itself; the conversation goes on."""

    @abstractmethod
    async def close(self) -> None:
        """Leave nothing running. Called once, also after a failed `open`."""

    async def idle(self) -> None:  # noqa: B027  (most have nothing on the side)
        """Until nothing runs beside turns."""

    # -- what not every agent can do

    def steer(self, text: str) -> None:  # noqa: ARG002
        """A text for the turn that runs."""
        raise self.lacks("steer")

    async def set_model(self, query: str) -> str:  # noqa: ARG002
        """Another model from the next step on; its key."""
        raise self.lacks("switch_model")

    async def set_mode(self, mode: str) -> None:  # noqa: ARG002
        raise self.lacks("modes")

    async def compact(self) -> None:
        """Shorten the conversation now."""
        raise self.lacks("compact")

    def fork(self) -> Driver:
        """Another conversation that begins where this one is."""
        raise self.lacks("fork")

    def lacks(self, capability: str) -> NotCapable:
        return NotCapable(f"it cannot do that: it lacks the capability {capability}", who=self.name)
