"""Services about tools (spec piglet 7.1): which there are, and to run one, on the same path as an agent's calls.

`UndoService` restores copies of files from before they were changed (spec piglet 6.10).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from serai.agents.resident.run_context import ToolSet
from serai.app.services.router import Data, NoArguments, Operation
from serai.errors import NoSnapshot, NotAllowed, NoTool, Refused
from serai.model.tools import ToolBox, ToolCall, ToolResult, ToolSpec
from serai.tools.workspace import FileSnapshots as Copies

# Calls that one guest may have under way. A guard that calls its own tool while it judges a call would never come to an end.
OPEN_CALLS = 64
_CODE = re.compile(r"\[error:([A-Za-z0-9_]+)\]")


class ToolFilterArgs(msgspec.Struct, frozen=True):
    filter: str | None = None  # `background_safe`; everything else means all


class ToolCallArgs(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any] | None = None
    call_id: str = ""


class ToolNameArgs(msgspec.Struct, frozen=True):
    name: str


class ToolNamesArgs(msgspec.Struct, frozen=True):
    names: list[str] | None = None


class ToolService:
    """`box` has all tools, `call` decides and runs one, `agent` gives the agent's own view of them.

    `allowed` are those that the person lets the agent have, None for all: no guest's filter goes beyond.
    """

    def __init__(
        self,
        box: ToolBox,
        call: Callable[[ToolCall], Awaitable[ToolResult]],
        agent: Callable[[], ToolSet],
        *,
        allowed: Callable[[], Collection[str] | None] = lambda: None,
        most: int = OPEN_CALLS,
    ) -> None:
        self._box = box
        self._call = call
        self._agent = agent
        self._allowed = allowed
        self._most = most
        self._open: Counter[str] = Counter()
        self.operations: Mapping[str, Operation[Any]] = {
            "list": Operation(ToolFilterArgs, self.list),
            "names": Operation(NoArguments, self.names),
            "call": Operation(ToolCallArgs, self.call),
            "activate": Operation(ToolNameArgs, self.activate),
            "filter": Operation(ToolNamesArgs, self.filter),
        }

    async def list(self, _guest: str, which: ToolFilterArgs) -> Data:
        """All of each tool, also of deferred ones."""
        safe = which.filter == "background_safe"
        return {"tools": [dump_spec(tool) for tool in self._sort_tools() if tool.background or not safe]}

    async def names(self, _guest: str, _arguments: NoArguments) -> Data:
        return {"tools": [{"name": tool.name, "description": tool.description} for tool in self._sort_tools()]}

    async def call(self, guest: str, wanted: ToolCallArgs) -> Data:
        """What a tool does wrong is a result; that there is no such tool is an error. The agent's filter is not asked."""
        if self._find(wanted.name) is None:
            raise NoTool(f"unknown tool: {wanted.name}", who=guest)
        if self._open[guest] >= self._most:
            why = f"{self._most} calls of tools are under way for it: does a call of {wanted.name} lead to itself?"
            raise Refused(why, who=guest)
        self._open[guest] += 1
        try:
            return dump_result(await self._call(ToolCall(wanted.name, wanted.arguments or {}, wanted.call_id, asker=guest)))
        finally:
            self._open[guest] -= 1
            if not self._open[guest]:
                del self._open[guest]

    async def activate(self, guest: str, wanted: ToolNameArgs) -> Data:
        """Tell the agent all about a deferred tool from now on."""
        tool = self._find(wanted.name)
        if tool is None or not tool.deferred:
            raise NoTool(f"tool not found or not deferred: {wanted.name}", who=guest)
        self._agent().activate(wanted.name)
        return {}

    async def filter(self, _guest: str, wanted: ToolNamesArgs) -> Data:
        """Offer the agent these alone; none ends it (spec piglet 6.6)."""
        allowed = self._allowed()
        names = wanted.names or allowed
        self._agent().restrict(names if names is None or allowed is None else set(names) & set(allowed))
        return {}

    def _sort_tools(self) -> Iterable[ToolSpec]:
        return sorted(self._box.list(), key=lambda tool: tool.name)

    def _find(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self._box.list() if tool.name == name), None)


def dump_spec(tool: ToolSpec) -> Data:
    data = {"name": tool.name, "description": tool.description, "schema": tool.schema}
    return data | {"deferred": True} if tool.deferred else data


def dump_result(result: ToolResult) -> Data:
    """Without its details, which are for people. A code that only stands in the text is told too."""
    data: Data = {"content": list(map(msgspec.to_builtins, result.content)), "is_error": result.is_error}
    in_text = _CODE.match(result.text) if result.is_error else None
    code = result.code or (in_text[1] if in_text is not None else "")
    return data | ({"code": code} if code else {}) | ({"hint": result.hint} if result.hint else {})


class UndoArgs(msgspec.Struct, frozen=True):
    path: str


class UndoService:
    """`copies` are None where the app keeps none; of them those below `folder` are told of. `may` says why a file must not be put
    back, or nothing.
    """

    def __init__(self, copies: Copies | None, may: Callable[[str, str], Awaitable[str]], folder: str) -> None:
        self._kept = copies
        self._may = may
        self._folder = os.path.join(os.path.realpath(folder), "")
        self.operations: Mapping[str, Operation[Any]] = {
            "snapshots": Operation(NoArguments, self.snapshots),
            "restore": Operation(UndoArgs, self.restore),
        }

    async def snapshots(self, guest: str, _arguments: NoArguments) -> Data:
        """The size of each copy, by the path of its file."""
        return {"snapshots": await self._list_snapshots(guest)}

    async def restore(self, guest: str, wanted: UndoArgs) -> Data:
        """Put a file back; its path is one of those that `snapshots` tells. It is decided like a call that writes it."""
        if wanted.path not in await self._list_snapshots(guest):
            raise NoSnapshot(f"no snapshot for path: {wanted.path}", who=guest)
        if why := await self._may(guest, wanted.path):
            raise NotAllowed(why, who=guest)
        await asyncio.to_thread(self._get_copies(guest).restore, wanted.path)
        return {}

    async def _list_snapshots(self, guest: str) -> dict[str, int]:
        found = await asyncio.to_thread(self._get_copies(guest).list_snapshots)
        return {path: size for path, size in found.items() if path.startswith(self._folder)}

    def _get_copies(self, guest: str) -> Copies:
        if self._kept is None:
            raise Refused("undo snapshots not available", who=guest)
        return self._kept
