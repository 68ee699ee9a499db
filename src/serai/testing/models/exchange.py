"""One request and what is sent for it: checked, scripted, and with what shall go wrong."""

from __future__ import annotations

import asyncio
import hashlib
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from serai.agents.models.model_script import Cut, Fail, Hang, Malformed, Wait
from serai.limits import KIB, Limits
from serai.testing.models import anthropic, chat
from serai.testing.models.answering import Answered, Asked, BadRequest, Control, Gathered, answered, dumps
from serai.testing.models.connection import Connection, Headers, Received
from serai.testing.models.faults import Fault, faulted, huge
from serai.testing.models.routes import MODELS, api_of, has_key, route_of

__all__ = ["Exchange", "House", "decoded"]

_BATCH = 64 * KIB  # of events in one write
_STREAM: Headers = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]


class House(NamedTuple):
    """What a server asks of every request: its key, the most tokens it may have, the limits."""

    key: str
    window: int
    limits: Limits


def decoded(body: bytes | bytearray) -> Any:
    """The JSON of a request; None where it is none."""
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None


class Exchange:
    def __init__(self, house: House, connection: Connection, received: Received, body: Any, fault: Fault) -> None:
        self._house = house
        self._connection = connection
        self._received = received
        self._body = body
        self._fault = fault
        self._path = received.target.partition("?")[0]
        self._route = route_of(received.method, self._path, received.headers)
        self._api = self._route.api if self._route is not None else api_of(self._path, received.headers)
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
                await self._endless()
            case "status":
                self._headers += self._fault.headers
                await self._fail(Fail(self._fault.status, self._fault.retry_after), body=self._fault.body)
            case _:
                await self._reply()

    async def _reply(self) -> None:
        house, headers = self._house, self._received.headers
        if self._route is None:
            error = BadRequest(f"there is no {self._received.method} {self._path} here")
            await self._fail(Fail(404, text=error.message), error)
        elif house.key and not has_key(headers, house.key):
            await self._fail(Fail(401, text="invalid x-api-key" if self._api is anthropic.API else "Incorrect API key provided."))
        elif self._route.what == "models":
            listed = anthropic.models if self._api is anthropic.API else chat.models
            await self._respond(dumps(listed(MODELS)))
        else:
            try:
                await self._fulfil()
            except BadRequest as error:
                await self._fail(Fail(400, text=error.message), error)

    async def _fulfil(self) -> None:
        assert self._route is not None
        if not isinstance(self._body, dict):
            raise BadRequest("The request body is not valid JSON, or no object.")
        raw = bytes(self._received.body)
        if self._route.what == "count":
            await self._respond(dumps(anthropic.count(self._body, raw)))
            return
        asked = self._api.read(self._body, raw, self._digest)
        self._check_window(asked)
        answer = answered(asked)
        if self._fault.kind == "huge":
            answer = Answered(huge(self._fault))
        if answer.failure is not None:
            await self._fail(answer.failure)
        elif asked.stream:
            await self._stream(asked, answer)
        else:
            await self._whole(asked, answer)

    def _check_window(self, asked: Asked) -> None:
        most = self._house.window
        if not most or asked.tokens <= most:
            return
        if self._api is anthropic.API:
            raise BadRequest(f"prompt is too long: {asked.tokens} tokens > {most} maximum")
        text = f"This model's maximum context length is {most} tokens. However, your messages resulted in {asked.tokens} tokens."
        raise BadRequest(text, param="messages", code="context_length_exceeded")

    async def _fail(self, failure: Fail, why: BadRequest | None = None, *, body: bytes | None = None) -> None:
        if failure.retry_after:
            self._headers.append(("retry-after", failure.retry_after))
        told = dumps(self._api.error(failure.status, failure.text, self._id, why)) if body is None else body
        await self._respond(told, failure.status)

    async def _respond(self, body: bytes, status: int = 200, *, cut: bool = False) -> None:
        await self._connection.respond(status, [("content-type", "application/json"), *self._headers], body, cut=cut)

    async def _endless(self) -> None:
        self._connection.begin(self._headers, self._fault.status)
        while True:  # a client that leaves cancels us
            await self._connection.write(b"x" * _BATCH)

    async def _stream(self, asked: Asked, answer: Answered) -> None:
        fault = self._fault
        error = self._api.broken(fault.status, "", fault.after)
        events = faulted(self._api.encoder(asked, answer.stop).events(answer.pieces), fault, error)
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
            if not isinstance(event, bytes) and not await self._goes_on(event):
                connection.cut()
                return
        if batch:
            await connection.write(b"".join(batch))
        connection.end()

    async def _goes_on(self, control: Control) -> bool:
        """Do what stands between the events; False: the connection ends here."""
        match control:
            case Wait(seconds):
                await asyncio.sleep(seconds)
                return True
            case Hang():
                try:
                    async with asyncio.timeout(self._house.limits.call):
                        await asyncio.Event().wait()  # until the client leaves: that cancels us
                except TimeoutError:
                    pass
        return False

    async def _whole(self, asked: Asked, answer: Answered) -> None:
        """Without a stream a cut leaves half of the body, and so does what is malformed, but as if that were all."""
        gathered = Gathered()
        odd: set[type[Control]] = set()
        for piece in chain(answer.pieces, self._faults_of_whole()):
            match piece:
                case Cut() | Malformed():
                    odd.add(type(piece))
                case Wait() | Hang():
                    if not await self._goes_on(piece):
                        self._connection.cut()
                        return
                case _:
                    gathered.add(piece)
        gathered.close()
        if self._fault.kind == "error":
            await self._fail(Fail(self._fault.status))
            return
        body = dumps(self._api.whole(asked, gathered.blocks, answer.stop))
        await self._respond(body[: len(body) // 2] if Malformed in odd else body, cut=Cut in odd)

    def _faults_of_whole(self) -> list[Control]:
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
