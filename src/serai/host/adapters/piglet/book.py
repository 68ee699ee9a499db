"""What a guest has registered so far (spec piglet 4): which name counts when there are two, and when it is too much."""

from __future__ import annotations

from typing import Any

from serai.dialects.piglet import neutral
from serai.dialects.piglet.messages import RegisterEventHandlerParams, RegisterShortcutParams, Wire
from serai.errors import LimitHit
from serai.host.adapters.piglet.telling import TYPES, kinds_for
from serai.limits import Limits
from serai.model.contributions import (
    Command,
    Compactor,
    Contributions,
    EventHandler,
    InputTransformer,
    Interceptor,
    MessageHook,
    PromptSection,
    Provider,
    Shortcut,
)
from serai.model.tools import ToolSpec

__all__ = ["Book"]

_COMPLAINTS = 10  # of the first few the report tells; all are in the log


class Book:
    """What is beyond `limits.registrations`, or in bytes beyond `limits.registered`, is not kept."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sizes: dict[tuple[type, str], int] = {}  # of those of which the last counts
        self._size = 0  # of all
        self._named: dict[type, dict[str, Any]] = {ToolSpec: {}, Command: {}, Shortcut: {}, Compactor: {}}  # of two the last counts
        self._listed: dict[type, list[Any]] = {}  # all count
        self._types: frozenset[str] = frozenset()
        self._spelt: dict[str, str] = {}  # its keys as it writes them, by their one spelling here
        self._made: Contributions | None = None  # made when somebody looks
        self._full = False
        self.complaints: tuple[str, ...] = ()

    def add(self, method: str, params: Wire, size: int) -> str:
        """Take one, of so many bytes; why not, or nothing."""
        if self._count() >= self._limits.registrations:
            if self._full:
                return f"{method} is not taken: it offers too much"
            self._full = True
            most = self._limits.registrations
            return self.complain(f"its {method} and what follows is not taken: it offers more than {most} things")
        if self._size + size > self._limits.registered:
            limit = LimitHit("registered", self._limits.registered)
            return self.complain(f"its {method} of {size} bytes is not taken: with it, it offers too much ({limit})")
        unknown: list[str] = []
        if isinstance(params, RegisterEventHandlerParams):
            types = frozenset(params.events or TYPES)
            unknown = sorted(types.difference(TYPES))
            self._types |= types
            offered: Any = EventHandler(params.name, kinds_for(types), params.priority)
        else:
            offered = neutral.contribution(params)
            if isinstance(params, RegisterShortcutParams):
                self._spelt[offered.key] = params.key
        self._keep(offered, size)
        self._made = None
        return f"it wants events that never come: {', '.join(unknown)[:200]}" if unknown else ""

    def complain(self, text: str) -> str:
        """For a person to read in the report; the same text."""
        self.complaints = (*self.complaints, text) if len(self.complaints) < _COMPLAINTS else self.complaints
        return text

    def wants(self, type: str) -> bool:
        """Whether a handler of it wants events of this type."""
        return type in self._types

    def spelt(self, key: str) -> str:
        """A key in the guest's own spelling, by which it knows its handler."""
        return self._spelt.get(key, key)

    def is_blocking(self, tool: str) -> bool:
        """Whether a call of this tool is let finish, whoever gives up (spec piglet 2.6)."""
        spec = self._named[ToolSpec].get(tool)
        return spec is not None and spec.interrupt == "block"

    @property
    def contributions(self) -> Contributions:
        if self._made is None:
            named = {kind: tuple(some.values()) for kind, some in self._named.items()}
            listed = {kind: tuple(some) for kind, some in self._listed.items()}
            self._made = Contributions(
                tools=named[ToolSpec],
                commands=named[Command],
                interceptors=listed.get(Interceptor, ()),
                event_handlers=listed.get(EventHandler, ()),
                prompt_sections=listed.get(PromptSection, ()),
                shortcuts=named[Shortcut],
                message_hooks=listed.get(MessageHook, ()),
                input_transformers=listed.get(InputTransformer, ()),
                compactors=named[Compactor],
                providers=listed.get(Provider, ()),
            )
        return self._made

    def _keep(self, offered: Any, size: int) -> None:
        kind = type(offered)
        self._size += size
        if kind not in self._named:
            self._listed.setdefault(kind, []).append(offered)
            return
        name = "" if kind is Compactor else offered.key if kind is Shortcut else offered.name  # of the first there is one slot
        self._named[kind].pop(name, None)  # the last counts, in its own place
        self._named[kind][name] = offered
        self._size -= self._sizes.get((kind, name), 0)
        self._sizes[kind, name] = size

    def _count(self) -> int:
        return sum(map(len, self._named.values())) + sum(map(len, self._listed.values()))
