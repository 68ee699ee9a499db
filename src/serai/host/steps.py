"""One turn as guests see it (spec zot 4.3): events and interceptors around every call of the model, in this order.

    step started → turn_start interceptors → the model streams → assistant_message interceptors → message → a tool called for each
    call → step ended → then, call by call: tool_call interceptors, gate, owner

Whoever runs a model (the resident, through the app) goes through here, so that guests see the same whatever the model is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from serai.model.contributions import Refuse, Rewrite
from serai.model.events import Event, Message, StepEnded, StepStarted, Stop, Text, ToolCalled
from serai.model.tools import Block, TextBlock, ToolCall, ToolResult

if TYPE_CHECKING:
    from serai.host.host import Host
    from serai.host.judging import Gate

__all__ = ["Prompts", "Steps"]

log = logging.getLogger("serai.host")

# The defaults of spec zot 4.4 are in the dialect; this one is for whoever else gives no reason.
_BLOCKED = "the turn was blocked"


class Steps:
    """The steps of one turn. `show` is who sees the text: a surface, a store.

    While somebody intercepts messages, streamed text is held back until they have answered: what was blocked or replaced is never
    seen (spec zot 4.4, ours).
    """

    def __init__(self, host: Host, show: Callable[[Event], None]) -> None:
        self._host = host
        self._show = show
        self._held: list[Text] = []
        self.step = 0

    async def start(self) -> Refuse | None:
        """A call of the model is about to be made; None when it may. Asked at every step, not once per prompt."""
        self.step += 1
        self._tell(StepStarted(step=self.step))
        verdict = await self._host.intercept("turn_start", self.step)
        if not isinstance(verdict, Refuse):
            return None
        refused = verdict if verdict.reason else Refuse(_BLOCKED)
        self._end("error", refused.reason)
        return refused

    def text(self, piece: Text) -> None:
        """The model says something."""
        if self._host.table.chains["assistant_message"]:
            self._held.append(piece)
        else:
            self._show(piece)

    async def message(self, message: Message, calls: Sequence[ToolCall] = (), stop: Stop = "end") -> Message | None:
        """The model is done. The message as it may be seen, or None when it is suppressed; its calls run in any case.

        The caller's transcript keeps the original. A message without text is nobody's to intercept.
        """
        shown: Message | None = message
        if message.text:
            verdict = await self._host.intercept("assistant_message", message.text)
            if isinstance(verdict, Refuse):
                shown = None
            elif isinstance(verdict, Rewrite):
                shown = msgspec.structs.replace(message, content=_replaced(message.content, verdict.value))
        self._release(shown if shown is message else None)
        if shown is not None:
            self._show(shown)
            self._host.tell(shown)
        for call in calls:
            self._tell(ToolCalled(call=call))
        self._end(stop)
        return shown

    def failed(self, error: str, stop: Stop = "error") -> None:
        """The model failed, or the person has stopped it (`aborted`)."""
        self._held.clear()
        self._end(stop, error)

    async def run(self, calls: Sequence[ToolCall], gate: Gate | None = None) -> list[ToolResult]:
        """The calls of one message, one after the other in the order given (spec zot 4.1)."""
        return [await self._host.call_tool(call, gate=gate) for call in calls]

    def _release(self, message: Message | None) -> None:
        """Text that was held is shown after all, or never: a replacement is shown whole."""
        held, self._held = self._held, []
        if message is not None:
            for piece in held:
                self._show(piece)

    def _end(self, stop: Stop, error: str = "") -> None:
        self._tell(StepEnded(step=self.step, stop=stop, error=error or ("context canceled" if stop == "aborted" else "")))

    def _tell(self, event: Event) -> None:
        self._show(event)
        self._host.tell(event)


class Prompts:
    """Prompts wait for each other: one turn at a time on a transcript, whoever wants another (spec zot 4.2, ours)."""

    def __init__(self, turn: Callable[[str], Awaitable[object]]) -> None:
        self._turn = turn
        self._waiting: deque[str] = deque()
        self._working: asyncio.Task[None] | None = None

    def submit(self, text: str) -> None:
        """Begin a turn, or queue it behind the one that runs. Blank text is nothing."""
        if not text.strip():
            return
        self._waiting.append(text)
        if self._working is None or self._working.done():
            self._working = asyncio.get_running_loop().create_task(self._work(), name="turns")

    @property
    def busy(self) -> bool:
        return self._working is not None and not self._working.done()

    async def idle(self) -> None:
        """Wait until nothing runs and nothing waits; raises what the first turn raised that failed."""
        if self._working is not None:
            await asyncio.shield(self._working)

    async def _work(self) -> None:
        failed: Exception | None = None
        while self._waiting:
            try:
                await self._turn(self._waiting.popleft())
            except Exception as error:  # those that wait do not suffer for it
                log.error("a turn failed: %s", error)
                failed = failed or error
        if failed is not None:
            raise failed


def _replaced(content: tuple[Block, ...], text: str) -> tuple[Block, ...]:
    """One text block in the place of the first; what is no text stays."""
    first = next(place for place, block in enumerate(content) if isinstance(block, TextBlock))
    after = (block for block in content[first:] if not isinstance(block, TextBlock))
    return (*content[:first], TextBlock(text), *after)
