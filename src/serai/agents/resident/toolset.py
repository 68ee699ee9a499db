"""Which of the tools a model is offered, and how much it is told of them (spec piglet 6.6).

Tools are looked up by name whenever they are called: a guest that was started again in the meantime is reached, and one that is
down answers for itself (FIX-23).
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from serai.agents.models.providers import is_local
from serai.model.provider import Model
from serai.model.tools import ToolBox, ToolSpec

__all__ = ["ToolSet", "is_compact"]

_BARE: dict[str, object] = {"type": "object"}


class ToolSet:
    """The agent's view of a tool box. The filter is about the agent alone: whoever else uses the box does not see it."""

    def __init__(self, box: ToolBox, *, only: Collection[str] | None = None, background: bool = False) -> None:
        """`background`: only what may run for a background agent."""
        self.box = box
        self._background = background
        self._only = None if only is None else frozenset(only)
        self._activated: set[str] = set()

    @property
    def filter(self) -> frozenset[str] | None:
        return self._only

    def only(self, names: Collection[str] | None) -> None:
        """Offer these alone, until somebody says otherwise or another session is loaded; None ends it (FIX-24)."""
        self._only = None if names is None else frozenset(names)

    def like(self, other: ToolSet) -> None:
        """With its filter, and what was activated there."""
        self._only = other._only
        self._activated = set(other._activated)

    def activate(self, name: str) -> None:
        """Tell the model all about a deferred tool from now on."""
        self._activated.add(name)

    def offered(self) -> list[ToolSpec]:
        """Sorted by name."""
        return sorted((tool for tool in self.box.list() if self._fits(tool)), key=lambda tool: tool.name)

    def deferred(self, *, compact: bool) -> list[ToolSpec]:
        """Those that the model is told of by name only: never, unless it is a small one (compact mode)."""
        return [tool for tool in self.offered() if compact and self._is_deferred(tool)]

    def told(self, *, compact: bool) -> tuple[ToolSpec, ...]:
        """As the model is told of them."""
        return tuple(self._told(tool, compact) for tool in self.offered())

    def _told(self, tool: ToolSpec, compact: bool) -> ToolSpec:
        if not tool.deferred:
            return tool
        if compact and self._is_deferred(tool):
            return msgspec.structs.replace(tool, schema=_BARE)
        return msgspec.structs.replace(tool, deferred=False)  # it is told in full

    def find(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.box.list() if tool.name == name and self._fits(tool)), None)

    def _fits(self, tool: ToolSpec) -> bool:
        return (self._only is None or tool.name in self._only) and (tool.background or not self._background)

    def _is_deferred(self, tool: ToolSpec) -> bool:
        return tool.deferred and tool.name not in self._activated


def is_compact(model: Model) -> bool:
    """Whether this machine serves it: such models are small, and are told less (compact mode)."""
    return bool(model.base_url) and is_local(model.base_url)
