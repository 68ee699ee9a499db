"""A guest asks the person something: one dialog at a time, each answered exactly once (spec piglet 7.1, FIX-26, FIX-31)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from serai.app.services.group import Data, Operation
from serai.errors import BadRequest
from serai.model.approvals import Answer, Decision, Question, QuestionItem, QuestionOption

__all__ = ["Dialogs"]

DISMISSED = -1


class Ask(msgspec.Struct, frozen=True):
    prompt: str
    choices: list[str]


class Row(msgspec.Struct, frozen=True):
    id: str
    label: str = ""
    desc: str | None = None


class Pick(msgspec.Struct, frozen=True):
    title: str = ""
    items: list[Row] = []


class Dialogs:
    """`ask` puts a question to the person and is cancelled when nobody waits for the answer; `interactive`: is there one?"""

    def __init__(self, ask: Callable[[Question], Awaitable[Decision]], interactive: Callable[[], bool]) -> None:
        self._ask = ask
        self._interactive = interactive
        self._turn = asyncio.Lock()  # who waits gets it in the order of asking
        self._count = 0
        self.operations: Mapping[str, Operation[Any]] = {
            "ask": Operation(Ask, self.ask),
            "pick": Operation(Pick, self.pick),
        }

    async def ask(self, guest: str, wanted: Ask) -> Data:
        if not wanted.choices:
            raise BadRequest("ask: choices must not be empty", who=guest)
        place = await self._chosen(guest, wanted.prompt, [QuestionOption(choice) for choice in wanted.choices])
        dismissed = place == DISMISSED
        return {"selected": "" if dismissed else wanted.choices[place], "cancelled": dismissed}

    async def pick(self, guest: str, wanted: Pick) -> Data:
        if not wanted.items:
            return {"selected": ""}
        place = await self._chosen(
            guest, wanted.title, [QuestionOption(row.label or row.id, row.desc or "", row.id) for row in wanted.items]
        )
        return {"selected": "" if place == DISMISSED else wanted.items[place].id}

    async def _chosen(self, guest: str, text: str, choices: Sequence[QuestionOption]) -> int:
        """The place of the choice, or `DISMISSED`."""
        if not self._interactive():
            return DISMISSED
        self._count += 1
        item = QuestionItem(text, header=guest, choices=tuple(_told_apart(choices)))
        question = Question(id=f"dialog-{self._count}", agent=guest, items=(item,))
        async with self._turn:  # whoever is cancelled withdraws it
            decision = await self._ask(question)
        answer = decision.answers.get(item.text) if isinstance(decision, Answer) else None
        # An answer that was not to be chosen is none: a guest might take it for the other one of two.
        return next((place for place, choice in enumerate(item.choices) if answer == choice.label), DISMISSED)


def _told_apart(choices: Sequence[QuestionOption]) -> list[QuestionOption]:
    """With labels of their own: by these a person's answer is known."""
    often = Counter(choice.label for choice in choices)
    found: list[QuestionOption] = []
    taken: set[str] = set()
    for place, choice in enumerate(choices, start=1):
        label = choice.label
        if often[label] > 1 or label in taken:
            label = f"{label} ({choice.id or place})"
        while label in taken:
            label = f"{label} ({place})"
        taken.add(label)
        found.append(QuestionOption(label, choice.description, choice.id))
    return found
