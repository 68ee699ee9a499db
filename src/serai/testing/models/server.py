"""The server of the fakes: takes requests, finds their API, sends the scripted answer with its faults, and shows what it saw.

One table says which request is for which API. A further API is a module and a row.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import msgspec

from serai.agents.models.parrot import Cut, Fail, Hang, Malformed, Wait
from serai.errors import Closed
from serai.limits import KIB, MIB, Limits
from serai.model.provider import Cost, Model
from serai.testing.models import chat_api, messages_api, reply, responses_api
from serai.testing.models.connection import Connection, Headers, Owner, Received

APIS = (messages_api.API, chat_api.API, responses_api.API)
MODELS = ("fake-1", "fake-small-1")

# Headers that carry a key: where it is looked for, and what is never kept.
KEY_HEADERS = ("x-api-key", "authorization", "x-goog-api-key", "api-key")


class Route(NamedTuple):
    api: reply.Api
    what: Literal["answer", "count", "models"]


_ROUTES: dict[tuple[str, str], Route] = {
    ("POST", "/v1/messages"): Route(messages_api.API, "answer"),
    ("POST", "/v1/messages/count_tokens"): Route(messages_api.API, "count"),
    ("POST", "/v1/chat/completions"): Route(chat_api.API, "answer"),
    ("POST", "/v1/responses"): Route(responses_api.API, "answer"),
    ("GET", "/v1/models"): Route(chat_api.API, "models"),
}


def find_route(method: str, path: str, headers: Mapping[str, str]) -> Route | None:
    """Two APIs list their models at one path: Anthropic's clients tell its version."""
    found = _ROUTES.get((method, path))
    if found is not None and found.what == "models" and "anthropic-version" in headers:
        return Route(messages_api.API, "models")
    return found


def guess_api(path: str, headers: Mapping[str, str]) -> reply.Api:
    """Who complains about a request that nobody answers."""
    return messages_api.API if "anthropic-version" in headers or path.startswith("/v1/messages") else chat_api.API


def has_key(headers: Mapping[str, str], key: str) -> bool:
    said = [headers.get(name, "").removeprefix("Bearer ").strip() for name in KEY_HEADERS]
    return any(hmac.compare_digest(one.encode(), key.encode()) for one in said)


_BATCH = 64 * KIB  # of events in one write
_STREAM: Headers = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]


class ServerContext(NamedTuple):
    """What a server asks of every request: its key, the most tokens it may have, the limits."""

    key: str
    window: int
    limits: Limits


def decode_body(body: bytes | bytearray) -> Any:
    """The JSON of a request; None where it is none."""
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None


