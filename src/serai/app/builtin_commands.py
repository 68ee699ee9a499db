"""Serai's own commands, which a person types wherever they type prompts. No guest gets one of these names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from serai.host.host import BuiltInCommand
from serai.model.actions import Action, Display, Quit

if TYPE_CHECKING:
    from serai.app.app import App

DESCRIPTIONS = {
    "compact": "shorten the conversation",
    "exit": "end the run",
    "model": "which model is used, or another one: /model NAME",
    "quit": "end the run",
}
# Those of them that run while a turn does.
IMMEDIATE = frozenset({"quit", "exit", "model"})


def builtin_commands(app: App) -> Mapping[str, BuiltInCommand]:
    """By name; each takes what was typed behind it."""

    async def quit(_args: str) -> Action:
        app.quit()
        return Quit()

    async def model(args: str) -> Action:
        if not args:
            return Display(app.resident.context.model.key)
        return Display(await app.session.set_model(args))

    async def compact(_args: str) -> Action | None:
        await app.session.compact()
        return None

    return {"quit": quit, "exit": quit, "model": model, "compact": compact}
