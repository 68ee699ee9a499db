"""What reaches a plugin from outside: events wait in a bounded queue, one consumer delivers them and runs the output commands.

Queue and dispatch are separate (spec yoi 15.1), and an event that the plugin never saw is tried again (spec yoi 15.3). The host
owns the websockets of a plugin's ingresses (spec yoi 16): it opens and reads them, and opens them again when they are lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from os import urandom
from random import random
from time import monotonic, time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from serai.dialects.yoi import host_api, messages, output_commands
from serai.dialects.yoi.host_api import HostCallDenied, parse_api_url
from serai.dialects.yoi.host_side import EventRejected, HostSide
from serai.dialects.yoi.messages import BadDocument, Event
from serai.dialects.yoi.output_commands import OutputCommand, StatusUpdate, WebSocketSend
from serai.dialects.yoi.status import MOST, CommandResult, CommandStatus, DiagnosticKind, DispatchReport
from serai.errors import BadFrame, Closed, PeerTimeout, Refused, SeraiError
from serai.host.adapters.yoi.effects.network import PluginNetwork
from serai.host.adapters.yoi.effects.websocket import PluginWebSocket, ReceiveTimeout, dial
from serai.host.adapters.yoi.offer import reword
from serai.plain_text import utf8_size
from serai.plugins import authorization
from serai.plugins.bounds import Bounds
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.untrusted_text import format_timestamp

if TYPE_CHECKING:
    from serai.host.adapters.yoi.guest import YoiGuest

log = logging.getLogger("serai.host")

_SECONDS = 5.0  # to open one, and to send on it; also of one wait for a frame, as a peer's pings are counted for each
_BYE = 1.0  # seconds for a peer to answer our good-bye
_PREFIX = "websocket:"
_SCHEMES = ("ws://", "wss://")


class Backoff:
    """How long to wait before the next try: twice as long each time, with jitter, and from the start after a stable while."""

    def __init__(self, first: float = 0.5, most: float = 60.0, stable: float = 60.0, chance: Callable[[], float] = random) -> None:
        self._first = self._next = first
        self._most = most
        self._stable = stable
        self._chance = chance

    def compute_wait(self, lived: float) -> float:
        """Seconds until the next try, after a connection that held for so long (0: it never opened)."""
        if lived >= self._stable:
            self._next = self._first
        wait, self._next = self._next, min(2 * self._next, self._most)
        return wait * (0.5 + self._chance() / 2)


class IngressSource(NamedTuple):
    """One source of one ingress. `url` is normalised and is the connection's key; `source` is the manifest's text."""

    ingress: str
    source: str
    url: str


def find_ingress_sources(record: ResolvedPlugin, complain: Callable[[str], None]) -> list[IngressSource]:
    """What is to be opened, in the order of the manifest; nothing unless both surfaces are enabled."""
    if not {"service", "ingress"} <= set(record.enabled_surfaces):
        return []
    found: list[IngressSource] = []
    for ingress in record.manifest.ingresses:
        if authorization.find_ingress_refusal(record, ingress.name):  # it was told of when it was denied
            continue
        for source in ingress.sources:
            if not source.startswith((_PREFIX, *_SCHEMES)):
                continue
            try:
                url = parse_api_url(source.removeprefix(_PREFIX), what="WebSocket").normalised
            except HostCallDenied as error:
                complain(f"invalid WebSocket ingress source for {ingress.name}: {error}")
            else:
                found.append(IngressSource(ingress.name, source, url))
    return found


class EventSink(Protocol):
    """Where events go."""

    async def wait_for_room(self) -> None:
        """Wait a moment for a place in the queue: what a peer sends meanwhile waits in its own end of the wire."""
        ...

    def take(self, name: str, event: Event) -> bool:
        """Whether it was queued; what was refused is in the instance's diagnostics."""
        ...


