"""What a guest asks of Serai: from its request to a host service and back (spec piglet 7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from serai.dialects.piglet import service_calls, service_messages
from serai.dialects.piglet.events import Asked, BadParams
from serai.dialects.piglet.messages import CompactMessage, EventBusEventParams, Wire
from serai.dialects.piglet.methods import Method
from serai.dialects.piglet.service_messages import HostSetConversationMessagesParams
from serai.errors import LimitHit, Refused, SeraiError
from serai.host.adapter import Taking
from serai.host.adapters.piglet.conversing import spelt
from serai.host.adapters.piglet.transport import Side
from serai.model.actions import Action, Quit, SetTitle, SubmitPrompt
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
                raise Refused(f"invalid params: {why}", code=service_calls.INVALID_PARAMS)
            case _:
                raise Refused(f"method not found: {request.method}", code=jsonrpc.METHOD_NOT_FOUND)

    def cancelled(self, request: jsonrpc.Request) -> str:
        """What it is answered when it no longer wants the answer (FIX-7), or is being stopped."""
        return (service_calls.stopped if self.stopping else service_calls.cancelled)(request.method)

    def tell(self, method: str, params: Wire) -> None:
        """A word that nobody answers, such as `steer`. Its first step, which is all for most, comes before any later word's."""
        self._do(method, service_calls.call_for_notification(method, params))

    def act(self, type: str, action: Action) -> bool:
        """What the answer to an event wants of the app, which no person asked for, needs the same grant as the service that does
        it; False when it wants nothing of the app."""
        match action:
            case SubmitPrompt(text=text):
                ask = service_calls.ServiceCall("control", "send", {"content": text})
            case Quit():
                ask = service_calls.ServiceCall("control", "quit", {})
            case SetTitle(text=text):
                ask = service_calls.ServiceCall("sessions", "set_title", {"title": text})
            case _:
                return False
        self._do(f"its action {type}", ask)
        return True

    async def history(self) -> Any:
        """The conversation, for the event that ends a run; None when there is none."""
        try:
            return (await self._services.ask(self._who, "conversation", "messages", {}))["messages"]
        except SeraiError:
            return None

    def _subscribe(self, side: Side, topic: str) -> service_messages.HostSubscribeResult:
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
            code, why = service_calls.error_for(Method.HOST_SUBSCRIBE, error)
            raise Refused(why, code=code) from error
        return service_messages.HostSubscribeResult(id)

    async def _ask(self, method: str, params: Wire) -> Wire:
        if isinstance(params, HostSetConversationMessagesParams):  # their keys match in any case, too (FIX-4)
            params = HostSetConversationMessagesParams([CompactMessage(one.type, spelt(one.data)) for one in params.messages or ()])
        group, what, arguments = service_calls.call_for(method, params)
        deadline = asyncio.timeout(service_calls.timeout_of(method, self._limits))
        try:
            async with deadline:
                return service_calls.result_for(method, await self._services.ask(self._who, group, what, arguments))
        except SeraiError as error:
            if (answer := service_calls.fallback_for(method, error)) is not None:
                return answer
            code, why = service_calls.error_for(method, error)
            raise Refused(why, code=code) from error
        except TimeoutError:
            if not deadline.expired():
                raise
            raise Refused(service_calls.expired(method), code=jsonrpc.INTERNAL_ERROR) from None

    def stop(self) -> None:
        """What nobody waits for ends with it."""
        for task in self._telling:
            task.cancel()

    def _do(self, what: str, ask: service_calls.ServiceCall) -> None:
        if len(self._telling) >= self._limits.requests:
            self._remark(f"{what} was not done: too much is under way ({LimitHit('requests', self._limits.requests)})")
            return
        task = asyncio.get_running_loop().create_task(self._done(what, ask), name=f"{self._who} {what}")
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _done(self, what: str, ask: service_calls.ServiceCall) -> None:
        try:
            await self._services.ask(self._who, *ask)
        except SeraiError as error:
            self._remark(f"{what} was not done: {error}")
