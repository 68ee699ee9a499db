"""One answer of a model: streamed as it comes, tried again when the provider is overloaded, bounded in time and size."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from serai.agents.models.http_client import clean_words
from serai.agents.resident.run_context import RunOutput
from serai.errors import LimitHit, ModelFailed, SeraiError
from serai.limits import AgentLimits
from serai.model.events import Event, Retrying, Text, Thinking, ToolInput
from serai.model.provider import Chunk, Completion, ModelMessage, ModelProvider, ModelRequest
from serai.model.tools import TextBlock

log = logging.getLogger("serai.agents")

_EVENTS: dict[str, type[Text | Thinking | ToolInput]] = {"text": Text, "thinking": Thinking, "tool_input": ToolInput}
_LOOK = 1.0  # seconds: the deadline of a silent model is moved this often, not at every piece
# A provider that has it all at hand would keep the loop: after so many seconds the others get their turn (design rule 3). Three
# rounds of it: in the first a wire is seen to be readable, in the second it is read, in the third whoever waited for it goes on.
_SLICE, _ROUNDS = 0.0001, 3
# What is kept of an answer that was too long, in characters: the next call of the model must not suffer from it.
_BEGINNING = 64 * 1024


async def yield_to_loop() -> None:
    """Let the others of the loop have their turn."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


class ModelCall:
    """Gets one answer. `partial` is what had come of it when it failed or was cancelled."""

    def __init__(self, output: RunOutput, limits: AgentLimits, *, hold_text: bool = False) -> None:
        self._output = output
        self._limits = limits
        self._hold = hold_text
        self.held: list[Event] = []  # text that waits for the interceptors
        self._said: dict[str, list[str]] = {}

    @property
    def partial(self) -> ModelMessage:
        """Without its calls, which were not all said. Text that was held back was never said at all."""
        text = "" if self._hold else self._join_beginning("text")
        return ModelMessage("assistant", (TextBlock(text),) if text else (), thinking=self._join_beginning("thinking"))

    def _join_beginning(self, what: str) -> str:
        return "".join(self._said.get(what, ()))[:_BEGINNING]

    async def get(self, provider: ModelProvider, request: ModelRequest) -> Completion:
        """Raises `ModelFailed`, the last one when all attempts failed."""
        most = self._limits.model_attempts
        for attempt in range(1, most + 1):
            self._output.raise_if_stopped()
            try:
                return await self._attempt(provider, request)
            except ModelFailed as error:
                wait = self._get_wait(error, attempt)
                if attempt == most or wait is None:
                    raise
                self._output.emit(Retrying(attempt=attempt, most=most, wait=wait, error=str(error)))
                await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _get_wait(self, error: ModelFailed, attempt: int) -> float | None:
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
            stream = provider.stream(request)
            try:
                return await self._read(stream, key)
            finally:
                await self._close(stream, key)
        except SeraiError:
            raise
        except Exception as error:  # a provider's defect
            log.exception("the provider of %s failed", key)
            raise ModelFailed(f"its provider failed: {type(error).__name__}: {clean_words(str(error))}", who=key) from error

    async def _close(self, stream: object, key: str) -> None:
        """An answer that is here is not lost because its stream does not close."""
        if (close := getattr(stream, "aclose", None)) is None:
            return
        try:
            async with asyncio.timeout(self._limits.interrupt / 4):
                await close()
        except Exception as error:
            log.warning("the stream of %s could not be closed: %r", key, error)

    async def _read(self, stream: AsyncIterator[Chunk | Completion], key: str) -> Completion:
        idle, most, size = self._limits.model_idle, self._limits.model_answer, 0
        output = self._output
        loop = asyncio.get_running_loop()
        moved = breathed = loop.time()
        deadline = asyncio.timeout_at(moved + idle)
        try:
            async with deadline:
                async for piece in stream:
                    size = size + len(piece.text) if isinstance(piece, Chunk) else _count_characters(piece.message)
                    if size > most:
                        raise ModelFailed("its answer is too long", who=key, limit=LimitHit("model_answer", most))
                    if isinstance(piece, Completion):
                        return self._check_calls(piece, key)
                    self._add_piece(piece)
                    if output.crowded:
                        deadline.reschedule(None)  # whoever reads us is slow, not the model
                        await output.wait_for_room()
                        moved = 0.0
                    if (now := loop.time()) - breathed > _SLICE:
                        await yield_to_loop()
                        breathed = loop.time()
                    if now - moved > _LOOK:
                        deadline.reschedule(now + idle)
                        moved = now
        except TimeoutError:
            if not deadline.expired():  # the provider's own
                raise
            limit = LimitHit("model_idle", idle)
            raise ModelFailed("it has said nothing for too long", who=key, temporary=True, limit=limit) from None
        raise ModelFailed("its answer has no end", who=key, temporary=True)

    def _check_calls(self, answer: Completion, key: str) -> Completion:
        if len(answer.message.calls) > self._limits.model_calls:
            limit = LimitHit("model_calls", self._limits.model_calls)
            raise ModelFailed("it calls too many tools at once", who=key, limit=limit)
        return answer

    def _add_piece(self, piece: Chunk) -> None:
        self._said.setdefault(piece.what, []).append(piece.text)
        event = _EVENTS[piece.what](text=piece.text, index=piece.index)
        if self._hold and piece.what == "text":
            self.held.append(event)
        else:
            self._output.emit(event)


def _count_characters(message: ModelMessage) -> int:
    """What a provider says at once must not be longer than what it says in pieces."""
    return len(message.thinking) + sum(len(block.text) for block in message.content if isinstance(block, TextBlock))