class HostWebSockets:
    """The connections of one life of a plugin, each with one task that opens and reads it."""

    def __init__(
        self, record: ResolvedPlugin, bounds: Bounds, instance: HostSide, sink: EventSink, backoff: Callable[[], Backoff] = Backoff
    ) -> None:
        self._record = record
        self._bounds = bounds
        self._instance = instance
        self._sink = sink
        self._backoff = backoff
        self._open: dict[str, PluginWebSocket] = {}
        self._network = PluginNetwork()  # one, so that lookups that hang are counted
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Start all of them; nobody waits for a server that does not answer."""
        loop = asyncio.get_running_loop()
        for one in find_ingress_sources(self._record, self._complain):
            if self._instance.connections.reserve(one.url, one.ingress):  # reserved here, in order
                self._tasks.append(loop.create_task(self._keep_open(one), name=f"websocket {self._record.identity} {one.ingress}"))
            else:
                why = f"host-owned WebSocket connection limit ({MOST}) exceeded, or it is open for another ingress"
                self._complain(f"{one.url} is not opened for {one.ingress}: {why}")

    def cancel(self) -> None:
        """From now on no reader says anything any more."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """End the readers, which close their sockets. Idempotent."""
        self.cancel()
        tasks, self._tasks = self._tasks, []
        if tasks:
            await asyncio.wait(tasks)
        self._network.close()

    async def send(self, url: str, text: str) -> str:
        """A `websocket_send`: what its result says. A failed one is a `HostCallDenied`."""
        key = host_api.check_url(self._record, url).normalised
        statuses = self._instance.connections
        if statuses.get(key) is None:
            raise HostCallDenied(output_commands.describe_missing(key))
        socket = self._open.get(key)
        if socket is None:
            raise HostCallDenied(output_commands.describe_unconnected(key))
        try:
            await socket.send_text(text, _SECONDS)
        except HostCallDenied as error:
            statuses.record_send_failure(key, str(error))
            raise
        statuses.count_sent(key)
        return output_commands.describe_sent(utf8_size(text), key)

    # -- one connection ---------------------------------------------------------------------------------------------------------

    async def _keep_open(self, one: IngressSource) -> None:
        """Open it, read it to its end, and open it again a little later; what may not be opened is not tried again."""
        backoff, told = self._backoff(), False
        statuses = self._instance.connections
        while True:
            opened_at: float | None = None
            try:
                if reason := authorization.find_api_refusal(self._record, "websocket"):
                    return statuses.mark_failed(one.url, f"host-owned websocket not granted: {reason}")
                try:
                    host_api.check_url(self._record, one.url)
                except HostCallDenied as error:
                    return statuses.mark_failed(one.url, f"host-owned websocket not granted: {error}")
                socket = await dial(self._record, one.url, bounds=self._bounds, timeout=_SECONDS, network=self._network)
                opened_at = monotonic()
                told = False
                await self._read(one, socket)
            except HostCallDenied as error:
                statuses.mark_failed(one.url, str(error))
                if not told:  # once per outage
                    told = True
                    self._deliver_event(one, messages.build_websocket_error, error=str(error))
            lived = 0.0 if opened_at is None else monotonic() - opened_at
            await asyncio.sleep(backoff.compute_wait(lived))
            statuses.reserve(one.url, one.ingress)

    async def _read(self, one: IngressSource, socket: PluginWebSocket) -> None:
        """Frames become events until the peer closes it."""
        statuses = self._instance.connections
        self._open[one.url] = socket
        statuses.mark_opened(one.url)
        try:
            while True:
                await self._sink.wait_for_room()
                try:
                    text = await socket.recv(_SECONDS)
                except ReceiveTimeout:
                    continue
                if text is None:
                    statuses.mark_closed(one.url)
                    self._deliver_event(one, messages.build_websocket_close)
                    return
                statuses.count_received(one.url, format_timestamp(time()))
                self._deliver_event(one, messages.build_websocket_text, text=text)
        finally:
            del self._open[one.url]
            await socket.close(_BYE)

    def _deliver_event(self, one: IngressSource, made: Callable[..., Event], **said: str) -> None:
        at = time()
        id = messages.make_correlation_id(at, urandom(10))
        event = made(source=one.source, ingress_name=one.ingress, url=one.url, now=format_timestamp(at), id=id, **said)
        kinds = next((each.event_kinds for each in self._record.manifest.ingresses if each.name == one.ingress), ())
        if event.kind != "websocket_text" and kinds and event.kind not in kinds:
            return  # nobody asked for it: refused silently (spec yoi 16)
        if not self._sink.take(one.ingress, event):
            self._instance.connections.count_dropped(one.url)

    def _complain(self, text: str) -> None:
        self._instance.note(DiagnosticKind.WEBSOCKET_ERROR, text)


class _Waiting:
    """One queued event: since when, and who wants to know what becomes of it."""

    __slots__ = ("outcome", "since")

    def __init__(self, outcome: asyncio.Future[DispatchReport] | None) -> None:
        self.since = monotonic()
        self.outcome = outcome

    def settle(self, report: DispatchReport | SeraiError) -> None:
        if self.outcome is None or self.outcome.done():
            return
        if isinstance(report, SeraiError):
            self.outcome.set_exception(report)
        else:
            self.outcome.set_result(report)


class _Delivery:
    """A call that waits for its turn in the worker, and whether that has come."""

    answer: asyncio.Future[str]

    def __init__(self) -> None:
        self.begun = False

    def mark_begun(self) -> None:
        self.begun = True


class IngressDispatcher:
    """The ingresses of one life of a plugin. Its queue is the instance's and outlives this life."""

    def __init__(self, guest: YoiGuest) -> None:
        self._guest = guest
        self._instance = guest.instance
        self._owned = HostWebSockets(guest.record, guest.bounds, guest.instance, self)
        self._waiting: deque[_Waiting] = deque()  # beside the instance's queue
        self._consumer: asyncio.Task[None] | None = None  # there while there is something to bring
        self._room = asyncio.Event()
        self._delivery: _Delivery | None = None
        self._over = False

    def begin(self) -> None:
        """The instance runs: what an earlier life has left is brought, and the connections are opened."""
        for _ in range(self._instance.build_status().queue_depth):
            self._waiting.append(_Waiting(None))
        self._wake()
        self._owned.begin()

    # -- in ---------------------------------------------------------------------------------------------------------------------

    async def dispatch(self, name: str, event: Event) -> DispatchReport:
        """Queue it and wait for what comes of it. What is refused, fails or takes too long raises."""
        outcome: asyncio.Future[DispatchReport] = asyncio.get_running_loop().create_future()
        try:
            self._offer(name, event, _Waiting(outcome))
        except EventRejected as rejected:
            raise Refused(rejected.text, who=self._guest.who, id=event.correlation_id) from None
        return await outcome

    def take(self, name: str, event: Event) -> bool:
        """The same for an event that nobody waits for."""
        try:
            self._offer(name, event, _Waiting(None))
        except EventRejected:
            return False
        return True

    def _offer(self, name: str, event: Event, waiting: _Waiting) -> None:
        if self._over and not self._instance.find_refusal():  # the instance runs again, in a life that is not this one
            raise EventRejected(DiagnosticKind.SERVICE_STOPPED, "this life of the plugin is over: another one serves, or none")
        self._instance.offer(name, event, record=self._guest.record)
        self._waiting.append(waiting)
        self._wake()

    async def wait_for_room(self) -> None:
        """As long as one event may take: then there is room, or this plugin is no longer the one that is served."""
        if len(self._waiting) >= self._instance.capacity:
            self._room.clear()
            try:
                async with asyncio.timeout(self._guest.bounds.ingress):
                    await self._room.wait()
            except TimeoutError:
                pass  # what comes now is refused, and counted

    # -- the one consumer -------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._consumer is None and self._waiting and not self._over and self._instance.in_flight is None:
            self._consumer = asyncio.get_running_loop().create_task(self._consume(), name=f"ingress {self._guest.who}")
            self._consumer.add_done_callback(self._on_consumer_done)

    def _on_consumer_done(self, task: asyncio.Task[None]) -> None:
        self._consumer = None
        if not task.cancelled():
            self._wake()  # what came while it was on its way out

    async def _consume(self) -> None:
        while not self._over and (event := self._instance.take_next()) is not None:
            waiting = self._waiting.popleft()
            self._room.set()
            try:
                waiting.settle(await self._deliver(event, waiting))
            except SeraiError as error:
                waiting.settle(error)
            except Exception as error:  # a defect of ours is this event's alone
                log.exception("%s: an event failed", self._guest.who)
                text = self._instance.mark_failed(event, repr(error), poisoned=False)
                waiting.settle(Refused(text, who=self._guest.who, id=event.correlation_id))
            except BaseException:
                waiting.settle(Closed("it was stopped before it answered", who=self._guest.who))
                raise

    async def _deliver(self, event: Event, waiting: _Waiting) -> DispatchReport:
        latency = int((monotonic() - waiting.since) * 1000)
        text = await self._call_handler(event)
        try:
            output = messages.read_service(text)
        except BadDocument as error:
            raise self._record_failure(event, BadFrame(str(error), who=self._guest.who)) from None
        if output.error is not msgspec.UNSET:  # its own word that it failed: it runs on (spec yoi 3.5)
            why = messages.encode_json(output.error)
            raise Refused(self._instance.mark_failed(event, why, poisoned=False), who=self._guest.who, id=event.correlation_id)
        results = await self._run_commands(output.commands, event)
        self._instance.mark_dispatched(event)
        self._instance.keep_results(results)
        return self._instance.report(event.ingress_name, output.value, results, queue_latency_ms=latency)

    async def _call_handler(self, event: Event) -> str:
        """What `handle-ingress` answers; cut off at its deadline, which counts from when it is its turn."""
        guest = self._guest
        worker = guest.worker
        assert worker is not None
        delivery = self._delivery = _Delivery()
        text = messages.encode_event(event)
        delivery.answer = worker.call("handle-ingress", (event.ingress_name, text), guest.bounds.ingress, begun=delivery.mark_begun)
        try:
            return await delivery.answer
        except PeerTimeout as error:
            text = self._instance.mark_timed_out(event, guest.bounds.ingress)
            guest.fail(error)
            raise reword(error, text) from error
        except SeraiError as error:
            if not delivery.begun:  # it never saw it: the next life does
                guest.fail(error)  # a worker to whom nothing can be sent serves nobody; else this life is over already
                raise self._record_undelivered(event, guest.over or error) from None
            raise self._record_failure(event, error) from error

    def _record_failure(self, event: Event, error: SeraiError) -> SeraiError:
        """A trap or an answer that is none ends this life (spec yoi 15.3)."""
        text = self._instance.mark_failed(event, error.message)
        self._guest.fail(error)
        return reword(error, text)

    def _record_undelivered(self, event: Event, why: SeraiError) -> SeraiError:
        self._instance.requeue(event, why.message)
        return why

    # -- what it asks for after an event ----------------------------------------------------------------------------------------

    async def _run_commands(self, value: Any, event: Event) -> list[CommandResult]:
        """All or nothing is refused before the first one runs; after that each stands for itself (spec yoi 15.4)."""
        record = self._guest.record
        batch = output_commands.check(
            value, event=event, record=record, now=format_timestamp(time()), websocket=self._check_send, request=self._check_request
        )
        results = list(batch.rejected)
        for command in batch.ready:
            status, message = await self._run_command(command)
            results.append(command.build_result(status, message, format_timestamp(time())))
        return results

    async def _run_command(self, command: OutputCommand) -> tuple[CommandStatus, str]:
        match command.payload:
            case WebSocketSend(url=url, text=text):
                try:
                    return CommandStatus.RECORDED, await self._owned.send(url, text)
                except HostCallDenied as error:
                    return CommandStatus.REJECTED, str(error)
            case StatusUpdate(message=message, status=status):
                if status is not msgspec.UNSET:
                    self._instance.update_status(status)
                return CommandStatus.RECORDED, message or output_commands.UPDATED
            case _:
                return CommandStatus.UNSUPPORTED, output_commands.NOT_DISPATCHED

    def _check_send(self, url: str, text: str) -> str:
        try:
            host_api.check_url(self._guest.record, url)
            host_api.check_text(text)
        except HostCallDenied as error:
            return str(error)
        return ""

    def _check_request(self, descriptor: Any) -> str:
        try:
            host_api.check_request(self._guest.record, descriptor)
        except HostCallDenied as error:
            return str(error)
        return ""

    # -- its end ----------------------------------------------------------------------------------------------------------------

    def stop_listening(self) -> None:
        """What waits is brought; nothing more comes in by a connection of ours."""
        self._owned.cancel()

    async def idle(self) -> None:
        """What waits at this moment is through."""
        while self._consumer is not None:
            await asyncio.wait([self._consumer])

    def end(self) -> None:
        """This life is over. What it had not seen waits for the next one; whoever asked for a report is told now."""
        self._over = True
        self._room.set()
        if (delivery := self._delivery) is not None and not delivery.begun and not delivery.answer.done():
            delivery.answer.set_exception(Closed("it was stopped", who=self._guest.who))
        self._owned.cancel()
        for waiting in self._waiting:
            waiting.settle(Closed("the plugin ended before it saw the event", who=self._guest.who))
        self._waiting.clear()

    async def stop(self) -> None:
        """Nothing is brought any more, and no connection is left. Bounded."""
        self.end()
        if (consumer := self._consumer) is not None:
            await asyncio.wait([consumer], timeout=self._guest.bounds.ingress)  # what it does after an event, it may finish
            if not consumer.done():
                consumer.cancel()
                await asyncio.wait([consumer])
        if self._guest.over is None and (event := self._instance.in_flight) is not None:
            self._instance.mark_failed(event, "the plugin was stopped", poisoned=False)
        await self._owned.close()
