"""What a guest asks of Serai: from its request to a host service and back (spec piglet 7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from serai.dialects.piglet import answers, services
from serai.dialects.piglet.messages import EventBusEventParams, Wire
from serai.dialects.piglet.methods import Method
from serai.dialects.piglet.ours import Asked, BadParams
from serai.errors import LimitHit, Refused, SeraiError
from serai.host.adapter import Taking
from serai.host.adapters.piglet.transport import Side
from serai.wire import jsonrpc

__all__ = ["Serving"]


class Serving:
    """Serves the requests of one guest, on whichever side they come."""

    def __init__(self, taking: Taking, remark: Callable[[str], None]) -> None:
        self._who = taking.who
        self._limits = taking.limits
        self._services = taking.services
        self._remark = remark
        self._telling: set[asyncio.Task[None]] = set()
        self.stopping = False  # whatever is cancelled from now on, it was not the guest that wanted it so

    async def serve(self, side: Side, request: jsonrpc.Request) -> object:
        """The result; `Refused` is the error that it is answered with."""
        match side.ours.request(request):
            case Asked(method=Method.HOST_SUBSCRIBE, params=params):
                return self._subscribe(side, params.topic)
            case Asked(method=method, params=params):
                return await self._ask(method, params)
            case BadParams(why=why):
                raise Refused(f"invalid params: {why}", code=services.INVALID_PARAMS)
            case _:
                raise Refused(f"method not found: {request.method}", code=jsonrpc.METHOD_NOT_FOUND)

    def cancelled(self, request: jsonrpc.Request) -> str:
        """What it is answered when it no longer wants the answer (FIX-7), or is being stopped."""
        return (services.stopped if self.stopping else services.cancelled)(request.method)

    def tell(self, method: str, params: Wire) -> None:
        """A word that nobody answers, such as `steer`. Its first step, which is all for most, comes before any later word's."""
        task = asyncio.get_running_loop().create_task(self._told(method, params), name=f"{self._who} {method}")
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def history(self) -> Any:
        """The conversation, for the event that ends a run; None when there is none."""
        try:
            return (await self._services.ask(self._who, "conversation", "messages", {}))["messages"]
        except SeraiError:
            return None

    def _subscribe(self, side: Side, topic: str) -> answers.HostSubscribeResult:
        """It belongs to this process: whatever ends that ends it (FIX-32)."""
        id = side.rpc.connection.draw()

        def deliver(topic: str, data: Any) -> None:
            before = side.mail.dropped
            side.mail.tell(EventBusEventParams(topic, id, data))
            if side.mail.dropped > before and not before:
                limit = LimitHit("events", self._limits.events)
                self._remark(f"of what is published not all reaches it: it does not read ({limit}), or it was too long")

        try:
            side.ends[id] = self._services.subscribe(self._who, topic, deliver)
        except SeraiError as error:
            code, why = services.refusal_of(Method.HOST_SUBSCRIBE, error)
            raise Refused(why, code=code) from error
        return answers.HostSubscribeResult(id)

    async def _ask(self, method: str, params: Wire) -> Wire:
        group, what, arguments = services.ask_of(method, params)
        deadline = asyncio.timeout(services.timeout_of(method, self._limits))
        try:
            async with deadline:
                return services.answer_of(method, await self._services.ask(self._who, group, what, arguments))
        except SeraiError as error:
            if (answer := services.instead(method, error)) is not None:
                return answer
            code, why = services.refusal_of(method, error)
            raise Refused(why, code=code) from error
        except TimeoutError:
            if not deadline.expired():
                raise
            raise Refused(services.expired(method), code=jsonrpc.INTERNAL_ERROR) from None

    async def _told(self, method: str, params: Wire) -> None:
        group, what, arguments = services.tell_of(method, params)
        try:
            await self._services.ask(self._who, group, what, arguments)
        except SeraiError as error:
            self._remark(f"{method} was not done: {error}")
