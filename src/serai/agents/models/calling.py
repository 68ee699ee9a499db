"""What the providers over an SDK share: one client, one request, one stream, and its end in every case.

The SDK makes the request, sets its headers and reads its errors. The events are decoded here: its typed ones cost 40 to 200
microseconds each, ours 3 to 8, and its decoder holds a line of any length (measured with `anthropic` 2.8 and `openai` 3.49).
"""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from serai.agents.models.failures import Failures, secrets_in
from serai.agents.models.folding import Folding
from serai.agents.models.sse import Events, EventTooLong
from serai.agents.models.wording import Json
from serai.errors import Closed, ModelFailed, NoModel
from serai.limits import Limits
from serai.model.provider import Chunk, Completion, Model, ModelRequest

if TYPE_CHECKING:
    import httpx2

__all__ = ["Endpoint", "SdkProvider"]

_REST = 0.5  # seconds for the end of the stream behind the last event, so that the connection can be used again


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a model is asked, and with what. `variable` names where the key comes from; the key itself is never shown."""

    model: Model
    base_url: str
    limits: Limits
    variable: str = ""
    local: bool = False  # on this machine: no key is needed and no proxy is asked
    key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def failures(self, model: Model) -> Failures:
        return Failures(model.key, self.limits, self.variable, tuple(secrets_in(self.key, self.headers)))


class SdkProvider(ABC):
    """A `ModelProvider` over one endpoint. The SDK is imported and the client made when the first answer is wanted."""

    sdk: str
    path: str

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._client: Any = None
        self._closed = False

    async def models(self) -> Sequence[Model]:
        return (self.endpoint.model,)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Completion, None]:
        """Chunks, then one completion. Whatever ends it, also the consumer's leaving, gives the connection back or closes it."""
        failures = self.endpoint.failures(request.model)
        folding = self.folding(request, failures)
        failure: ModelFailed
        try:
            response = await self._send(request)
            try:
                async with aclosing(_chunks(response, folding, self.endpoint.limits)) as chunks:
                    async for chunk in chunks:
                        yield chunk
            finally:
                await response.aclose()
            yield folding.answer.completion()
            return
        except (ModelFailed, Closed, NoModel):
            raise
        except EventTooLong:
            failure = failures.too_much()
        except ValueError as error:  # no JSON, or no such event: msgspec's are ValueErrors
            failure = failures.not_understood(str(error))
        except Exception as error:
            failure = failures.of(error)
        raise failure  # out here, so that the SDK's error, whose request has the key, is not part of ours

    async def close(self) -> None:
        """Close the client and its connections. Any number of times."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @abstractmethod
    def folding(self, request: ModelRequest, failures: Failures) -> Folding:
        """How the events of this API are read."""

    @abstractmethod
    def body(self, request: ModelRequest) -> Json:
        """The request in the words of this API."""

    @abstractmethod
    def client(self, sdk: Any, options: Json) -> Any:
        """The SDK's own client."""

    async def _send(self, request: ModelRequest) -> httpx2.Response:
        body = self.body(request)
        client = await self._opened()
        import httpx2  # the SDKs'

        response: httpx2.Response = await client.post(
            self.path,
            cast_to=httpx2.Response,
            body=body,
            stream=True,
            options={"headers": {"Accept": "text/event-stream", **request.model.headers, **request.options.headers}},
        )
        return response

    async def _opened(self) -> Any:
        if self._closed:
            raise Closed("the provider is closed", who=self.endpoint.model.key)
        if self._client is None:
            if self.sdk not in sys.modules:
                await asyncio.to_thread(_import, self.sdk)  # it takes a second, in which the loop has other things to do
                return await self._opened()  # somebody may have come in between
            sdk = _import(self.sdk)
            self._client = self.client(sdk, self._options(sdk))
        return self._client

    def _options(self, sdk: Any) -> Json:
        import httpx2

        idle = self.endpoint.limits.model_idle
        options: Json = {
            "api_key": self.endpoint.key or "none",
            "base_url": self.endpoint.base_url,
            "max_retries": 0,  # the loop retries, and tells so (spec piglet 6.4)
            "timeout": httpx2.Timeout(idle, connect=min(self.endpoint.limits.model_connect, idle)),
            "default_headers": dict(self.endpoint.headers),
        }
        if self.endpoint.local:
            options["http_client"] = sdk.DefaultAsyncHttpxClient(trust_env=False)
        return options


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise NoModel(f"the package `{name}` cannot be imported: {error}", hint="pip install 'serai[models]'") from None


async def _chunks(response: httpx2.Response, folding: Folding, limits: Limits) -> AsyncGenerator[Chunk, None]:
    """The chunks of a stream until its answer is complete; one that ends before is an error."""
    events = Events(2 * limits.model_answer)  # escaped JSON is longer than what it says
    answer, take = folding.answer, folding.take
    pieces = response.aiter_bytes()
    try:
        async for piece in pieces:
            for data in events.feed(piece):
                take(data)
                for chunk in answer.fresh:
                    yield chunk
                answer.fresh.clear()
            if answer.complete:
                break
        else:
            for data in events.end():
                take(data)
                for chunk in answer.fresh:
                    yield chunk
                answer.fresh.clear()
            answer.complete |= answer.finished
    except Exception:
        if not answer.complete:  # what breaks behind the end breaks nothing
            raise
    if not answer.complete:
        raise answer.failures.broke_off()
    await _read_out(pieces)


async def _read_out(pieces: AsyncIterator[bytes]) -> None:
    """Read to the end of the stream, which is at hand: a connection that is read out is used again."""
    try:
        async with asyncio.timeout(_REST):
            async for _ in pieces:
                pass
    except Exception:  # it is closed instead; the answer is here
        return
