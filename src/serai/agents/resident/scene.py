"""A run's side of the stage. It is shut when the run is over: what comes of it afterwards is nobody's business (FIX-22)."""

from __future__ import annotations

import asyncio
from typing import Any

from serai.agents.stage import Stage
from serai.model.approvals import Approval, Decision, Deny
from serai.model.events import Event
from serai.model.provider import ModelMessage

__all__ = ["Scene", "forget"]


class Scene:
    """What a run may say and ask. Without a stage nobody hears it, and nobody is there to approve anything."""

    def __init__(self, stage: Stage | None = None) -> None:
        self._stage = stage
        self._requests = 0
        self._stopped = False

    def stop(self) -> None:
        """Nothing new is begun; how it ends is still told."""
        self._stopped = True

    def shut(self) -> None:
        """Nothing is told any more."""
        self._stopped = True
        self._stage = None

    def check(self) -> None:
        """Before something is begun. Some swallow their cancellation: then this is it."""
        if self._stopped:
            raise asyncio.CancelledError

    def emit(self, event: Event) -> None:
        if self._stage is not None:
            self._stage.emit(event)

    async def ask(self, approval: Approval) -> Decision:
        return Deny("nobody is there to approve it") if self._stage is None else await self._stage.ask(approval)

    def new_id(self, kind: str) -> str:
        self._requests += 1
        return f"{kind}-{self._requests}" if self._stage is None else self._stage.new_id(kind)

    @property
    def crowded(self) -> bool:
        """Whoever reads the turn is far behind."""
        return self._stage is not None and self._stage.turn is not None and self._stage.turn.crowded

    async def room(self) -> None:
        """Wait until they have caught up."""
        if self._stage is not None:
            await self._stage.room()
        await asyncio.sleep(0)

    def answered(self, message: ModelMessage, model: str) -> None:
        """All that the model said, for who keeps the conversation: what is shown of it may be less."""
        if self._stage is not None:
            self._stage.answered(message, model)

    def compacted(self, messages: tuple[ModelMessage, ...], tokens: int) -> None:
        if self._stage is not None:
            self._stage.compacted(messages, tokens)


def forget(left: asyncio.Future[Any]) -> None:
    """How something ends that was left behind: nobody wants to know any more."""
    if not left.cancelled():
        left.exception()
