"""Work on the side, begun by a guest (spec piglet 6.7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from serai.agents.resident.driver import BackgroundRuns
from serai.app.services.group import Data, NoArguments, Operation
from serai.errors import BadRequest
from serai.model.actions import Action, SetStatus

__all__ = ["Background"]


class Prompt(msgspec.Struct, frozen=True):
    prompt: str


class Background:
    """`backgrounds` are the agent's; `show` tells the person what runs, as status `bg`. `ready` raises while a guard is down."""

    def __init__(
        self,
        backgrounds: Callable[[], BackgroundRuns],
        show: Callable[[Action], None],
        *,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._backgrounds = backgrounds
        self._show = show
        self._ready = ready
        self._watching: set[asyncio.Task[str]] = set()
        self.operations: Mapping[str, Operation[Any]] = {
            "start": Operation(Prompt, self.start),
            "cancel": Operation(NoArguments, self.cancel),
            "running": Operation(NoArguments, self.running),
        }

    async def start(self, guest: str, wanted: Prompt) -> Data:
        """Begin it; its answer is told to the person at its end."""
        if not wanted.prompt.strip():
            raise BadRequest("start: the prompt is empty", who=guest)
        self._ready()
        backgrounds = self._backgrounds()
        key = backgrounds.start(wanted.prompt)
        self._show(SetStatus("bg", f"bg: {key}"))
        task = asyncio.get_running_loop().create_task(backgrounds.result(key), name=f"watch {key}")
        self._watching.add(task)
        task.add_done_callback(lambda task: self._over(task, backgrounds))
        return {"key": key}

    async def cancel(self, _guest: str, _arguments: NoArguments) -> Data:
        """All of it."""
        await self._backgrounds().cancel()
        return {}

    async def running(self, _guest: str, _arguments: NoArguments) -> Data:
        return {"running": bool(self._backgrounds().running)}

    def _over(self, task: asyncio.Task[str], backgrounds: BackgroundRuns) -> None:
        self._watching.discard(task)
        if not task.cancelled():
            task.exception()  # it is told by whoever runs it
        left = backgrounds.running
        self._show(SetStatus("bg", f"bg: {left[-1]}" if left else ""))
