"""A handle whose producer holds it directly: for agents in this very process, such as mocks (spec agents 1.12)."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import NamedTuple, Self

from serai.agents.agentboot.errors import HandleClosed, UnknownRequestId
from serai.agents.agentboot.result import Result, Waited
from serai.agents.agentboot.stream import (
    ApprovalRequestEvent,
    ApprovalResponse,
    AskRequestEvent,
    AskResponse,
    ControlResponse,
    RequestCancelled,
    StreamEvent,
)

__all__ = ["ControlledHandle", "HandleControls", "NewControlledHandle", "new_controlled_handle"]

ResponseFn = Callable[[str, ControlResponse], Awaitable[None] | None]
Supplied = Waited | tuple[Result, BaseException | None]
WaitFn = Callable[[], Awaitable[Supplied] | Supplied]


class _Place(NamedTuple):
    """An event in the queue. Whoever emitted it goes on once there is room for it, or without a buffer once it is taken."""

    event: StreamEvent
    accepted: asyncio.Future[None]


class ControlledHandle:
    """An `ExecutionHandle`; its producer has the `HandleControls`."""

    def __init__(self, buffer_size: int, response_fn: ResponseFn, cancel_fn: Callable[[], object], wait_fn: WaitFn) -> None:
        self._most = max(buffer_size, 0)
        self._response_fn = response_fn
        self._cancel_fn = cancel_fn
        self._wait_fn = wait_fn
        self._queue: deque[_Place] = deque()
        self._pending: dict[str, type[ApprovalResponse | AskResponse]] = {}
        self._reader: asyncio.Future[None] | None = None
        self._closed = False
        self._cancelled = False
        self._waited: asyncio.Future[Supplied] | None = None

    def events(self) -> AsyncIterator[StreamEvent]:
        return self

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        while not self._queue:
            if self._closed:
                raise StopAsyncIteration
            if self._reader is not None and not self._reader.done():
                raise RuntimeError("a handle has one reader: somebody reads its events already")
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        place = self._queue.popleft()
        self._accept()
        _done(place.accepted)
        return place.event

    async def respond(self, request_id: str, response: ControlResponse) -> None:
        if self._closed:
            raise HandleClosed(id=str(request_id))
        if request_id not in self._pending:
            raise UnknownRequestId(id=str(request_id))
        if not isinstance(response, self._pending[request_id]):
            raise TypeError(f"the answer to {request_id} is {self._pending[request_id].__name__}, not {type(response).__name__}")
        del self._pending[request_id]  # taken before it is handed on: nobody comes in between
        handed = self._response_fn(request_id, response)
        if inspect.isawaitable(handed):
            await handed

    async def wait(self) -> Waited:
        """What the agent says came of it; it is asked once."""
        if self._waited is None:
            self._waited = asyncio.ensure_future(self._ask())
        return Waited(*await asyncio.shield(self._waited))

    async def _ask(self) -> Supplied:
        supplied = self._wait_fn()
        return await supplied if inspect.isawaitable(supplied) else supplied

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._cancel_fn()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._closed:
            self.cancel()
        await self.wait()

    # -- for the controls

    async def _emit(self, event: StreamEvent) -> None:
        if self._closed:
            return
        if isinstance(event, ApprovalRequestEvent | AskRequestEvent):
            self._pending[event.id] = (
                AskResponse if isinstance(event, AskRequestEvent) else ApprovalResponse
            )  # before anybody sees it
        elif isinstance(event, RequestCancelled):
            self._pending.pop(event.id, None)
        place = _Place(event, asyncio.get_running_loop().create_future())
        self._queue.append(place)
        self._accept()
        _done(self._reader)
        try:
            await asyncio.shield(place.accepted)
        except asyncio.CancelledError:
            if not place.accepted.done():
                self._drop(place)
            raise

    def _accept(self) -> None:
        for place, _ in zip(self._queue, range(self._most), strict=False):
            _done(place.accepted)

    def _drop(self, place: _Place) -> None:
        self._queue.remove(place)
        if isinstance(place.event, ApprovalRequestEvent | AskRequestEvent):
            self._pending.pop(place.event.id, None)

    def _close(self) -> None:
        """Who still waits for room goes on without: its event is dropped, as nobody can answer it any more."""
        self._closed = True
        for place in [place for place in self._queue if not place.accepted.done()]:
            self._drop(place)
            _done(place.accepted)
        self._pending.clear()
        _done(self._reader)


class HandleControls:
    """The producer's side of a handle."""

    def __init__(self, handle: ControlledHandle) -> None:
        self._handle = handle

    async def emit(self, event: StreamEvent) -> None:
        """Tell it; waits until the reader has room. Cancelled meanwhile, the event is dropped and its request is none."""
        await self._handle._emit(event)

    def close(self) -> None:
        """No more events: what was told is still read. Idempotent."""
        self._handle._close()


def new_controlled_handle(
    buffer_size: int, response_fn: ResponseFn, cancel_fn: Callable[[], object], wait_fn: WaitFn
) -> tuple[ControlledHandle, HandleControls]:
    """`response_fn` gets the answers, `cancel_fn` the wish to end, `wait_fn` tells the result and the error; both may be async."""
    handle = ControlledHandle(buffer_size, response_fn, cancel_fn, wait_fn)
    return handle, HandleControls(handle)


def _done(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


NewControlledHandle = new_controlled_handle
