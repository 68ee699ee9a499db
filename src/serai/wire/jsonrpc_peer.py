"""JSON-RPC over a channel, for asyncio: what the JSON-RPC dialects' adapters and drivers share.

`await rpc.call(...)` costs one future; no task, no timer. Requests from the peer run as tasks, started in arrival order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from msgspec import UNSET, Raw

from serai.errors import BadFrame, LimitHit, OversizeFrame, PeerStalled, PeerTimeout, Refused, SeraiError
from serai.limits import WireLimits
from serai.wire import jsonrpc
from serai.wire.channel import Channel, Tap
from serai.wire.codec import Noise, Unknown
from serai.wire.event_loop import Deadlines
from serai.wire.process import Child
from serai.wire.stream import Oversize, PendingCall

log = logging.getLogger("serai.wire")

Handler = Callable[[jsonrpc.Request], Awaitable[object]]
# Takes a frame on its way to the peer, with the call it makes if it makes one.
Put = Callable[[bytes, PendingCall[Any] | None], None]


class JsonRpcPeer:
    """One JSON-RPC peer at the other end of a channel.

    `serve` answers the peer's requests: its result is sent back, `Refused` becomes that error, anything else an internal one.
    `notified` is called inline for notifications. `odd` is told of everything that fits nothing: noise, unknown and stray frames,
    oversize ones; it never has to act. `ended` is told, once and last, why the wire is over. `cancelled` words the answer to a
    request that the peer took back. `put`, which may be set at any time, gets every frame instead of the channel.
    """

    def __init__(
        self,
        child: Child,
        *,
        deadlines: Deadlines,
        limits: WireLimits | None = None,
        tap: Tap | None = None,
        serve: Handler | None = None,
        notified: Callable[[jsonrpc.Notification], None] | None = None,
        odd: Callable[[Noise | Unknown | jsonrpc.Stray | Oversize], None] | None = None,
        ended: Callable[[SeraiError], None] | None = None,
        cancel: jsonrpc.CancelStyle | None = jsonrpc.LSP_CANCEL,
        connection: jsonrpc.JsonRpcConnection | None = None,
        put: Put | None = None,
        cancelled: Callable[[jsonrpc.Request], str] | None = None,
        read: int | None = None,
        write: int | None = None,
    ) -> None:
        self.connection = jsonrpc.JsonRpcConnection(cancel=cancel) if connection is None else connection
        self.put = put
        self._cancelled = cancelled
        self._serve = serve
        self._notified = notified
        self._odd = odd
        self._ended = ended
        self._serving = True
        self._tasks: dict[bytes, asyncio.Task[object]] = {}
        self._loop = asyncio.get_running_loop()
        self.lost_cause: SeraiError | None = None
        self.channel = Channel(child, self, deadlines=deadlines, limits=limits, tap=tap, read=read, write=write)

    async def call(self, method: str, params: object = UNSET, *, timeout: float | None = None, cancel: bool = True) -> Raw:
        """Ask and wait. No time-out given means `limits.call`. Cancelling the caller forgets the call, and tells the peer unless
        `cancel` is false: it may then finish what it began."""
        channel = self.channel
        if self.lost_cause is not None:
            raise self.lost_cause.for_call("")
        waiter: asyncio.Future[Raw] = self._loop.create_future()
        call, frame = self.connection.request(
            method, params, now=monotonic(), timeout=channel.limits.call if timeout is None else timeout, waiter=waiter
        )
        try:
            self._put(frame, call)
        except BaseException:
            self.connection.forget(call)
            raise
        channel.wake_by(call.deadline)
        try:
            return await waiter
        except asyncio.CancelledError:
            if cancel:
                self._withdraw(call)
            else:
                self.connection.forget(call)
            raise

    def notify(self, method: str, params: object = UNSET) -> None:
        self._put(self.connection.notify(method, params), None)

    def stop_serving(self) -> None:
        """Cancel all work for the peer, which is told so; what it asks from now on is refused."""
        self._serving = False
        self._cancel_work()

    async def finish_serving(self, timeout: float) -> None:
        """The same, and wait until the peer has been told; at most so long, for work that does not end at once."""
        self.stop_serving()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=timeout)

    # -- the channel's receiver -------------------------------------------------------------------------------------------------

    def handle_run(self, run: bytes) -> None:
        for event in self.connection.receive(run):
            if type(event) is jsonrpc.Answer:
                if not event.call.waiter.done():
                    event.call.waiter.set_result(event.result)
            elif self.channel.cause is None or type(event) in (jsonrpc.Failure, jsonrpc.Garbled):
                self._handle(event)  # once the wire is closed, only calls are still ended

    def handle_oversize(self, frame: Oversize) -> None:
        self._tell(frame)
        limit = LimitHit("frame", frame.limit)
        for call in self.connection.oversize(frame):
            why = f"its answer to {call.what} had {frame.size} bytes"
            self._fail(call, OversizeFrame(why, who=self._who, id=str(call.id), limit=limit))
        if refusal := self.connection.refuse_oversize(frame):
            self._send(refusal, "the refusal of its oversize request")

    def tick(self, now: float) -> float | None:
        for call in self.connection.expire(now):
            limit = LimitHit("call", call.timeout or 0)
            self._fail(call, PeerTimeout(f"no answer to {call.what}", who=self._who, id=str(call.id), limit=limit))
            if cancellation := self.connection.encode_cancellation(call):
                self._send(cancellation, f"the cancellation of {call.what}")
        return self.connection.next_deadline()

    def handle_loss(self, cause: SeraiError) -> None:
        self.lost_cause = cause
        self._cancel_work()
        for call in self.connection.lose():
            self._fail(call, cause.for_call(str(call.id)))
        if self._ended is not None:
            self._ended(cause)

    # -- inside -------------------------------------------------------------------------------------------------------------------

    @property
    def _who(self) -> str:
        return self.channel.child.who

    def _cancel_work(self) -> None:
        for task in self._tasks.values():
            if not task.cancelling():  # what it does to end well is not to be cancelled too
                task.cancel()

    def _handle(self, event: jsonrpc.Event) -> None:
        match event:
            case jsonrpc.Failure(call=call):
                self._fail(call, Refused(event.message, code=event.code, data=bytes(event.data), who=self._who, id=str(call.id)))
            case jsonrpc.Garbled(call=call):
                why = f"its answer to {call.what} cannot be read: {event.why}"
                self._fail(call, BadFrame(why, who=self._who, id=str(call.id)))
                self._tell(Unknown(event.raw, None, event.why))
            case jsonrpc.Notification():
                if self._notified is not None:
                    self._guard(self._notified, event)
            case jsonrpc.Request():
                self._begin(event)
            case jsonrpc.Cancelled(request=request):
                if task := self._tasks.get(bytes(request.id)):
                    task.cancel()
            case Noise() | Unknown() | jsonrpc.Stray():
                self._tell(event)

    def _begin(self, request: jsonrpc.Request) -> None:
        full = len(self._tasks) >= self.channel.limits.requests
        if full or not self._serving:
            why = "too many open requests" if full else "nothing is served any more"
            refusal = self.connection.refuse(request, jsonrpc.INTERNAL_ERROR, f"{request.method} refused: {why}")
            if refusal is not None:
                self._send(refusal, f"the refusal of its {request.method}")
            return
        task = self._loop.create_task(self._work(request), name=f"{self._who} {request.method}")
        self._tasks[bytes(request.id)] = task
        # A callback and not the task itself answers: a task that is cancelled before its first step never runs.
        task.add_done_callback(lambda task: self._end(request, task))

    async def _work(self, request: jsonrpc.Request) -> object:
        if self._serve is None:
            raise Refused(f"method not found: {request.method}", code=jsonrpc.METHOD_NOT_FOUND)
        return await self._serve(request)

    def _end(self, request: jsonrpc.Request, task: asyncio.Task[object]) -> None:
        del self._tasks[bytes(request.id)]
        frame = self._answer(request, task)
        if frame is not None and len(frame) > self.channel.limits.send:
            frame = self.connection.refusal(request, jsonrpc.INTERNAL_ERROR, f"the result has {len(frame)} bytes: too long to send")
        if frame is not None:
            self._reply(request, frame)

    def _reply(self, request: jsonrpc.Request, frame: bytes) -> None:
        """An answer for which there is no room now is a refusal, which is short: whoever asked must not wait for ever."""
        what = f"the answer to its {request.method}"
        try:
            self._put(frame, None)
        except PeerStalled as error:
            why = f"{request.method} failed: it does not read, and {error.message}"
            self._send(self.connection.refusal(request, jsonrpc.INTERNAL_ERROR, why), what)
        except SeraiError as error:
            log.debug("%s: %s was not sent: %s", self._who, what, error)

    def _answer(self, request: jsonrpc.Request, task: asyncio.Task[object]) -> bytes | None:
        refuse = self.connection.refuse
        if task.cancelled():
            why = f"{request.method} cancelled" if self._cancelled is None else self._cancelled(request)
            return refuse(request, jsonrpc.INTERNAL_ERROR, why)
        try:
            return self.connection.answer(request, task.result())
        except Refused as error:
            return refuse(request, error.code, error.message)
        except Exception as error:
            log.exception("%s: serving its %s failed", self._who, request.method)
            return refuse(request, jsonrpc.INTERNAL_ERROR, f"{request.method} failed: {error}")

    def _withdraw(self, call: PendingCall[jsonrpc.Id]) -> None:
        frame = self.connection.cancel(call)
        if frame is not None:
            self._send(frame, f"the cancellation of {call.what}")

    def _put(self, frame: bytes, call: PendingCall[Any] | None) -> None:
        if self.put is None:
            self.channel.send(frame)
        else:
            self.put(frame, call)

    def _send(self, frame: bytes, what: str) -> None:
        """Send what nobody waits for: a wire that is lost or full has told its callers already."""
        try:
            self._put(frame, None)
        except SeraiError as error:
            log.debug("%s: %s was not sent: %s", self._who, what, error)

    def _fail(self, call: PendingCall[Any], error: SeraiError) -> None:
        if not call.waiter.done():
            call.waiter.set_exception(error)

    def _tell(self, event: Noise | Unknown | jsonrpc.Stray | Oversize) -> None:
        if self._odd is not None:
            self._guard(self._odd, event)

    def _guard(self, callback: Callable[[Any], None], event: object) -> None:
        """A callback that fails must not keep the events behind it from those who wait for them."""
        try:
            callback(event)
        except Exception:
            log.exception("%s: whoever is told of its frames failed", self._who)
