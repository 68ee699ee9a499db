"""Interceptors that do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from serai.model.events import Message


class Guests:
    """`refuse` is why no step may begin; `show` makes of a message what is seen of it; `waits`: only once `go` is set."""

    hold_text = True

    def __init__(
        self,
        *,
        refuse: str | BaseException = "",
        show: Callable[[Message], Message | None] = lambda message: message,
        waits: bool = False,
    ) -> None:
        self._refuse = refuse
        self._show = show
        self._waits = waits
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.messages: list[str] = []
        self.steps: list[int] = []

    async def before_step(self, step: int) -> str:
        self.steps.append(step)
        if isinstance(self._refuse, BaseException):
            raise self._refuse
        return self._refuse

    async def message(self, message: Message) -> Message | None:
        self.messages.append(message.text)
        self.asked.set()
        if self._waits:
            await self.go.wait()
        return self._show(message)
