"""Work on the side: a prompt with the same model and only those tools that may run unseen (spec piglet 6.7).

It has a conversation of its own, nothing of it is kept or told as it happens, and its answer is told at the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from serai.agents.driver import Prompt
from serai.agents.resident.house import House
from serai.agents.resident.run import Conversation, Run
from serai.agents.resident.toolset import ToolSet
from serai.agents.stage import Stage
from serai.agents.turn import Turn
from serai.errors import NotAllowed, SeraiError
from serai.model.tools import ToolBox

__all__ = ["Backgrounds", "key_of"]

log = logging.getLogger("serai.agents")

_KEY = 20  # code points


def key_of(prompt: str) -> str:
    return prompt if len(prompt) <= _KEY else prompt[:_KEY] + "…"


class Backgrounds:
    """What runs on the side, by key."""

    def __init__(self, house: House, box: ToolBox, tell: Callable[[str], None]) -> None:
        self._house = house
        self._box = box
        self._tell = tell
        self._tasks: dict[str, asyncio.Task[str]] = {}

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def start(self, prompt: str) -> str:
        """Begin it; its key. A second one of the same key is refused while the first runs."""
        key = key_of(prompt)
        if key in self._tasks:
            raise NotAllowed(f'background task "{key}" already running', hint="wait for it, or cancel it")
        self._tasks[key] = asyncio.get_running_loop().create_task(self._work(key, prompt), name=f"background {key}")
        return key

    async def result(self, key: str) -> str:
        """What it says at its end; "" when nothing of that key runs."""
        task = self._tasks.get(key)
        return "" if task is None else await asyncio.shield(task)

    async def cancel(self, key: str = "") -> None:
        """That one, or all of them."""
        tasks = [task for name, task in self._tasks.items() if key in ("", name)]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._house.limits.interrupt)

    async def idle(self) -> None:
        """Until nothing runs on the side."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def close(self) -> None:
        await self.cancel()

    async def _work(self, key: str, prompt: str) -> str:
        stage = Stage("background", "", self._house.limits)  # nobody listens, so nobody is there to approve anything either
        stage.turn = Turn(Prompt(prompt), stage)
        stage.turn.ignore()
        run = Run(self._house, stage, Conversation(), ToolSet(self._box, background=True), most=self._house.limits.background_steps)
        try:
            text = (await run.play(Prompt(prompt))).text
        except SeraiError as error:
            text = f"it failed: {error}"
        finally:
            del self._tasks[key]
        said = f"Background task: {prompt}\n\n{text.strip() or '(background task produced no output)'}"
        self._tell(said)
        return said
