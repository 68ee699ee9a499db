"""What reaches a plugin from outside: events wait in a bounded queue, one consumer brings them, and does what was asked for after.

Spec yoi 15, with its separation of queue and dispatch (spec yoi 15.1, ours) and its retries (spec yoi 15.3, ours).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import msgspec

from serai.dialects.yoi import host_api, messages, output_commands
from serai.dialects.yoi.host_api import HostCallDenied
from serai.dialects.yoi.host_side import EventRejected
from serai.dialects.yoi.messages import BadDocument, Event
from serai.dialects.yoi.output_commands import OutputCommand, StatusUpdate, WebSocketSend
from serai.dialects.yoi.status import CommandResult, CommandStatus, DiagnosticKind, DispatchReport
from serai.errors import BadFrame, Closed, PeerTimeout, Refused, SeraiError
from serai.host.adapters.yoi.connections import Owned
from serai.host.adapters.yoi.life import reworded
from serai.plugins.untrusted_text import timestamp

if TYPE_CHECKING:
    from serai.host.adapters.yoi.guest import YoiGuest

__all__ = ["Services"]

log = logging.getLogger("serai.host")


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


class _Turn:
    """A call that waits for its turn in the worker, and whether that has come."""

    answer: asyncio.Future[str]

    def __init__(self) -> None:
        self.begun = False

    def come(self) -> None:
        self.begun = True


class Services:
    """The ingresses of one life of a plugin. Its queue is the instance's and outlives this life."""

    def __init__(self, guest: YoiGuest) -> None:
        self._guest = guest
        self._instance = guest.instance
        self._owned = Owned(guest.record, guest.bounds, guest.instance, self)
        self._waiting: deque[_Waiting] = deque()  # beside the instance's queue
        self._consumer: asyncio.Task[None] | None = None  # there while there is something to bring
        self._room = asyncio.Event()
        self._turn: _Turn | None = None
        self._over = False

    def begin(self) -> None:
        """The instance runs: what an earlier life has left is brought, and the connections are opened."""
        for _ in range(self._instance.status().queue_depth):
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
        if self._over and not self._instance.refusal():  # the instance runs again, in a life that is not this one
            raise EventRejected(DiagnosticKind.SERVICE_STOPPED, "this life of the plugin is over: another one serves, or none")
        self._instance.offer(name, event, record=self._guest.record)
        self._waiting.append(waiting)
        self._wake()

    async def room(self) -> None:
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
            self._consumer.add_done_callback(self._consumed)

    def _consumed(self, task: asyncio.Task[None]) -> None:
        self._consumer = None
        if not task.cancelled():
            self._wake()  # what came while it was on its way out

    async def _consume(self) -> None:
        while not self._over and (event := self._instance.next()) is not None:
            waiting = self._waiting.popleft()
            self._room.set()
            try:
                waiting.settle(await self._bring(event, waiting))
            except SeraiError as error:
                waiting.settle(error)
            except Exception as error:  # a defect of ours is this event's alone
                log.exception("%s: an event failed", self._guest.who)
                text = self._instance.failed(event, repr(error), poisoned=False)
                waiting.settle(Refused(text, who=self._guest.who, id=event.correlation_id))
            except BaseException:
                waiting.settle(Closed("it was stopped before it answered", who=self._guest.who))
                raise

    async def _bring(self, event: Event, waiting: _Waiting) -> DispatchReport:
        latency = int((monotonic() - waiting.since) * 1000)
        text = await self._handled(event)
        try:
            output = messages.read_service(text)
        except BadDocument as error:
            raise self._failed(event, BadFrame(str(error), who=self._guest.who)) from None
        if output.error is not msgspec.UNSET:  # its own word that it failed: it runs on (spec yoi 3.5)
            why = messages.json_text(output.error)
            raise Refused(self._instance.failed(event, why, poisoned=False), who=self._guest.who, id=event.correlation_id)
        results = await self._carry_out(output.commands, event)
        self._instance.dispatched(event)
        self._instance.keep_results(results)
        return self._instance.report(event.ingress_name, output.value, results, queue_latency_ms=latency)

    async def _handled(self, event: Event) -> str:
        """What `handle-ingress` answers; cut off at its deadline, which counts from when it is its turn."""
        guest = self._guest
        worker = guest.worker
        assert worker is not None
        turn = self._turn = _Turn()
        text = messages.encode_event(event)
        turn.answer = worker.call("handle-ingress", (event.ingress_name, text), guest.bounds.ingress, begun=turn.come)
        try:
            return await turn.answer
        except PeerTimeout as error:
            text = self._instance.timed_out(event, guest.bounds.ingress)
            guest.failed(error)
            raise reworded(error, text) from error
        except SeraiError as error:
            if not turn.begun:  # it never saw it: the next life does
                guest.failed(error)  # a worker to whom nothing can be sent serves nobody; else this life is over already
                raise self._undelivered(event, guest.over or error) from None
            raise self._failed(event, error) from error

    def _failed(self, event: Event, error: SeraiError) -> SeraiError:
        """A trap or an answer that is none ends this life (spec yoi 15.3)."""
        text = self._instance.failed(event, error.message)
        self._guest.failed(error)
        return reworded(error, text)

    def _undelivered(self, event: Event, why: SeraiError) -> SeraiError:
        self._instance.undelivered(event, why.message)
        return why

    # -- what it asks for after an event ----------------------------------------------------------------------------------------

    async def _carry_out(self, value: Any, event: Event) -> list[CommandResult]:
        """All or nothing is refused before the first one runs; after that each stands for itself (spec yoi 15.4)."""
        record = self._guest.record
        batch = output_commands.check(
            value, event=event, record=record, now=timestamp(time()), websocket=self._why_not_sent, request=self._why_not_requested
        )
        results = list(batch.rejected)
        for command in batch.ready:
            status, message = await self._do(command)
            results.append(command.result(status, message, timestamp(time())))
        return results

    async def _do(self, command: OutputCommand) -> tuple[CommandStatus, str]:
        match command.payload:
            case WebSocketSend(url=url, text=text):
                try:
                    return CommandStatus.RECORDED, await self._owned.send(url, text)
                except HostCallDenied as error:
                    return CommandStatus.REJECTED, str(error)
            case StatusUpdate(message=message, status=status):
                if status is not msgspec.UNSET:
                    self._instance.updated(status)
                return CommandStatus.RECORDED, message or output_commands.UPDATED
            case _:
                return CommandStatus.UNSUPPORTED, output_commands.NOT_DISPATCHED

    def _why_not_sent(self, url: str, text: str) -> str:
        try:
            host_api.check_url(self._guest.record, url)
            host_api.check_text(text)
        except HostCallDenied as error:
            return str(error)
        return ""

    def _why_not_requested(self, descriptor: Any) -> str:
        try:
            host_api.check_request(self._guest.record, descriptor)
        except HostCallDenied as error:
            return str(error)
        return ""

    # -- its end ----------------------------------------------------------------------------------------------------------------

    def hush(self) -> None:
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
        if (turn := self._turn) is not None and not turn.begun and not turn.answer.done():
            turn.answer.set_exception(Closed("it was stopped", who=self._guest.who))
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
            self._instance.failed(event, "the plugin was stopped", poisoned=False)
        await self._owned.close()
