"""All that an extension offers, in the order it was written. Whoever writes two things under one name is told where both are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from serai.errors import BadExtension
from serai.sdk.handlers import Handler, Tool

if TYPE_CHECKING:
    from serai.sdk.ingress import Ingress, Service
    from serai.sdk.panel import Panel

__all__ = ["EVENTS", "STAGES", "Book", "Guard", "Offer", "Ranked"]

EVENTS = ("session_start", "turn_start", "turn_end", "tool_call", "assistant_message")
STAGES = {"tool_call": "call", "turn_start": "step", "assistant_message": "text"}  # and what its interceptor is given


class Guard:
    """An interceptor of tool calls: what is asked before, and what sees the result afterwards. One name has one of each."""

    __slots__ = ("after", "before", "name", "priority")

    def __init__(self, name: str, priority: int) -> None:
        self.name, self.priority = name, priority
        self.before: Handler | None = None
        self.after: Handler | None = None


class Ranked(NamedTuple):
    """A handler with its place among others of its kind; `events` are those that it wants, none means all."""

    name: str
    priority: int
    handler: Handler
    events: tuple[str, ...] = ()


class Offer(NamedTuple):
    """One thing that was offered, for a dialect that registers them in the order in which they were written."""

    kind: str
    name: str
    about: dict[str, Any]


class Book:
    def __init__(self, name: str, version: str) -> None:
        self.name = name
        self.version = version
        self.offers: list[Offer] = []
        self.tools: dict[str, Tool] = {}
        self.registered: list[tuple[str, str]] = []  # every use of `command`: name and description (spec zot 6)
        self.commands: dict[str, Handler] = {}  # the last handler of a name serves it
        self.events: dict[str, Handler] = {}
        self.interceptors: dict[str, Handler] = {}
        self.guards: dict[str, Guard] = {}  # the interceptors of tool calls, by name
        self.panels: dict[str, Panel] = {}
        # What zot has no word for (spec piglet 4).
        self.starts: list[Handler] = []
        self.listeners: list[Ranked] = []
        self.shortcuts: dict[str, Handler] = {}
        self.message_hooks: list[Ranked] = []
        self.transformers: list[Ranked] = []
        self.compactor: Handler | None = None
        self.providers: dict[str, Handler] = {}
        # What yoi alone has (spec yoi 8.3, 8.4).
        self.services: dict[str, Service] = {}
        self.ingresses: dict[str, Ingress] = {}

    def add_tool(self, tool: Tool) -> None:
        if (other := self.tools.get(tool.name)) is not None:
            raise _twice(f'tools are named "{tool.name}"', other.where, tool.where, "rename one of them")
        self.tools[tool.name] = tool
        about = {"description": tool.description, "parameters": tool.schema, **tool.extras}
        self.offers.append(Offer("tool", tool.name, about))

    def add_command(self, name: str, description: str, handler: Handler, *, immediate: bool = False) -> None:
        self.registered.append((name, description))
        self.commands[name] = handler
        self.offers.append(Offer("command", name, {"description": description, "immediate": immediate}))

    def add_section(self, title: str, content: str, order: int, tokens: int) -> None:
        self.offers.append(Offer("prompt section", title, {"content": content, "order": order, "token_hint": tokens}))

    def add_event(self, event: str, handler: Handler) -> None:
        if event not in EVENTS:
            raise _unknown("event", event, EVENTS)
        _set(self.events, event, handler, "handlers are for the event")
        self.offers.append(Offer("event", event, {}))

    def add_interceptor(self, stage: str, handler: Handler) -> None:
        _set(self.interceptors, stage, handler, "interceptors are for")
        self.offers.append(Offer("interceptor", stage, {}))

    def add_guard(self, name: str, priority: int, handler: Handler, *, after: bool) -> None:
        guard = self.guards.get(name)
        if guard is None:
            guard = self.guards[name] = Guard(name, priority)
            self.offers.append(Offer("guard", name, {"priority": priority}))
        other = guard.after if after else guard.before
        if other is not None:
            what = "interceptors are for tool_call" if not after else "functions see what came of tool calls"
            raise _twice(f'{what} under the name "{name}"' if name else what, other.where, handler.where, "give one a name")
        if guard.priority != priority:
            text = f'the interceptor "{name}" has two priorities, {guard.priority} and {priority}'
            raise BadExtension(text, hint="write the same at both")
        if after:
            guard.after = handler
        else:
            guard.before = handler
            self.interceptors.setdefault("tool_call", handler)

    def ranked_guards(self) -> list[Guard]:
        """In the order in which hosts ask: the highest priority first (spec piglet 4)."""
        return sorted(self.guards.values(), key=lambda guard: -guard.priority)

    def asked(self, stage: str, guard: str) -> list[Handler]:
        """Whom a question is for. Guards go by their name, where hosts know it; without one all are asked (spec piglet 8.1)."""
        if stage != "tool_call":
            return [self.interceptors[stage]] if stage in self.interceptors else []
        return [found.before for found in self.named_guards(guard) if found.before is not None]

    def named_guards(self, name: str) -> list[Guard]:
        """Empty means all; one without a name of its own has the extension's."""
        return [guard for guard in self.ranked_guards() if not name or name == (guard.name or self.name)]

    def add_ranked(self, kind: str, ranked: Ranked) -> None:
        """An event handler, a message hook or an input transformer: the lowest priority first (spec piglet 4)."""
        among = self._among(kind)
        for other in among:
            if other.name == ranked.name:
                text = f'{kind}s are named "{ranked.name}"'
                raise _twice(text, other.handler.where, ranked.handler.where, "give one another name")
        among.append(ranked)
        among.sort(key=lambda one: one.priority)
        events = {"events": list(ranked.events)} if ranked.events else {}
        self.offers.append(Offer(kind, ranked.name, {"priority": ranked.priority, **events}))

    def has_ranked(self, kind: str, name: str) -> bool:
        return any(other.name == name for other in self._among(kind))

    def _among(self, kind: str) -> list[Ranked]:
        return {"event handler": self.listeners, "message hook": self.message_hooks, "input transformer": self.transformers}[kind]

    def add_shortcut(self, key: str, description: str, handler: Handler) -> None:
        _set(self.shortcuts, key, handler, "handlers are for the shortcut")
        self.offers.append(Offer("shortcut", key, {"description": description}))

    def add_compactor(self, name: str, threshold: int, handler: Handler) -> None:
        if self.compactor is not None:
            raise _twice("functions compact the conversation", self.compactor.where, handler.where, "a host takes one: choose")
        self.compactor = handler
        self.offers.append(Offer("compactor", name, {"threshold": threshold}))

    def add_provider(self, api: str, handler: Handler) -> None:
        _set(self.providers, api, handler, "providers are for the API")
        self.offers.append(Offer("provider", api, {}))

    def add_service(self, service: Service) -> None:
        if service.name in self.services:
            raise BadExtension(f'two services are named "{service.name}"', hint="keep what `ext.service` gave, and use that twice")
        self.services[service.name] = service
        self.offers.append(Offer("service", service.name, {"description": service.description}))

    def add_ingress(self, ingress: Ingress) -> None:
        if (other := self.ingresses.get(ingress.name)) is not None:
            raise _twice(f'ingresses are named "{ingress.name}"', other.handler.where, ingress.handler.where, "rename one of them")
        self.ingresses[ingress.name] = ingress
        about = {"description": ingress.description, "event_kinds": list(ingress.kinds), "sources": list(ingress.sources)}
        self.offers.append(Offer("ingress", ingress.name, about))

    def add_panel(self, panel: Panel) -> None:
        if panel.id in self.panels:
            raise BadExtension(f'two panels have the id "{panel.id}"', hint="keep what `ext.panel` gave, and use that twice")
        self.panels[panel.id] = panel

    def handlers(self) -> list[Handler | Tool]:
        panels = [handler for panel in self.panels.values() for handler in panel.handlers()]
        guards = [handler for guard in self.guards.values() for handler in (guard.before, guard.after) if handler is not None]
        ranked = [one.handler for one in (*self.listeners, *self.message_hooks, *self.transformers)]
        single = [self.compactor] if self.compactor is not None else []
        named = (self.commands, self.events, self.interceptors, self.shortcuts, self.providers)
        by_name = [handler for handlers in named for handler in handlers.values()]
        fed = [ingress.handler for ingress in self.ingresses.values()]
        served = [handler for service in self.services.values() for handler in service.handlers()]
        return [*self.tools.values(), *by_name, *guards, *ranked, *single, *self.starts, *panels, *served, *fed]


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
