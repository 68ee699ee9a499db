"""What is asked of a person, and what they decide.

An approval or a question is raised with a private callback for its answer, so `await ask.allow()` works for whoever got hold of it
and imports nothing upwards. It is answered once; silence is never yes (design rule 7).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from serai.errors import Closed
from serai.model.tools import ToolCall

__all__ = ["Allow", "Answer", "Approval", "Ask", "Choice", "Decision", "Deny", "Item", "Question", "Remember"]

Remember = Literal["once", "session", "project", "always"]


class Allow(msgspec.Struct, frozen=True, omit_defaults=True, tag="allow"):
    """Yes; with other arguments when they are given."""

    arguments: Any = msgspec.UNSET
    remember: Remember = "once"


class Deny(msgspec.Struct, frozen=True, omit_defaults=True, tag="deny"):
    """No, and why; `interrupt` also ends the turn."""

    why: str = ""
    interrupt: bool = False
    remember: Remember = "once"


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """What was chosen or typed, by the text of each question. Empty: the question was dismissed."""

    answers: dict[str, Any]


Decision = Allow | Deny | Answer
Respond = Callable[[Decision], Awaitable[None]]


class Ask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """What approvals and questions share. `answer_with` binds the way back, which is no part of the value."""

    id: str
    agent: str = ""
    session: str = ""
    lane: str = ""  # a sub-agent's, empty for the main one
    at: float = 0.0
    native: Any = None

    def answer_with(self, respond: Respond) -> None:
        """Whoever raises it says once how the answer gets back."""
        self.__dict__["respond"] = respond

    @property
    def answered(self) -> bool:
        return "respond" not in self.__dict__

    async def decide(self, decision: Decision) -> None:
        """Answer it; a second answer is an error, whoever was first counts."""
        respond: Respond | None = self.__dict__.pop("respond", None)
        if respond is None:
            raise Closed("it was answered or withdrawn already", who=self.agent, id=self.id)
        await respond(decision)


class Approval(Ask, frozen=True, kw_only=True, omit_defaults=True, tag="approval"):
    """May this call run?"""

    call: ToolCall
    title: str = ""
    description: str = ""
    reason: str = ""  # why it is asked
    suggestions: tuple[Any, ...] = ()  # what the agent offers to remember, in its own words

    @property
    def tool(self) -> str:
        return self.call.name

    async def allow(self, arguments: Any = msgspec.UNSET, *, remember: Remember = "once") -> None:
        await self.decide(Allow(arguments, remember))

    async def deny(self, why: str = "", *, interrupt: bool = False, remember: Remember = "once") -> None:
        await self.decide(Deny(why, interrupt, remember))


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the answers to choose from."""

    label: str
    description: str = ""
    id: str = ""


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question of a `Question`: choices, or free text when there are none."""

    text: str
    header: str = ""
    choices: tuple[Choice, ...] = ()
    several: bool = False


class Question(Ask, frozen=True, kw_only=True, omit_defaults=True, tag="question"):
    """What should be done? A question is not an approval: it has an answer of its own (lesson L7)."""

    items: tuple[Item, ...]

    async def answer(self, answers: dict[str, Any]) -> None:
        await self.decide(Answer(answers))

    async def dismiss(self) -> None:
        await self.decide(Answer({}))
