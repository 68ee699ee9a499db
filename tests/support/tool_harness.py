"""A box of tools in a folder of its own, and what is asked of it."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serai.limits import Limits
from serai.model.tools import ProgressCallback, ToolCall, ToolResult
from serai.tools.builtin_tools import BuiltInTools
from serai.tools.workspace import FileSnapshots
from serai.wire.process import Child, Launch, Spawner


class Tools:
    """`await tools("read", path="a")`; files are in `tools.folder`, copies in `tools.undo`."""

    def __init__(self, folder: Path, spawner: Spawner, limits: Limits, **more: Any) -> None:
        self.folder = folder / "work"
        self.folder.mkdir(exist_ok=True)
        self.undo = FileSnapshots(folder / "undo", limits=limits)
        self.told: list[str] = []
        self.tell: ProgressCallback | None = None
        self.box = BuiltInTools(self.folder, spawner=spawner, limits=limits, **{"undo": self.undo, **more})

    async def __call__(self, name: str, /, **arguments: Any) -> ToolResult:
        return await self.box.call(ToolCall(name, arguments), tell=self.tell)

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    async def read_and_edit(self, name: str, **arguments: Any) -> ToolResult:
        assert not (await self("read", path=name)).is_error
        return await self("edit", path=name, **arguments)


class Started:
    """A spawner that hands over a program when it has said something: its time begins then, however long its start took."""

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner

    async def spawn(self, launch: Launch) -> Child:
        child = await self._spawner.spawn(launch)
        assert (await asyncio.to_thread(select.select, [child.stdout], [], [], 30))[0]
        return child


def is_failure(result: ToolResult, code: str, *parts: str) -> bool:
    """Whether it failed so, and says these things."""
    assert result.is_error, result.text
    assert result.code == code, (result.code, result.text)
    said = f"{result.text}\n{result.hint}"
    assert all(part in said for part in parts), said
    return True


def lines(result: ToolResult) -> Sequence[str]:
    assert not result.is_error, (result.code, result.text)
    return result.text.split("\n")
