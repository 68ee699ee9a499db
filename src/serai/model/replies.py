"""What a person typed or pressed, as an answer: for every surface that has text or buttons (spec agents 1.13).

Pure functions. What cannot be understood is said to be so: it is never a no, and never a yes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from serai.model.ask import Choice, Item

__all__ = ["NO_QUESTIONS", "OPTIONS", "Reply", "approval_reply", "chosen", "question_text", "questions_of", "typed_answer"]

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


def approval_reply(text: str) -> Reply | None:
    """What a typed reply means; None when it means nothing: ask again."""
    return _REPLIES.get(text.strip().lower())


# -- questions as they arrive -----------------------------------------------------------------------------------------------------


def questions_of(arguments: Any) -> tuple[Item, ...]:
    """The questions in the arguments of `AskUserQuestion` (spec agents 2.9), in whichever shape a model or an agent put them.

    One question or several; in a list, numbered, or as JSON text; options as objects or bare labels. What is none is left out.
    """
    given = _unpacked(arguments)
    if isinstance(given, dict) and given.get("questions") is not None:
        given = _unpacked(given["questions"])
    items = (_item(question) for question in _listed(given, one=("question", "header", "options")))
    return tuple(item for item in items if item is not None)


def _item(question: object) -> Item | None:
    if not isinstance(question, dict):
        return Item(text) if (text := _text(question)) else None
    header = _text(question.get("header"))
    options = _listed(_unpacked(question.get("options")), one=("label",))
    choices = tuple(choice for choice in map(_choice, options) if choice is not None)
    text = _text(question.get("question")) or header
    return Item(text, header, choices, question.get("multiSelect") in (True, "true")) if text or choices else None


def _choice(option: object) -> Choice | None:
    if isinstance(option, dict):
        label, description = _text(option.get("label")), _text(option.get("description"))
    else:
        label, description = _text(option), ""
    return Choice(label, description) if label else None


def _listed(given: object, *, one: Sequence[str]) -> list[object]:
    """A list, or the list that is meant: numbered values, or the one thing that has such keys, or a bare text."""
    if isinstance(given, list | tuple):
        return list(given)
    if isinstance(given, dict) and not any(key in given for key in one):
        numbered = {number: value for key, value in given.items() if (number := _number(str(key))) is not None}
        return [numbered[number] for number in sorted(numbered)]
    return [] if given is None else [given]


def _unpacked(given: object) -> object:
    """A list or an object may come as its JSON text; any other text is itself."""
    if not isinstance(given, str):
        return given
    try:
        value = msgspec.json.decode(given)
    except (ValueError, RecursionError):  # no JSON, no UTF-8, or nested to death
        return given
    return value if isinstance(value, list | dict) else given


def _text(value: object) -> str:
    """Labels are often numbers; a list or an object is no text."""
    if isinstance(value, bool):
        return str(value).lower()  # as JSON has it
    return value.strip() if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""


# -- questions as they are shown and answered -------------------------------------------------------------------------------------


def question_text(items: Sequence[Item]) -> str:
    """The questions with their options, numbered from 1 as `typed_answer` counts them."""
    return "\n\n".join(map(_shown, items)) or NO_QUESTIONS


def _shown(item: Item) -> str:
    asked = f"[{item.header}] {item.text}" if item.header and item.header != item.text else item.text
    if item.several:
        asked += " (one or several, separated by commas)"
    options = (f"{choice.label}: {choice.description}" if choice.description else choice.label for choice in item.choices)
    return "\n".join([asked, *(f"{number}. {option}" for number, option in enumerate(options, start=1))])


def typed_answer(item: Item, text: str) -> str | list[str] | None:
    """What a typed text answers: the option of that number (from 1), else of that label, else the text itself.

    A blank text is no answer. Where several may be chosen the answer is a list, and commas separate.
    """
    if not text.strip():
        return None
    if not item.several:
        return _option(item, text) or text
    if (whole := _option(item, text)) is not None:  # its label may have a comma
        return [whole]
    parts = [part.strip() for part in text.split(",")]
    return list(dict.fromkeys(_option(item, part) or part for part in parts if part)) or None


def chosen(item: Item, index: int) -> str | None:
    """What a button answers; None without such an option. Its index counts from 0, a typed number from 1 (spec agents 1.13)."""
    return item.choices[index].label if 0 <= index < len(item.choices) else None


def _option(item: Item, text: str) -> str | None:
    """The label that a number or a label means, or None."""
    number = _number(text)
    if number is not None and (label := chosen(item, number - 1)) is not None:
        return label
    word = text.strip().casefold()
    return next((choice.label for choice in item.choices if choice.label.strip().casefold() == word), None)


def _number(text: str) -> int | None:
    digits = text.strip()
    return int(digits) if digits.isdecimal() and len(digits) <= _MOST_DIGITS else None
