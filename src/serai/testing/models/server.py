"""The server of the fakes: takes requests, finds their API, sends what that makes of them, and shows what it saw."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

import msgspec

from serai.errors import Closed
from serai.limits import MIB, Limits
from serai.model.provider import Cost, Model
from serai.testing.models.connection import Connection, Owner, Received
from serai.testing.models.exchange import Exchange, House, decoded
from serai.testing.models.faults import NONE, Fault
from serai.testing.models.routes import APIS, KEY_HEADERS, MODELS

__all__ = ["FakeModels", "Seen"]

_CONNECTIONS = 100
_SEEN = 1000
_SEEN_BYTES = 256 * MIB
_MASK = "***"
_KEY = re.compile(r"(?<=\bkey=)[^&]*")  # Google's clients put it there


class Seen(msgspec.Struct, frozen=True):
    """A request as it was received; the value of a key is not kept. `body` is None where it was no JSON."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any
    size: int = 0


class FakeModels:
    """Fakes of the model APIs on loopback.

        async with FakeModels() as server:
            client = anthropic.AsyncAnthropic(base_url=server.url, api_key="any")

    The prompt says what is answered (`serai.agents.models.model_script`); `faults` say what goes wrong besides, one per request.
    `key`: the only one that is taken. `window`: the most tokens that a request may have; 0 is no limit.
    """

    def __init__(
        self, *, key: str = "", port: int = 0, faults: Iterable[Fault] = (), window: int = 0, limits: Limits | None = None
    ) -> None:
        self._house = House(key, window, limits or Limits())
        self._port = port
        self._faults = deque(faults)
        self._listener: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._watchers: set[asyncio.Event] = set()
        self._seen_bytes = 0
        self.requests: deque[Seen] = deque()
        self.open = 0  # answers under way

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._connection, "127.0.0.1", self._port)
        self._port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """End every answer and connection. Again does no harm."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        for connection in self._connections:
            connection.transport.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.until(lambda: not self._connections)

    @property
    def url(self) -> str:
        if self._listener is None:
            raise Closed("the fake models are not running: use `async with`", who="fake models")
        return f"http://127.0.0.1:{self._port}"

    @property
    def connections(self) -> int:
        return len(self._connections)

    def env(self) -> dict[str, str]:
        """What SDKs and agent programs read."""
        key = self._house.key or "fake-key"
        anthropic = {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": key}
        return {**anthropic, "OPENAI_BASE_URL": f"{self.url}/v1", "OPENAI_API_KEY": key}

    def model(self, api: str = "anthropic") -> Model:
        """A model of one of the APIs: `anthropic`, `openai`, `openai-responses`."""
        if api not in (known := [each.name for each in APIS]):
            raise ValueError(f"no API {api!r}; there are: {', '.join(known)}")
        is_anthropic = api == "anthropic"
        return Model(
            MODELS[0],
            name="Fake",
            api=api,
            provider="anthropic" if is_anthropic else "openai",
            base_url=self.url if is_anthropic else f"{self.url}/v1",
            reasoning=True,
            context_window=self._house.window or 200_000,
            max_tokens=8192,
            cost=Cost(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75),
        )

    def fault(self, *faults: Fault) -> None:
        """What goes wrong with the next requests, one each, behind those that still wait."""
        self._faults.extend(faults)

    async def until(self, condition: Callable[[], bool], *, timeout: float = 10.0) -> None:
        """Wait for something that shows here: `requests`, `open`, `connections`."""
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    changed.clear()
                    await changed.wait()
        finally:
            self._watchers.discard(changed)

    def _changed(self) -> None:
        for watcher in self._watchers:
            watcher.set()

    def _connection(self) -> Connection:
        return Connection(Owner(self._came, self._left, self._answer), self._house.limits)

    def _came(self, connection: Connection) -> None:
        self._connections.add(connection)
        if self._listener is None or len(self._connections) > _CONNECTIONS:
            connection.transport.abort()
        elif self._faults and self._faults[0].kind == "refuse":
            self._faults.popleft()
            connection.reset()
        self._changed()

    def _left(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._changed()

    def _see(self, received: Received, body: Any) -> None:
        path, _, query = received.target.partition("?")
        headers = {name: _MASK if name in KEY_HEADERS else value for name, value in received.headers.items()}
        query = _KEY.sub(_MASK, query)
        self.requests.append(Seen(received.method, path, query, headers, body, len(received.body)))
        self._seen_bytes += len(received.body)
        while len(self.requests) > _SEEN or (self._seen_bytes > _SEEN_BYTES and len(self.requests) > 1):
            self._seen_bytes -= self.requests.popleft().size
        self._changed()

    async def _answer(self, connection: Connection, received: Received) -> None:
        body = decoded(received.body)
        self._see(received, body)
        fault = self._faults.popleft() if self._faults else NONE
        self.open += 1
        self._changed()
        try:
            await Exchange(self._house, connection, received, body, fault).run()
        finally:
            self.open -= 1
            self._changed()
