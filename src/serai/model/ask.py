"""What is asked of a person, and what they decide.

An approval or a question is raised with a private callback for its answer, so `await ask.allow()` works for whoever got hold of it
and imports nothing upwards. It is answered once; silence is never yes (design rule 7). `replies` reads what a person types.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from serai.errors import Closed
from serai.model.tools import ToolCall

__all__ = ["Allow", "Answer", "Approval", "Ask", "Choice", "Decision", "Deny", "Item", "Question", "Remember", "stamped"]

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

    takes: ClassVar[tuple[type[Decision], ...]] = (Allow, Deny, Answer)

    id: str
    seq: int = 0  # among the events of its session
    agent: str = ""
    session: str = ""
    lane: str = ""  # a sub-agent's (agent_id), empty for the main one
    at: float = 0.0
    # Where the run's person is reached (chat_id, platform, bot_uuid): here, and never among a tool's arguments (spec agents 1.10).
    routing: dict[str, str] = msgspec.field(default_factory=dict)
    native: Any = None

    def answer_with(self, respond: Respond) -> None:
        """Whoever raises it says once how the answer gets back."""
        self._way_back()[:] = [respond]

    @property
    def answered(self) -> bool:
        return not self._way_back()

    async def decide(self, decision: Decision) -> None:
        """Answer it; a second answer is an error, whoever was first counts. An answer of the wrong kind uses nothing up."""
        if not isinstance(decision, self.takes):
            kinds = " or ".join(kind.__name__ for kind in self.takes)
            raise TypeError(f"the answer to {type(self).__name__} {self.id} is {kinds}, not {type(decision).__name__}")
        try:
            respond = self._way_back().pop()  # taken before it is called: nobody comes in between
        except IndexError:
            raise Closed("it was answered or withdrawn already", who=self.agent, id=self.id) from None
        await respond(decision)

    def withdraw(self) -> bool:
        """Nobody waits for its answer any more; False when it has one."""
        way, there = self._way_back(), not self.answered
        way.clear()
        return there

    def _way_back(self) -> list[Respond]:
        """Holds the callback until the answer takes it. Stamped copies share it, so that they are answered once between them."""
        way: list[Respond] = self.__dict__.setdefault("way_back", [])
        return way


Asked = TypeVar("Asked", bound=Ask)


def stamped(ask: Asked, *, session: str = "", routing: Mapping[str, str] | None = None) -> Asked:
    """The same ask with the stamps of its run where it has none of its own (spec agents 5.2 G7); an empty stamp is none.

    It and the copy have one way back: whichever is answered, both are.
    """
    own = {name: stamp for name, stamp in ask.routing.items() if stamp}
    copy = msgspec.structs.replace(ask, session=ask.session or session, routing={**(routing or {}), **own})
    copy.__dict__["way_back"] = ask._way_back()
    return copy


class Approval(Ask, frozen=True, kw_only=True, omit_defaults=True, tag="approval"):
    """May this call run? The comments name the field of spec agents 1.10 where its word is another."""

    takes = (Allow, Deny)

    call: ToolCall  # its id is tool_use_id
    title: str = ""
    display_name: str = ""  # the tool's, for people
    description: str = ""
    reason: str = ""  # decision_reason: why it is asked, in the agent's words (terminal escapes included)
    reason_type: str = ""  # decision_reason_type: `rule`, `mode`, `hook`, …
    blocked_path: str = ""  # the path it is about, where a path is the reason
    suggestions: tuple[Any, ...] = ()  # permission_suggestions: what the agent offers to remember, in its own form
    needs_person: bool = False  # requires_user_interaction: no rule can say what only a person knows
    default_no: bool = False  # default_to_no: what a bare Enter means
    no_always: bool = False  # suppress_always_allow: not to be remembered, so a surface does not offer it

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
    """What should be done? A question is not an approval: it has an answer of its own, or none: `Deny`."""

    takes = (Answer, Deny)

    items: tuple[Item, ...]
    tool: str = ""  # that asks, such as `AskUserQuestion`, where a tool does
    call_id: str = ""  # of the tool's call: tool_use_id

    async def answer(self, answers: dict[str, Any]) -> None:
        await self.decide(Answer(answers))

    async def dismiss(self) -> None:
        await self.decide(Answer({}))
