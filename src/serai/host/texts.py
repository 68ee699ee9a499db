"""What guests have to say to what a person types, to the system prompt, and to a conversation that has become too long.

A guest is asked once for each, however many handlers it has of that kind, in the place of the first of them (spec piglet FIX-16).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from serai.errors import NotAllowed, SeraiError
from serai.host.adapter import Compacts, Injects, Transforms
from serai.host.guest import Guest
from serai.host.life import State
from serai.host.registry import Registry
from serai.model.contributions import Compactor, Contributions, PromptSection, TransformResult
from serai.model.provider import ModelMessage

__all__ = ["Texts"]

log = logging.getLogger("serai.host")


class Texts:
    """Asks the guests that are there at this moment."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def transform(self, text: str) -> TransformResult:
        """What the input transformers make of it, one after the other. One that fails fails the submission (spec piglet 5.7)."""
        for guest in self._asked(lambda offered: offered.input_transformers):
            if guest.running is None:  # passed over
                continue
            try:
                changed = await cast("Transforms", guest.running).transform(text)
            except SeraiError as error:
                hint = "it was not sent; try again, or switch the guest off"
                name = min(guest.contributions.input_transformers, key=lambda one: one.priority).name
                raise NotAllowed(f"input transformer {name}: {guest.cause(error)}", who=guest.id, hint=hint) from error
            if changed.handled:
                return changed
            text = changed.text
        return TransformResult(text)

    async def inject(self, text: str) -> list[str]:
        """What the message hooks add to the system prompt. One that fails adds nothing (spec piglet 5.6, ours)."""
        found = []
        for guest in self._asked(lambda offered: offered.message_hooks):
            if guest.running is None:
                continue
            try:
                found.append(await cast("Injects", guest.running).inject(text))
            except SeraiError as error:
                why = guest.cause(error)
                guest.remark(f"its message hook failed: {why}")
                guest.house.notify("warn", f"{guest.manifest.shown} could not add what it wanted to: {why}")
        return [injection for injection in found if injection.strip()]

    def sections(self) -> list[PromptSection]:
        """Of the system prompt, in load order."""
        return [section for guest in self._present() for section in guest.contributions.prompt_sections]

    @property
    def compactor(self) -> Compactor | None:
        """The one that is used, though its guest may be down just now."""
        owner = self._registry.table.compactor
        return None if owner is None else owner[1]

    async def compact(self, messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        """What it makes of a conversation; nothing when there is none, or its guest is down: it keeps its place (design rule 8)."""
        owner = self._registry.table.compactor
        if owner is None or owner[0].running is None:
            return ()
        return await cast("Compacts", owner[0].running).compact(messages)

    def _present(self) -> list[Guest]:
        return [guest for guest in self._registry.guests if guest.state not in (State.FOUND, State.STOPPED)]

    def _asked(self, kind: Callable[[Contributions], Iterable[Any]]) -> list[Guest]:
        """Those who offer it, by their smallest priority, then in load order."""
        some = [
            (min(one.priority for one in offered), guest)
            for guest in self._present()
            if (offered := tuple(kind(guest.contributions)))
        ]
        return [guest for _, guest in sorted(some, key=lambda pair: pair[0])]
