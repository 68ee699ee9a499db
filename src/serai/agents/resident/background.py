"""Work on the side: a prompt with the same model and only those tools that may run unseen (spec piglet 6.7).

It has a conversation of its own, nothing of it is kept or told as it happens, and its answer is told at the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from serai.agents.driver import Prompt
from serai.agents.resident.conversation import Conversation
from serai.agents.resident.house import House
from serai.agents.resident.run import Run
from serai.agents.resident.scene import Scene
from serai.agents.resident.toolset import ToolSet
from serai.errors import NotAllowed, SeraiError

__all__ = ["Backgrounds", "key_of"]

log = logging.getLogger("serai.agents")

_KEY = 20  # code points


def key_of(prompt: str) -> str:
    return prompt if len(prompt) <= _KEY else prompt[:_KEY] + "…"


class Backgrounds:
    """What runs on the side, by key. `tools` are the agent's, with its filter."""

    def __init__(self, house: House, tools: ToolSet, tell: Callable[[str], None]) -> None:
        self._house = house
        self._tools = tools
        self._tell = tell
        self._tasks: dict[str, asyncio.Task[str]] = {}
        self._scenes: dict[str, Scene] = {}
        self.ready = False

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def start(self, prompt: str) -> str:
        """Begin it; its key. A second one of the same key is refused while the first runs."""
        if not self.ready:
            raise NotAllowed("agent not ready", hint="open the session first")
        key = key_of(prompt)
        if key in self._tasks:
            raise NotAllowed(f'background task "{key}" already running', hint="wait for it, or cancel it")
        self._scenes[key] = scene = Scene()
        self._tasks[key] = task = asyncio.get_running_loop().create_task(self._work(prompt, scene), name=f"background {key}")
        task.add_done_callback(lambda _task: (self._tasks.pop(key), self._scenes.pop(key)))  # also when it never began
        return key

    async def result(self, key: str) -> str:
        """What it says at its end; "" when nothing of that key runs."""
        task = self._tasks.get(key)
        return "" if task is None else await asyncio.shield(task)

    async def cancel(self, key: str = "") -> None:
        """That one, or all of them."""
        tasks = [task for name, task in self._tasks.items() if key in ("", name)]
        for name, scene in self._scenes.items():
            if key in ("", name):
                scene.stop()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._house.limits.interrupt)

    async def idle(self) -> None:
        """Until nothing runs on the side."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def close(self) -> None:
        self.ready = False
        await self.cancel()

    async def _work(self, prompt: str, scene: Scene) -> str:
        tools = ToolSet(self._tools.box, only=self._tools.filter, background=True)
        run = Run(self._house, scene, Conversation(), tools, most=self._house.limits.background_steps, ids="background-")
        try:
            run.begin(Prompt(prompt))
            text = (await run.play()).text
        except SeraiError as error:
            text = f"it failed: {error}"
        except Exception as error:
            log.exception("a background run failed")
            text = f"it failed: {type(error).__name__}: {error}"
        said = f"Background task: {prompt}\n\n{text.strip() or '(background task produced no output)'}"
        self._tell(said)
        return said