class Exchange:
    def __init__(self, context: ServerContext, connection: Connection, received: Received, body: Any, fault: reply.Fault) -> None:
        self._context = context
        self._connection = connection
        self._received = received
        self._body = body
        self._fault = fault
        self._path = received.target.partition("?")[0]
        self._route = find_route(received.method, self._path, received.headers)
        self._api = self._route.api if self._route is not None else guess_api(self._path, received.headers)
        self._digest = hashlib.sha256(self._path.encode() + b"\n" + received.body).hexdigest()
        self._id = f"req_{self._digest[:24]}"
        self._headers: Headers = [(self._api.request_id, self._id)]

    async def run(self) -> None:
        match self._fault.kind:
            case "refuse":
                self._connection.reset()
            case "close":
                self._connection.cut()
            case "endless":
                await self._send_endless()
            case "status":
                self._headers += self._fault.headers
                await self._fail(Fail(self._fault.status, self._fault.retry_after), body=self._fault.body)
            case _:
                await self._reply()

    async def _reply(self) -> None:
        context, headers = self._context, self._received.headers
        if self._route is None:
            error = reply.ApiRefusal(f"there is no {self._received.method} {self._path} here")
            await self._fail(Fail(404, text=error.message), error)
        elif context.key and not has_key(headers, context.key):
            await self._fail(
                Fail(401, text="invalid x-api-key" if self._api is messages_api.API else "Incorrect API key provided.")
            )
        elif self._route.what == "models":
            listed = messages_api.list_models if self._api is messages_api.API else chat_api.list_models
            await self._respond(reply.dumps(listed(MODELS)))
        else:
            try:
                await self._fulfil()
            except reply.ApiRefusal as error:
                await self._fail(Fail(400, text=error.message), error)

    async def _fulfil(self) -> None:
        assert self._route is not None
        if not isinstance(self._body, dict):
            raise reply.ApiRefusal("The request body is not valid JSON, or no object.")
        raw = bytes(self._received.body)
        if self._route.what == "count":
            await self._respond(reply.dumps(messages_api.build_count(self._body, raw)))
            return
        asked = self._api.read(self._body, raw, self._digest)
        self._check_window(asked)
        answer = reply.build_reply(asked)
        if self._fault.kind == "huge":
            answer = reply.ScriptedReply(reply.make_huge_text(self._fault))
        if answer.failure is not None:
            await self._fail(answer.failure)
        elif asked.stream:
            await self._stream(asked, answer)
        else:
            await self._send_whole(asked, answer)

    def _check_window(self, asked: reply.NeutralRequest) -> None:
        most = self._context.window
        if not most or asked.tokens <= most:
            return
        if self._api is messages_api.API:
            raise reply.ApiRefusal(f"prompt is too long: {asked.tokens} tokens > {most} maximum")
        text = f"This model's maximum context length is {most} tokens. However, your messages resulted in {asked.tokens} tokens."
        raise reply.ApiRefusal(text, param="messages", code="context_length_exceeded")

    async def _fail(self, failure: Fail, why: reply.ApiRefusal | None = None, *, body: bytes | None = None) -> None:
        if failure.retry_after:
            self._headers.append(("retry-after", failure.retry_after))
        told = reply.dumps(self._api.error(failure.status, failure.text, self._id, why)) if body is None else body
        await self._respond(told, failure.status)

    async def _respond(self, body: bytes, status: int = 200, *, cut: bool = False) -> None:
        await self._connection.respond(status, [("content-type", "application/json"), *self._headers], body, cut=cut)

    async def _send_endless(self) -> None:
        self._connection.begin(self._headers, self._fault.status)
        while True:  # a client that leaves cancels us
            await self._connection.write(b"x" * _BATCH)

    async def _stream(self, asked: reply.NeutralRequest, answer: reply.ScriptedReply) -> None:
        fault = self._fault
        error = self._api.broken(fault.status, "", fault.after)
        events = reply.apply_fault(self._api.encoder(asked, answer.stop).encode(answer.pieces), fault, error)
        connection = self._connection
        connection.begin([*_STREAM, *self._headers])
        batch: list[bytes] = []
        size = 0
        for event in events:
            if isinstance(event, Malformed):
                event = self._api.malformed  # noqa: PLW2901
            if isinstance(event, bytes):
                batch.append(event)
                size += len(event)
                if size < _BATCH:
                    continue
            if batch:
                await connection.write(b"".join(batch))
                batch, size = [], 0
            if not isinstance(event, bytes) and not await self._apply_control(event):
                connection.cut()
                return
        if batch:
            await connection.write(b"".join(batch))
        connection.end()

    async def _apply_control(self, control: reply.Control) -> bool:
        """Do what stands between the events; False: the connection ends here."""
        match control:
            case Wait(seconds):
                await asyncio.sleep(seconds)
                return True
            case Hang():
                try:
                    async with asyncio.timeout(self._context.limits.call):
                        await asyncio.Event().wait()  # until the client leaves: that cancels us
                except TimeoutError:
                    pass
        return False

    async def _send_whole(self, asked: reply.NeutralRequest, answer: reply.ScriptedReply) -> None:
        """Without a stream a cut leaves half of the body, and so does what is malformed, but as if that were all."""
        gathered = reply.BlockBuilder()
        odd: set[type[reply.Control]] = set()
        for piece in chain(answer.pieces, self._list_whole_faults()):
            match piece:
                case Cut() | Malformed():
                    odd.add(type(piece))
                case Wait() | Hang():
                    if not await self._apply_control(piece):
                        self._connection.cut()
                        return
                case _:
                    gathered.add(piece)
        gathered.close()
        if self._fault.kind == "error":
            await self._fail(Fail(self._fault.status))
            return
        body = reply.dumps(self._api.whole(asked, gathered.blocks, answer.stop))
        await self._respond(body[: len(body) // 2] if Malformed in odd else body, cut=Cut in odd)

    def _list_whole_faults(self) -> list[reply.Control]:
        match self._fault.kind:
            case "cut":
                return [Cut()]
            case "malformed":
                return [Malformed()]
            case "hang":
                return [Hang()]
            case "slow":
                return [Wait(self._fault.seconds)]
        return []


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

    The prompt says what is answered (`serai.agents.models.parrot`); `faults` say what goes wrong besides, one per request.
    `key`: the only one that is taken. `window`: the most tokens that a request may have; 0 is no limit.
    """

    def __init__(
        self, *, key: str = "", port: int = 0, faults: Iterable[reply.Fault] = (), window: int = 0, limits: Limits | None = None
    ) -> None:
        self._context = ServerContext(key, window, limits or Limits())
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
        self._listener = await loop.create_server(self._make_connection, "127.0.0.1", self._port)
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
        key = self._context.key or "fake-key"
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
            context_window=self._context.window or 200_000,
            max_tokens=8192,
            cost=Cost(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75),
        )

    def fault(self, *faults: reply.Fault) -> None:
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

    def _notify_watchers(self) -> None:
        for watcher in self._watchers:
            watcher.set()

    def _make_connection(self) -> Connection:
        return Connection(Owner(self._add_connection, self._remove_connection, self._answer), self._context.limits)

    def _add_connection(self, connection: Connection) -> None:
        self._connections.add(connection)
        if self._listener is None or len(self._connections) > _CONNECTIONS:
            connection.transport.abort()
        elif self._faults and self._faults[0].kind == "refuse":
            self._faults.popleft()
            connection.reset()
        self._notify_watchers()

    def _remove_connection(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._notify_watchers()

    def _record_request(self, received: Received, body: Any) -> None:
        path, _, query = received.target.partition("?")
        headers = {name: _MASK if name in KEY_HEADERS else value for name, value in received.headers.items()}
        query = _KEY.sub(_MASK, query)
        self.requests.append(Seen(received.method, path, query, headers, body, len(received.body)))
        self._seen_bytes += len(received.body)
        while len(self.requests) > _SEEN or (self._seen_bytes > _SEEN_BYTES and len(self.requests) > 1):
            self._seen_bytes -= self.requests.popleft().size
        self._notify_watchers()

    async def _answer(self, connection: Connection, received: Received) -> None:
        body = decode_body(received.body)
        self._record_request(received, body)
        fault = self._faults.popleft() if self._faults else reply.NONE
        self.open += 1
        self._notify_watchers()
        try:
            await Exchange(self._context, connection, received, body, fault).run()
        finally:
            self.open -= 1
            self._notify_watchers()
