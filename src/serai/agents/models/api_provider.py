"""What the providers over an SDK share: one client, one request, one stream, and its end in every case.

The SDK makes the request, sets its headers and reads its errors. The events are decoded here: its typed ones cost 40 to 200
microseconds each, ours 3 to 8, and its decoder holds a line of any length (measured with `anthropic` 2.8 and `openai` 3.49).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from serai.agents.models.api_mapping import Json, StreamDecoder
from serai.agents.models.endpoint_errors import EndpointErrors
from serai.agents.models.http_client import SseDecoder, checked, http_client, is_compressed, secrets_in
from serai.errors import BadSettings, Closed, ModelFailed, NoModel
from serai.limits import Limits
from serai.model.provider import Chunk, Completion, Model, ModelRequest

if TYPE_CHECKING:
    import httpx2

_REST = 0.5  # seconds for the end of the stream behind the last event, so that the connection can be used again


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """Where a model is asked, and with what. `variable` names where the key comes from; the key itself is never shown.

    `base_url` has no password in it (`headers.address`), and `headers` can be sent (`headers.checked`).
    """

    model: Model = field(repr=False)  # its headers are as secret
    base_url: str
    limits: Limits
    variable: str = ""
    local: bool = False  # on this machine: no key is needed and no proxy is asked
    key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)  # where proxies and certificates are looked for

    def failures(self, model: Model, headers: Mapping[str, str]) -> EndpointErrors:
        secrets = {*secrets_in(self.key, self.headers), *secrets_in("", headers)}
        return EndpointErrors(model.key, self.limits, self.variable, tuple(sorted(secrets, key=len, reverse=True)))


class ApiProvider(ABC):
    """A `ModelProvider` over one endpoint. The SDK is imported and the client made when the first answer is wanted."""

    sdk: str
    path: str

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self.endpoint = endpoint
        self._client: Any = None
        self._closed = False

    async def models(self) -> Sequence[Model]:
        return (self.endpoint.model,)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Completion, None]:
        """Chunks, then one completion. Whatever ends it, also the consumer's leaving, gives the connection back or closes it."""
        headers = _headers(request)
        failures = self.endpoint.failures(request.model, headers)
        folding = self.folding(request, failures)
        caught: Exception
        try:
            response = await self._send(request, headers)
            try:
                if is_compressed(response):
                    raise failures.compressed()
                async with aclosing(_chunks(response, folding, self.endpoint.limits)) as chunks:
                    async for chunk in chunks:
                        yield chunk
            finally:
                await response.aclose()
            yield folding.answer.completion()
            return
        except (ModelFailed, BadSettings, Closed, NoModel):
            raise
        except Exception as error:
            caught = error
        # Out here, so that the SDK's error, whose request has the key, is not part of ours, not even when this fails.
        failure = failures.of(caught)
        del caught
        raise failure

    async def close(self) -> None:
        """Close the client and its connections. Any number of times."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @abstractmethod
    def folding(self, request: ModelRequest, failures: EndpointErrors) -> StreamDecoder:
        """How the events of this API are read."""

    @abstractmethod
    def body(self, request: ModelRequest) -> Json:
        """The request in the words of this API."""

    @abstractmethod
    def client(self, sdk: Any, options: Json) -> Any:
        """The SDK's own client, without what it has read from the process's environment."""

    async def _send(self, request: ModelRequest, headers: Mapping[str, str]) -> httpx2.Response:
        body = self.body(request)
        client = await self._opened()
        import httpx2  # the SDKs'

        response: httpx2.Response = await client.post(
            self.path,
            cast_to=httpx2.Response,
            body=body,
            stream=True,
            options={"headers": {"Accept": "text/event-stream", **headers}},
        )
        return response

    async def _opened(self) -> Any:
        if self._closed:
            raise Closed("the provider is closed", who=self.endpoint.model.key)
        if self._client is None:
            if self.sdk not in sys.modules:
                await asyncio.to_thread(_import, self.sdk)  # it takes a second, in which the loop has other things to do
                return await self._opened()  # somebody may have come in between
            client = self.client(_import(self.sdk), self._options())
            # Both SDKs add what `…_CUSTOM_HEADERS` of the process says, for whatever server: there may be tokens in it.
            client._custom_headers.clear()  # there is no other way, and without this attribute nothing is sent at all
            client._custom_headers.update(self.endpoint.headers)
            self._client = client
        return self._client

    def _options(self) -> Json:
        import httpx2

        endpoint, limits = self.endpoint, self.endpoint.limits
        return {
            "api_key": endpoint.key or "none",
            "base_url": endpoint.base_url,
            "max_retries": 0,  # the loop retries, and tells so (spec piglet 6.4)
            "timeout": httpx2.Timeout(limits.model_idle, connect=min(limits.model_connect, limits.model_idle)),
            "default_headers": dict(endpoint.headers),
            "http_client": http_client(endpoint.base_url, endpoint.environ, limits, local=endpoint.local),
        }


def _headers(request: ModelRequest) -> dict[str, str]:
    try:
        return checked({**request.model.headers, **request.options.headers})
    except ValueError as error:
        raise BadSettings(str(error), who=request.model.key, hint="look at the model's headers and at the options'") from None


def _import(name: str) -> Any:
    """The SDK, without the logging that it sets up by `ANTHROPIC_LOG` and the like: its details have headers and conversations."""
    own, http = logging.getLogger(name), logging.getLogger("httpx2")
    before = None if name in sys.modules else (own.level or logging.WARNING, http.level)
    try:
        module = import_module(name)
    except ImportError as error:
        raise NoModel(f"the package `{name}` cannot be imported: {error}", hint="pip install 'serai[models]'") from None
    if before is not None:
        own.setLevel(before[0])
        http.setLevel(before[1])
    return module


async def _chunks(response: httpx2.Response, folding: StreamDecoder, limits: Limits) -> AsyncGenerator[Chunk, None]:
    """The chunks of a stream until its answer is complete; one that ends before is an error."""
    events = SseDecoder(2 * limits.model_answer)  # escaped JSON is longer than what it says
    answer, take = folding.answer, folding.take
    pieces = response.aiter_raw()
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
