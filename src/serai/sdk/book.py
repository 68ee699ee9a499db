"""All that an extension offers, in the order it was written. Whoever writes two things under one name is told where both are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serai.errors import BadExtension
from serai.sdk.handlers import Handler, Tool

if TYPE_CHECKING:
    from serai.sdk.panel import Panel

__all__ = ["EVENTS", "STAGES", "Book"]

EVENTS = ("session_start", "turn_start", "turn_end", "tool_call", "assistant_message")
STAGES = {"tool_call": "call", "turn_start": "step", "assistant_message": "text"}  # and what its interceptor is given


class Book:
    def __init__(self, name: str, version: str) -> None:
        self.name = name
        self.version = version
        self.tools: dict[str, Tool] = {}
        self.registered: list[tuple[str, str]] = []  # every use of `command`: name and description (spec zot 6)
        self.commands: dict[str, Handler] = {}  # the last handler of a name serves it
        self.events: dict[str, Handler] = {}
        self.interceptors: dict[str, Handler] = {}
        self.panels: dict[str, Panel] = {}

    def add_tool(self, tool: Tool) -> None:
        if (other := self.tools.get(tool.name)) is not None:
            raise _twice(f'tools are named "{tool.name}"', other.where, tool.where, "rename one of them")
        self.tools[tool.name] = tool

    def add_command(self, name: str, description: str, handler: Handler) -> None:
        self.registered.append((name, description))
        self.commands[name] = handler

    def add_event(self, event: str, handler: Handler) -> None:
        if event not in EVENTS:
            raise _unknown("event", event, EVENTS)
        _set(self.events, event, handler, "handlers are for the event")

    def add_interceptor(self, stage: str, handler: Handler) -> None:
        _set(self.interceptors, stage, handler, "interceptors are for")

    def add_panel(self, panel: Panel) -> None:
        if panel.id in self.panels:
            raise BadExtension(f'two panels have the id "{panel.id}"', hint="keep what `ext.panel` gave, and use that twice")
        self.panels[panel.id] = panel

    def handlers(self) -> list[Handler | Tool]:
        panels = [handler for panel in self.panels.values() for handler in panel.handlers()]
        return [*self.tools.values(), *self.commands.values(), *self.events.values(), *self.interceptors.values(), *panels]


def check_stage(stage: str) -> str:
    """What an interceptor of that stage is given."""
    if stage not in STAGES:
        raise _unknown("question", stage, tuple(STAGES))
    return STAGES[stage]


def _set(handlers: dict[str, Handler], name: str, handler: Handler, what: str) -> None:
    if (other := handlers.get(name)) is not None:
        raise _twice(f"{what} {name}", other.where, handler.where, "let one of them call the other")
    handlers[name] = handler


def _twice(what: str, one: str, other: str, hint: str) -> BadExtension:
    return BadExtension(f"two {what}: the one in {one} and the one in {other}", hint=hint)


def _unknown(what: str, name: str, known: tuple[str, ...]) -> BadExtension:
    return BadExtension(f'there is no {what} "{name}"', hint=f"there are {', '.join(known)}")
