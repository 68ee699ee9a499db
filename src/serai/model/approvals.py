"""What a person is asked, what they decide, and what they typed or pressed as an answer.

An approval or a question is raised with a private callback for its answer, so `await ask.allow()` works for any holder and imports
nothing upwards. It is answered once; silence is never yes (design rule 7).

Typed replies are parsed by pure functions, for every surface that has text or buttons (spec agents 1.13). A reply that cannot be
understood is reported as such: it is never a no, and never a yes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeVar

import msgspec

from serai.errors import Closed
from serai.model.tools import ToolCall

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


class PersonRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
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
        self._get_callbacks()[:] = [respond]

    @property
    def answered(self) -> bool:
        return not self._get_callbacks()

    async def decide(self, decision: Decision) -> None:
        """Answer it; a second answer is an error, whoever was first counts. An answer of the wrong kind uses nothing up."""
        if not isinstance(decision, self.takes):
            kinds = " or ".join(kind.__name__ for kind in self.takes)
            raise TypeError(f"the answer to {type(self).__name__} {self.id} is {kinds}, not {type(decision).__name__}")
        try:
            respond = self._get_callbacks().pop()  # taken before it is called: nobody comes in between
        except IndexError:
            raise Closed("it was answered or withdrawn already", who=self.agent, id=self.id) from None
        await respond(decision)

    def withdraw(self) -> bool:
        """Nobody waits for its answer any more; False when it has one."""
        way, there = self._get_callbacks(), not self.answered
        way.clear()
        return there

    def _get_callbacks(self) -> list[Respond]:
        """Holds the callback until the answer takes it. Stamped copies share it, so that they are answered once between them."""
        way: list[Respond] = self.__dict__.setdefault("way_back", [])
        return way


Asked = TypeVar("Asked", bound=PersonRequest)


def stamp_request(ask: Asked, *, session: str = "", routing: Mapping[str, str] | None = None) -> Asked:
    """The same ask with the stamps of its run where it has none of its own (spec agents 5.2 G7); an empty stamp is none.

    It and the copy have one way back: whichever is answered, both are.
    """
    own = {name: stamp for name, stamp in ask.routing.items() if stamp}
    copy = msgspec.structs.replace(ask, session=ask.session or session, routing={**(routing or {}), **own})
    copy.__dict__["way_back"] = ask._get_callbacks()
    return copy


class Approval(PersonRequest, frozen=True, kw_only=True, omit_defaults=True, tag="approval"):
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


class QuestionOption(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the answers to choose from."""

    label: str
    description: str = ""
    id: str = ""


class QuestionItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question of a `Question`: choices, or free text when there are none."""

    text: str
    header: str = ""
    choices: tuple[QuestionOption, ...] = ()
    several: bool = False


class Question(PersonRequest, frozen=True, kw_only=True, omit_defaults=True, tag="question"):
    """What should be done? A question is not an approval: it has an answer of its own, or none: `Deny`."""

    takes = (Answer, Deny)

    items: tuple[QuestionItem, ...]
    tool: str = ""  # that asks, such as `AskUserQuestion`, where a tool does
    call_id: str = ""  # of the tool's call: tool_use_id

    async def answer(self, answers: dict[str, Any]) -> None:
        await self.decide(Answer(answers))

    async def dismiss(self) -> None:
        await self.decide(Answer({}))


Reply = Literal["allow", "deny", "always"]

# What may be typed for an approval; the first of each is its number in a list.
OPTIONS: Final[Mapping[Reply, tuple[str, ...]]] = {
    "allow": ("1", "y", "yes"),
    "deny": ("2", "n", "no", "0"),
    "always": ("3", "a", "always"),
}
_REPLIES: Final = {word: reply for reply, words in OPTIONS.items() for word in words}

NO_QUESTIONS: Final = "There is no question to answer."

# Nobody counts further, and Python refuses to read numbers of thousands of digits.
_MOST_DIGITS = 9


# -- approvals --------------------------------------------------------------------------------------------------------------------


def parse_approval_reply(text: str) -> Reply | None:
    """What a typed reply means; None when it means nothing: ask again."""
    return _REPLIES.get(text.strip().lower())


# -- questions as they arrive -----------------------------------------------------------------------------------------------------


def parse_questions(arguments: Any) -> tuple[QuestionItem, ...]:
    """The questions in the arguments of `AskUserQuestion` (spec agents 2.9), in whichever shape a model or an agent put them.

    One question or several; in a list, numbered, or as JSON text; options as objects or bare labels. What is none is left out.
    """
    given = _unpack(arguments)
    if isinstance(given, dict) and given.get("questions") is not None:
        given = _unpack(given["questions"])
    items = (_parse_item(question) for question in _to_list(given, one=("question", "header", "options")))
    return tuple(item for item in items if item is not None)


def _parse_item(question: object) -> QuestionItem | None:
    if not isinstance(question, dict):
        return QuestionItem(text) if (text := _to_text(question)) else None
    header = _to_text(question.get("header"))
    options = _to_list(_unpack(question.get("options")), one=("label",))
    choices = tuple(choice for choice in map(_parse_choice, options) if choice is not None)
    text = _to_text(question.get("question")) or header
    return QuestionItem(text, header, choices, question.get("multiSelect") in (True, "true")) if text or choices else None


def _parse_choice(option: object) -> QuestionOption | None:
    if isinstance(option, dict):
        label, description = _to_text(option.get("label")), _to_text(option.get("description"))
    else:
        label, description = _to_text(option), ""
    return QuestionOption(label, description) if label else None


def _to_list(given: object, *, one: Sequence[str]) -> list[object]:
    """A list, or the list that is meant: numbered values, or the one thing that has such keys, or a bare text."""
    if isinstance(given, list | tuple):
        return list(given)
    if isinstance(given, dict) and not any(key in given for key in one):
        numbered = {number: value for key, value in given.items() if (number := _parse_number(str(key))) is not None}
        return [numbered[number] for number in sorted(numbered)]
    return [] if given is None else [given]


def _unpack(given: object) -> object:
    """A list or an object may come as its JSON text; any other text is itself."""
    if not isinstance(given, str):
        return given
    try:
        value = msgspec.json.decode(given)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, or nested to death
        return given
    return value if isinstance(value, list | dict) else given


def _to_text(value: object) -> str:
    """Labels are often numbers; a list or an object is no text."""
    if isinstance(value, bool):
        return str(value).lower()  # as JSON has it
    return value.strip() if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""


# -- questions as they are shown and answered -------------------------------------------------------------------------------------


def format_questions(items: Sequence[QuestionItem]) -> str:
    """The questions with their options, numbered from 1 as `parse_typed_answer` counts them."""
    return "\n\n".join(map(_format_item, items)) or NO_QUESTIONS


def _format_item(item: QuestionItem) -> str:
    asked = f"[{item.header}] {item.text}" if item.header and item.header != item.text else item.text
    if item.several:
        asked += " (one or several, separated by commas)"
    options = (f"{choice.label}: {choice.description}" if choice.description else choice.label for choice in item.choices)
    return "\n".join([asked, *(f"{number}. {option}" for number, option in enumerate(options, start=1))])


def parse_typed_answer(item: QuestionItem, text: str) -> str | list[str] | None:
    """What a typed text answers: the option of that number (from 1), else of that label, else the text itself.

    A blank text is no answer. Where several may be chosen the answer is a list, and commas separate.
    """
    if not text.strip():
        return None
    if not item.several:
        return _find_label(item, text) or text
    if (whole := _find_label(item, text)) is not None:  # its label may have a comma
        return [whole]
    parts = [part.strip() for part in text.split(",")]
    return list(dict.fromkeys(_find_label(item, part) or part for part in parts if part)) or None


def get_option_label(item: QuestionItem, index: int) -> str | None:
    """What a button answers; None without such an option. Its index counts from 0, a typed number from 1 (spec agents 1.13)."""
    return item.choices[index].label if 0 <= index < len(item.choices) else None


def _find_label(item: QuestionItem, text: str) -> str | None:
    """The label that a number or a label means, or None."""
    number = _parse_number(text)
    if number is not None and (label := get_option_label(item, number - 1)) is not None:
        return label
    word = text.strip().casefold()
    return next((choice.label for choice in item.choices if choice.label.strip().casefold() == word), None)


def _parse_number(text: str) -> int | None:
    digits = text.strip()
    return int(digits) if digits.isdecimal() and len(digits) <= _MOST_DIGITS else None
