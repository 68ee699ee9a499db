"""One running piglet extension: the host's calls to it, and its requests to host services and their answers (spec piglet 7).

`serai.dialects.piglet` says what the frames mean; here are the process, the clock and the waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Raw

from serai.dialects.piglet import messages, neutral, service_calls, service_messages
from serai.dialects.piglet.events import Asked, BadParams, Registered, RegistrationRefused, Told
from serai.dialects.piglet.messages import CompactMessage, EventBusEventParams, Wire
from serai.dialects.piglet.methods import Method, decode_result
from serai.dialects.piglet.service_messages import HostSetConversationMessagesParams
from serai.errors import BadFrame, Closed, LimitHit, PeerGone, PeerTimeout, Refused, SeraiError
from serai.host.adapter import StartContext, find_start_hint
from serai.host.adapters.piglet.event_dispatch import EventDispatcher
from serai.host.adapters.piglet.provider_streams import ProviderStreams, fold_keys, from_compact, to_compact, to_guest_args
from serai.host.adapters.piglet.transport import DeferredActions, DeferredTap, GuestRegistrations, GuestWire, Way, WireChoice, drain
from serai.host.guest_log import escape_remark
from serai.host.send_queue import SendQueue
from serai.model.actions import Action, NoAction, Quit, SetTitle, SubmitPrompt
from serai.model.contributions import Contributions, Interceptor, InterceptPoint, InterceptResult, TransformResult
from serai.model.events import Event
from serai.model.provider import Chunk, Completion, ModelMessage, ModelRequest
from serai.model.tools import ToolCall, ToolResult
from serai.wire import jsonrpc
from serai.wire.codec import BAD_INPUT, Noise, Unknown
from serai.wire.jsonrpc_peer import JsonRpcPeer
from serai.wire.process import Child, stop_child
from serai.wire.stream import Oversize, PendingCall


class ServiceRequests:
    """Serves the requests of one guest, on whichever side they come."""

    def __init__(self, context: StartContext, remark: Callable[[str], None]) -> None:
        self._who = context.who
        self._limits = context.limits
        self._services = context.services
        self._remark = remark
        self._notifications: set[asyncio.Task[None]] = set()
        self.stopping = False  # whatever is cancelled from now on, it was not the guest that wanted it so

    async def serve(self, side: GuestWire, request: jsonrpc.Request) -> object:
        """The result; `Refused` is the error that it is answered with."""
        match side.host_side.decode_request(request):
            case Asked(method=Method.HOST_SUBSCRIBE, params=params):
                return self._subscribe(side, params.topic)
            case Asked(method=method, params=params):
                return await self._ask(method, params)
            case BadParams(why=why):
                raise Refused(f"invalid params: {why}", code=service_calls.INVALID_PARAMS)
            case _:
                raise Refused(f"method not found: {request.method}", code=jsonrpc.METHOD_NOT_FOUND)

    def explain_cancel(self, request: jsonrpc.Request) -> str:
        """What it is answered when it no longer wants the answer (FIX-7), or is being stopped."""
        return (service_calls.describe_stopped if self.stopping else service_calls.describe_cancelled)(request.method)

    def tell(self, method: str, params: Wire) -> None:
        """A word that nobody answers, such as `steer`. Its first step, which is all for most, comes before any later word's."""
        self._start_ask(method, service_calls.build_notification_call(method, params))

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
        self._start_ask(f"its action {type}", ask)
        return True

    async def fetch_history(self) -> Any:
        """The conversation, for the event that ends a run; None when there is none."""
        try:
            return (await self._services.ask(self._who, "conversation", "messages", {}))["messages"]
        except SeraiError:
            return None

    def _subscribe(self, side: GuestWire, topic: str) -> service_messages.HostSubscribeResult:
        """It belongs to this process: whatever ends that ends it (FIX-32)."""
        id = side.rpc.connection.take_id()

        def deliver(topic: str, data: Any) -> None:
            before = side.mail.dropped
            side.mail.tell(EventBusEventParams(topic, id, data))
            if side.mail.dropped > before and not before:
                limit = LimitHit("events", self._limits.events)
                self._remark(f"of what is published not all reaches it: it does not read ({limit}), or it was too long")

        try:
            side.ends[id] = self._services.subscribe(self._who, topic, deliver)
        except SeraiError as error:
            code, why = service_calls.build_error(Method.HOST_SUBSCRIBE, error)
            raise Refused(why, code=code) from error
        return service_messages.HostSubscribeResult(id)

    async def _ask(self, method: str, params: Wire) -> Wire:
        if isinstance(params, HostSetConversationMessagesParams):  # their keys match in any case, too (FIX-4)
            folded = [CompactMessage(one.type, fold_keys(one.data)) for one in params.messages or ()]
            params = HostSetConversationMessagesParams(folded)
        group, what, arguments = service_calls.build_call(method, params)
        deadline = asyncio.timeout(service_calls.get_timeout(method, self._limits))
        try:
            async with deadline:
                return service_calls.build_result(method, await self._services.ask(self._who, group, what, arguments))
        except SeraiError as error:
            if (answer := service_calls.find_fallback(method, error)) is not None:
                return answer
            code, why = service_calls.build_error(method, error)
            raise Refused(why, code=code) from error
        except TimeoutError:
            if not deadline.expired():
                raise
            raise Refused(service_calls.describe_expired(method), code=jsonrpc.INTERNAL_ERROR) from None

    def stop(self) -> None:
        """What nobody waits for ends with it."""
        for task in self._notifications:
            task.cancel()

    def _start_ask(self, what: str, ask: service_calls.ServiceCall) -> None:
        if len(self._notifications) >= self._limits.requests:
            self._remark(f"{what} was not done: too much is under way ({LimitHit('requests', self._limits.requests)})")
            return
        task = asyncio.get_running_loop().create_task(self._run_ask(what, ask), name=f"{self._who} {what}")
        self._notifications.add(task)
        task.add_done_callback(self._notifications.discard)

    async def _run_ask(self, what: str, ask: service_calls.ServiceCall) -> None:
        try:
            await self._services.ask(self._who, *ask)
        except SeraiError as error:
            self._remark(f"{what} was not done: {error}")


