"""One answer of a model: streamed as it comes, tried again when the provider is overloaded, bounded in time and size."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from serai.agents.stage import Stage
from serai.errors import LimitHit, ModelFailed, SeraiError
from serai.limits import Limits
from serai.model.events import Event, Retrying, Text, Thinking, ToolInput
from serai.model.provider import Chunk, Completion, ModelProvider, ModelRequest

__all__ = ["Answering"]

log = logging.getLogger("serai.agents")

_EVENTS: dict[str, type[Text | Thinking | ToolInput]] = {"text": Text, "thinking": Thinking, "tool_input": ToolInput}
_LOOK = 1.0  # seconds: the deadline of a silent model is moved this often, not at every piece
# What is kept of an answer that was too long, in characters: the next call of the model must not suffer from it.
_BEGINNING = 64 * 1024


class Answering:
    """Gets one answer. What had come of it when it failed or was cancelled is in `text` and `thinking`."""

    def __init__(self, stage: Stage, limits: Limits, *, hold_text: bool = False) -> None:
        self._stage = stage
        self._limits = limits
        self._hold = hold_text
        self.held: list[Event] = []  # text that waits for the interceptors
        self._said: dict[str, list[str]] = {}

    @property
    def text(self) -> str:
        return "".join(self._said.get("text", ()))[:_BEGINNING]

    @property
    def thinking(self) -> str:
        return "".join(self._said.get("thinking", ()))[:_BEGINNING]

    async def get(self, provider: ModelProvider, request: ModelRequest) -> Completion:
        """Raises `ModelFailed`, the last one when all attempts failed."""
        most = self._limits.model_attempts
        for attempt in range(1, most + 1):
            try:
                return await self._attempt(provider, request)
            except ModelFailed as error:
                wait = self._wait(error, attempt)
                if attempt == most or wait is None:
                    raise
                self._stage.emit(Retrying(attempt=attempt, most=most, wait=wait, error=str(error)))
                await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _wait(self, error: ModelFailed, attempt: int) -> float | None:
        """Before the next attempt; None when there is no point in one."""
        if not error.temporary:
            return None
        if error.wait is None:
            return min(self._limits.model_wait * float(2 ** (attempt - 1)), self._limits.model_wait_most)
        return error.wait if error.wait <= self._limits.model_wait_told else None

    async def _attempt(self, provider: ModelProvider, request: ModelRequest) -> Completion:
        self._said = {}
        self.held.clear()
        key = request.model.key
        try:
            async with aclosing(cast("Any", provider.stream(request))) as stream:
                return await self._read(stream, key)
        except SeraiError:
            raise
        except Exception as error:  # a provider's defect
            log.exception("the provider of %s failed", key)
            raise ModelFailed(f"its provider failed: {type(error).__name__}: {error}", who=key) from error

    async def _read(self, stream: AsyncIterator[Chunk | Completion], key: str) -> Completion:
        idle, most, size = self._limits.model_idle, self._limits.model_answer, 0
        stage = self._stage
        loop = asyncio.get_running_loop()
        moved = loop.time()
        try:
            async with asyncio.timeout_at(moved + idle) as deadline:
                async for piece in stream:
                    if isinstance(piece, Completion):
                        return piece
                    size += len(piece.text)
                    if size > most:
                        raise ModelFailed("its answer is too long", who=key, limit=LimitHit("model_answer", most))
                    self._take(piece)
                    if (turn := stage.turn) is not None and turn.crowded:
                        deadline.reschedule(None)  # whoever reads us is slow, not the model
                        await stage.room()
                        moved = 0.0
                    if (now := loop.time()) - moved > _LOOK:
                        deadline.reschedule(now + idle)
                        moved = now
        except TimeoutError:
            limit = LimitHit("model_idle", idle)
            raise ModelFailed("it has said nothing for too long", who=key, temporary=True, limit=limit) from None
        raise ModelFailed("its answer has no end", who=key, temporary=True)

    def _take(self, piece: Chunk) -> None:
        self._said.setdefault(piece.what, []).append(piece.text)
        event = _EVENTS[piece.what](text=piece.text, index=piece.index)
        if self._hold and piece.what == "text":
            self.held.append(event)
        else:
            self._stage.emit(event)
