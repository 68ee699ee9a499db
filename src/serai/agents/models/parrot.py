"""Parrot: the model that needs no key and no network. It repeats what it is told, and does what a script tells it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import msgspec

from serai.agents.models import model_script
from serai.agents.models.api_mapping import AnswerBuilder, AnswerPart, text_of
from serai.agents.models.catalogue import PARROT, Catalogue
from serai.agents.models.endpoint_errors import EndpointErrors
from serai.agents.models.model_script import ScriptMessage
from serai.errors import Closed
from serai.limits import Limits
from serai.model.events import Stop, Usage
from serai.model.provider import Chunk, Completion, Model, ModelRequest

_STOPS: dict[str, Stop] = {"length": "length", "max_tokens": "length", "end": "end", "stop": "end", "tool_use": "tool_use"}
_BREATH = 64  # chunks; then others get their turn


class Parrot:
    """A `ModelProvider` that answers by the script language (see `script`). The same request has the same answer."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._closed = False

    async def models(self) -> Sequence[Model]:
        model = Catalogue.built_in().get(PARROT)
        assert model is not None
        return (model,)

    async def close(self) -> None:
        self._closed = True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Completion, None]:
        if self._closed:
            raise Closed("the provider is closed", who=request.model.key)
        playing = _Playing(request, EndpointErrors(request.model.key, self._limits))
        number = 0
        async for chunk in playing.chunks():
            yield chunk
            number += 1
            if number % _BREATH == 0:
                await asyncio.sleep(0)
        yield playing.completion()


class _Playing:
    """One step of a script, played."""

    def __init__(self, request: ModelRequest, failures: EndpointErrors) -> None:
        self._failures = failures
        self._answer = AnswerBuilder(request, failures)
        said = [ScriptMessage(message.role, text_of(message.content)) for message in request.messages]
        self._script = model_script.answer(said, request.system)
        results = [message.call_id for message in request.messages]
        self._seed = msgspec.json.encode([request.model.key, request.system, said, results])
        self._heard = sum(len(one.text) for one in said) + len(request.system)

    async def chunks(self) -> AsyncIterator[Chunk]:
        failure = self._script.step.failure
        if failure is not None:
            headers = {"retry-after": failure.retry_after} if failure.retry_after else {}
            raise self._failures.status(failure.status, headers, failure.text or "as the script says")
        for directive in self._script.step.each():
            match directive:
                case model_script.Say(text):
                    self._add(self._answer.latest("text"), self._script.filled(text))
                case model_script.Think(text):
                    self._add(self._answer.latest("thinking"), text)
                case model_script.Call(name, arguments):
                    self._add(self._answer.begin("tool_input", id=self._id(), name=name), arguments)
                case model_script.Wait(seconds):
                    await self._wait(seconds)
                case model_script.Hang():
                    await self._wait(float("inf"))
                case model_script.Cut():
                    raise self._failures.broke_off()
                case model_script.Malformed():
                    raise self._failures.not_understood("as the script says")
                case model_script.Stop(reason):
                    self._answer.stop = _STOPS.get(reason, "error")
                    self._answer.reason = reason if self._answer.stop == "error" else ""
                case model_script.Fail():  # told above
                    pass
            for chunk in self._answer.fresh:
                yield chunk
            self._answer.fresh.clear()

    def completion(self) -> Completion:
        said = sum(len(piece) for part in self._answer.parts for piece in part.pieces)
        completion = self._answer.completion()
        # Four characters are about a token. It costs nothing, and that is known.
        return msgspec.structs.replace(completion, usage=Usage(-(-self._heard // 4), -(-said // 4), cost_usd=0.0))

    def _add(self, part: AnswerPart, text: str) -> None:
        for piece in model_script.pieces(text):
            self._answer.add(part, piece)

    def _id(self) -> str:
        """Like a real one, and the same for the same request."""
        number = len(self._answer.parts)
        return f"call_{hashlib.sha256(self._seed + b'%d' % number).hexdigest()[:24]}"

    async def _wait(self, seconds: float) -> None:
        if seconds <= self._failures.limits.model_idle:
            await asyncio.sleep(seconds)
            return
        await asyncio.sleep(self._failures.limits.model_idle)
        raise self._failures.idle()
