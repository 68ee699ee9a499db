"""Interceptors that do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from serai.agents.driver import JudgeCall, NeedsApproval
from serai.model.approvals import Allow, Deny
from serai.model.events import Message
from serai.model.tools import ToolCall


class ScriptedInterceptors:
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

    async def filter_message(self, message: Message) -> Message | None:
        self.messages.append(message.text)
        self.asked.set()
        if self._waits:
            await self.go.wait()
        return self._show(message)


def make_judge(*verdicts: Any, seen: list[ToolCall] | None = None) -> JudgeCall:
    left = list(verdicts)

    async def judge(call: ToolCall) -> Allow | Deny | NeedsApproval:
        if seen is not None:
            seen.append(call)
        verdict = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(verdict, BaseException):
            raise verdict
        if callable(verdict):
            verdict = verdict(call)
        assert isinstance(verdict, Allow | Deny | NeedsApproval)
        return verdict

    return judge