# What guests log is theirs: for who listens here, and never on a person's screen by itself.
guests = logging.getLogger("serai.guests")
guests.addHandler(logging.NullHandler())

_ODD = 100  # so many odd frames of one life are told one by one in its log
_LEAST = 0.05  # seconds of its time to stop that are left to it, however long it took to tell it
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}

_LIMIT_OF: dict[str, str] = {
    Method.TOOL_EXECUTE: "tool",
    Method.COMMAND_EXECUTE: "command",
    Method.INTERCEPTOR_BEFORE: "intercept",
    Method.INTERCEPTOR_AFTER: "intercept",
    Method.INPUT_TRANSFORM: "transform",
    Method.MESSAGE_HOOK_ON_MESSAGE: "inject",
    Method.COMPACT_EXECUTE: "compact",
    Method.SHORTCUT_HANDLE: "shortcut",
    Method.PROVIDER_STREAM: "provider",
    Method.EVENT_DISPATCH: "event",
}


class PigletGuest:
    """The guest's side of `host.adapter.GuestConnection`, and of everything else that a guest can offer."""

    def __init__(self, context: StartContext, child: Child, ways: Sequence[Way]) -> None:
        self._context = context
        self._child = child
        self._name = context.manifest.name
        self._shown = context.manifest.shown  # before its words
        self._limits = context.limits
        self._listener = context.listener
        self._loop = asyncio.get_running_loop()
        self._service_requests = ServiceRequests(context, self._remark)
        self._streaming = ProviderStreams(self._name, context.limits)
        self._event_dispatcher = EventDispatcher(
            self._dispatch, self._act, context.log.remark, self._wants, self._get_history, context.limits
        )
        self._started = False
        self._stopping: asyncio.Task[Any] | None = None
        self._lost: SeraiError | None = None
        self._open = 0  # calls that wait for its answer
        self._idle: asyncio.Future[None] | None = None
        self._odd = 0
        tap = context.tap(child.pid)
        sides = [self._open_side(way, None if tap is None else DeferredTap(tap)) for way in ways]
        for side in sides:
            side.later = DeferredActions() if side.way == "stdio" and len(sides) > 1 else None
        self._wire: GuestWire = sides[0]
        self._wire_choice = WireChoice(child, sides, context.log)
        self._noise = drain(child, context.log, context.deadlines) if ways == ("fd",) else None

    def _open_side(self, way: Way, tap: DeferredTap | None) -> GuestWire:
        child, limits = self._child, self._limits
        side = GuestWire(way, GuestRegistrations(limits), tap)
        read, write = (child.extra[4], child.extra[3]) if way == "fd" else (child.stdout, child.stdin)
        side.rpc = JsonRpcPeer(
            child,
            deadlines=self._context.deadlines,
            limits=limits,
            tap=tap,
            connection=side.host_side.connection,
            serve=partial(self._service_requests.serve, side),
            notified=partial(self._handle_notification, side),
            odd=self._log_odd,
            ended=partial(self._handle_end, side),
            cancelled=self._service_requests.explain_cancel,
            read=read,
            write=write,
        )
        side.mail = SendQueue(side.rpc.channel, _build_bus_encoder(side), _waits, limits)
        side.rpc.put = side.mail.request
        return side

    async def initialize(self) -> None:
        """See it through its first answer, which ends the registrations that count at once (spec piglet 3)."""
        about, manifest = self._context.about, self._context.manifest
        params = messages.InitializeParams(messages.PROTOCOL_VERSION, about.cwd, self._context.config)
        try:
            self._wire, answer = await self._wire_choice.wait_for_answer(params, self._limits.hello)
        except Refused as error:  # FIX-8
            raise Refused(f"initialize {self._name}: {error.message}", code=error.code, who=self._context.who) from None
        except PeerTimeout as error:
            self._child.stderr.drain()
            hint = "it must answer `initialize`, on the descriptors 3 and 4 or on its standard streams"
            limit, stderr = error.limit and LimitHit("hello", error.limit.value), self._child.stderr.text()
            why = f"initialize {self._name}: context deadline exceeded"
            raise PeerTimeout(why, who=self._context.who, limit=limit, stderr=stderr, hint=hint) from None
        except SeraiError as error:
            why, hint = f"initialize {self._name}: extension {self._name} closed", find_start_hint(error.stderr)
            raise PeerGone(why, who=self._context.who, exit=error.exit, stderr=error.stderr, hint=hint) from None
        if (lost := self._wire.rpc.lost_cause) is not None:  # it has answered and ended, and nobody was to be told yet
            raise self._build_closed_error(lost)
        self._log_greeting(answer, manifest.version)
        self._started = True
        del self._wire_choice  # and all that was kept of the side which did not answer

    def _log_greeting(self, answer: Raw, version: str) -> None:
        """Its own name and version are only told: the manifest's count (spec piglet 3)."""
        remark = self._context.log.remark
        try:
            said = decode_result(Method.INITIALIZE, answer)
        except BAD_INPUT as error:
            remark(f"its answer to initialize is none, and is taken: {error}")
            return
        if bytes(answer) == b"null":
            remark("its answer to initialize says nothing, and is taken")
        elif (said.name, said.version) != (self._name, version):
            remark(f"it calls itself {said.name} {said.version}; {self._name} {version} of its manifest counts".replace("  ", " "))
        remark(f"it speaks on {'the descriptors 3 and 4' if self._wire.way == 'fd' else 'its standard streams'}")

    # -- what the host asks ------------------------------------------------------------------------------------------------------

    @property
    def contributions(self) -> Contributions:
        return self._wire.registrations.contributions

    @property
    def complaints(self) -> tuple[str, ...]:
        return self._wire.registrations.complaints

    @property
    def pid(self) -> int:
        return self._child.pid

    async def idle(self) -> None:
        if self._open:
            self._idle = self._idle or self._loop.create_future()
            await asyncio.shield(self._idle)

    async def call(self, method: str, params: Wire, *, timeout: float | None, cancel: bool = True) -> Any:
        """Ask, wait, and read the answer; a null one is empty, as in Go. `cancel`: who gives up tells it so (spec piglet 2.6)."""
        self._open += 1
        try:
            answer = await self._wire.rpc.call(method, params, timeout=timeout, cancel=cancel)
        except (PeerGone, Closed) as error:
            raise self._build_closed_error(error) from error
        except PeerTimeout as error:
            limit = LimitHit(_LIMIT_OF.get(method, "call"), 0 if error.limit is None else error.limit.value)
            raise PeerTimeout(error.message, who=error.who, id=error.id, limit=limit) from error
        finally:
            self._open -= 1
            if not self._open and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)
        try:
            return decode_result(method, answer)
        except BAD_INPUT as error:
            raise BadFrame(f"its answer to {method} cannot be read: {error}", who=self._context.who) from None

    async def call_tool(self, call: ToolCall) -> ToolResult:
        params = messages.ToolExecuteParams(call.id, call.name, to_guest_args(call))
        cancel = not self._wire.registrations.is_blocking(call.name)
        return neutral.to_tool_result(await self.call(Method.TOOL_EXECUTE, params, timeout=self._limits.tool, cancel=cancel))

    async def run_command(self, name: str, args: str) -> Action:
        params = messages.CommandExecuteParams(name, " ".join(args.split()))  # runs of blanks are lost (spec piglet 5.2)
        await self.call(Method.COMMAND_EXECUTE, params, timeout=self._limits.command)
        return NoAction()

    async def intercept(self, interceptor: Interceptor, stage: InterceptPoint, subject: Any) -> InterceptResult:
        name, timeout = interceptor.name, self._limits.intercept
        try:
            if stage == "tool_call":
                before = messages.InterceptorBeforeParams(name, subject.name, to_guest_args(subject))
                verdict = await self.call(Method.INTERCEPTOR_BEFORE, before, timeout=timeout)
                return neutral.read_before(verdict, name, subject.arguments)
            call, result = subject
            details = neutral.build_details(result)
            after = messages.InterceptorAfterParams(name, call.name, details)
            return neutral.read_after(await self.call(Method.INTERCEPTOR_AFTER, after, timeout=timeout), result, details)
        except Refused as error:  # the origin's words (spec piglet 5.3)
            when = "before" if stage == "tool_call" else "after"
            why = f"interceptor {name} {when}: interceptor {when}: {error.message}"
            raise Refused(why, code=error.code, who=self._context.who) from error

    async def transform(self, text: str) -> TransformResult:
        try:
            params = messages.InputTransformParams(text)
            answer = await self.call(Method.INPUT_TRANSFORM, params, timeout=self._limits.transform)
        except Refused as error:
            raise Refused(f"input transform: {error.message}", code=error.code, who=self._context.who) from error
        return TransformResult(answer.output, answer.handled)

    async def inject(self, text: str) -> str:
        answer = await self.call(Method.MESSAGE_HOOK_ON_MESSAGE, messages.MessageHookParams(text), timeout=self._limits.inject)
        injection: str = answer.injection
        return injection

    async def compact(self, said: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        params = messages.CompactExecuteParams(to_compact(said))
        return from_compact((await self.call(Method.COMPACT_EXECUTE, params, timeout=self._limits.compact)).messages)

    async def run_shortcut(self, key: str) -> Action:
        params = messages.ShortcutHandleParams(self._wire.registrations.find_spelling(key))
        answer = await self.call(Method.SHORTCUT_HANDLE, params, timeout=self._limits.shortcut)
        action = None if answer.action is None else neutral.to_action(answer.action, self._shown)
        if action is not None and not isinstance(action, SubmitPrompt):  # that is for whoever pressed the key to send
            self._listener.on_action(action)
        return action or NoAction()

    def stream(self, api: str, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        ask = partial(self.call, Method.PROVIDER_STREAM, timeout=self._limits.provider)
        return self._streaming.stream(ask, self._wire.rpc.connection.take_id, api, request)

    def tell(self, event: Event) -> None:
        self._event_dispatcher.tell(event)

    def press(self, panel: str, key: str, text: str = "") -> None:
        """Piglet has no panels; nor any of the next two."""

    def resize(self, panel: str, width: int, height: int) -> None: ...

    def close_panel(self, panel: str) -> None: ...

    async def stop(self) -> None:
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._stop(), name=f"stop {self._context.who}")
        await asyncio.shield(self._stopping)

    # -- what it says --------------------------------------------------------------------------------------------------------------

    def _handle_notification(self, side: GuestWire, notification: jsonrpc.Notification) -> None:
        """In the order of arrival, and before anybody who waits for a later answer goes on (spec piglet 2.5)."""
        self._context.greeted()
        match side.host_side.decode_notification(notification):
            case Registered(method=method, params=params):
                self._register(side, method, params, len(bytes(notification.params)))
            case RegistrationRefused(method=method, why=why):
                side.registrations.complain(f"its {method} is not taken: {why}")
                self._remark(f"its {method} is not taken: {why}")
            case Told(method=method, params=params):
                if side.later is None or method == Method.LOG:
                    self._handle_message(method, params)
                elif not side.later.do(partial(self._handle_message, method, params), len(bytes(notification.params))):
                    self._remark(f"ignored: {method}, for it says too much before its answer to initialize")
            case odd:
                self._remark(f"ignored: {odd}")

    def _register(self, side: GuestWire, method: str, params: Wire, size: int) -> None:
        if why := side.registrations.add(method, params, size):
            self._remark(why)
            return
        if side is self._wire and self._started:  # late, and at once (spec piglet 3)
            self._remark(f"{method} after its answer to initialize: it counts from now on")
            self._listener.on_change()

    def _handle_message(self, method: str, params: Any) -> None:
        if method == Method.PROVIDER_DELTA:
            self._streaming.add_delta(params)
        elif method == Method.LOG:
            guests.log(_LEVELS.get(params.level, logging.INFO), "ext=%s %s", self._name, escape_remark(params.message))
            self._context.log.remark(f"{params.level or 'info'}: {params.message}")
        elif (action := neutral.notification_to_action(method, params, self._shown)) is not None:
            self._listener.on_action(action)
        else:
            self._service_requests.tell(method, params)

    def _act(self, result: messages.ActionResult) -> None:
        """What an event's handler wants done (spec piglet 5.4)."""
        if (action := neutral.to_action(result, self._shown)) is None:
            self._remark(f"its action {result.type} is unknown, or its payload bad: ignored")
        elif not self._service_requests.act(result.type, action):
            self._listener.on_action(action)

    def _log_odd(self, odd: Noise | Unknown | jsonrpc.Stray | Oversize) -> None:
        if isinstance(odd, Noise):
            self._context.log.write_output(odd.raw + b"\n")
        elif isinstance(odd, Oversize):
            self._remark(f"a frame of {odd.size} bytes was skipped; the limit is {odd.limit}")
        else:
            self._remark(f"{odd.why}: {odd.raw[:200].decode(errors='replace')}")

    def _remark(self, text: str) -> None:
        self._odd += 1
        if self._odd <= _ODD:
            self._context.log.remark(text)
        elif self._odd == _ODD + 1:
            self._context.log.remark("further frames of this kind are not told one by one")

    # -- events --------------------------------------------------------------------------------------------------------------------

    def _wants(self, type: str) -> bool:
        return self._wire.registrations.wants(type)

    async def _dispatch(self, type: str, data: Any) -> messages.ActionResult | None:
        answer = await self.call(Method.EVENT_DISPATCH, messages.EventDispatchParams(type, data), timeout=self._limits.event)
        action: messages.ActionResult | None = answer.action
        return action

    async def _get_history(self) -> Any:
        return await self._service_requests.fetch_history()

    # -- the end -------------------------------------------------------------------------------------------------------------------

    def _handle_end(self, side: GuestWire, cause: SeraiError) -> None:
        """One of its wires is over; before the first answer the other may still speak."""
        side.unsubscribe()
        side.mail.close()
        if not self._started and side.way == "stdio" and isinstance(cause, PeerGone) and self._child.status is None:
            self._noise = drain(self._child, self._context.log, self._context.deadlines)  # it closed its stdin, and still prints
        if side is not self._wire or not self._started or self._lost is not None:
            return
        self._lost = cause
        self._event_dispatcher.close()
        self._streaming.fail_all(cause)
        if self._stopping is None:
            self._listener.on_end(self._build_closed_error(cause))

    def _build_closed_error(self, error: SeraiError) -> SeraiError:
        """The origin's words, and why."""
        kind = PeerGone if isinstance(error, PeerGone) else Closed
        return kind(f"extension {self._name} closed", who=self._context.who, exit=error.exit, stderr=error.stderr, hint=error.hint)

    async def _stop(self) -> None:
        """Spec piglet 8.0: off the bus and its last events first, then nothing is asked or served, then goodbye."""
        side = self._wire
        side.unsubscribe()
        if self._lost is None:
            await self._event_dispatcher.flush(self._limits.flush)
        self._event_dispatcher.close()
        self._service_requests.stopping = True
        await side.rpc.finish_serving(self._limits.stop_polite)
        self._service_requests.stop()
        side.close(Closed(f"extension {self._name} closed", who=self._context.who))
        await stop_child(self._child, self._limits, polite=self._send_shutdown)

    async def _send_shutdown(self) -> None:
        channel = self._wire.rpc.channel
        async with asyncio.timeout(max(self._limits.stop_polite - _LEAST, 0)):
            await channel.send_farewell(self._wire.rpc.connection.notify(Method.SHUTDOWN))


def _build_bus_encoder(side: GuestWire) -> Callable[[Any], bytes | None]:
    return lambda event: side.rpc.connection.notify(Method.HOST_EVENT_BUS_EVENT, event)


def _waits(call: PendingCall[Any]) -> bool:
    return not call.waiter.done()
