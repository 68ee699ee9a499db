"""A driver and a transport of the seed as one driver of Serai: it plays the process of a launch spec on a session's stage.

This is the seed's runner algorithm (spec agents 1.8) where ours differs only by its marked corrections: noise is passed over, what
asks has a task of its own, the process is ended by the ladder, and nothing waits in the reader.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
from collections.abc import AsyncIterable, Iterable
from time import monotonic
from typing import Any

from serai.agents.agentboot.asking import Asking
from serai.agents.agentboot.codec import NOISE, Decoder, Encoder
from serai.agents.agentboot.errors import EncoderClosed, NoTerminalResult, ProcessError, ProtocolError, ResultError, process_error
from serai.agents.agentboot.messages import StreamDeltaMessage
from serai.agents.agentboot.options import LaunchSpec
from serai.agents.agentboot.process import Factory, ProcessHandle
from serai.agents.agentboot.result import Account
from serai.agents.agentboot.roles import AgentTransport
from serai.agents.agentboot.stream import (
    ApprovalRequestEvent,
    AskRequestEvent,
    ControlResponse,
    MessageEvent,
    NoiseEvent,
    RequestCancelled,
    StreamEvent,
    TurnCompleted,
)
from serai.agents.agentboot.words import Event, EventKind, OutputFormat
from serai.agents.driver import Capabilities, Driver, Prompt, Unfinished
from serai.agents.stage import Stage
from serai.errors import LimitHit, PeerTimeout, SeraiError
from serai.limits import Limits
from serai.model import events as model
from serai.wire.channel import Channel
from serai.wire.event_loop import Deadlines
from serai.wire.process import StopResult

__all__ = ["TransportDriver"]

log = logging.getLogger("serai.agents")


class TransportDriver(Driver):
    """One process, one prompt."""

    capabilities = Capabilities(approvals=True, questions=True, interrupt=True, guards="asked-calls", rewrite=True)

    def __init__(
        self,
        agent: str,
        spec: LaunchSpec,
        transport: AgentTransport,
        factory: Factory,
        account: Account,
        *,
        limits: Limits,
        routing: dict[str, str],
    ) -> None:
        """`limits.stop_polite` is the grace between a result and the first signal."""
        self.name = agent
        self.session_id = account.session_id
        self.process: ProcessHandle | None = None
        self._spec = spec
        self._transport = transport
        self._factory = factory
        self._account = account
        self._limits = limits
        self._routing = routing
        self._interrupted = ""
        self._failure: ResultError | None = None
        self._stopping: asyncio.Task[StopResult] | None = None

    # -- a session's driver

    async def open(self, stage: Stage) -> None:
        self._stage = stage
        self.process = await self._factory.start(self._spec)
        self.process.on_stderr_line(self._stderr)
        self._deadlines = Deadlines()
        self._decoder = Decoder()
        if self._account.format == OutputFormat.STREAM_JSON:
            channel = Channel(self.process.child, self._decoder, deadlines=self._deadlines, limits=self._limits)
            self._decoder.source = channel
            self._encoder = Encoder(_ChannelInput(channel, self._limits))
        else:
            self._encoder = Encoder(_ProcessInput(self.process))
        self._asking = Asking(self.name, stage, self._transport, self._encoder, self._account.session_id, self._routing)

    async def run(self, prompt: Prompt) -> model.TurnResult:  # noqa: ARG002  (the launch spec has it)
        aside = [asyncio.create_task(self._feed(), name=f"first input of {self.name}")]
        aside.append(asyncio.create_task(self._watch(), name=f"watch {self.name}"))
        try:
            await (self._pump() if self._account.format == OutputFormat.STREAM_JSON else self._read_text())
            stopped = await asyncio.shield(self._stop())
        finally:
            for task in aside:
                task.cancel()
            await self._asking.close()
            await asyncio.gather(*aside, return_exceptions=True)
        return self._outcome(stopped)

    async def interrupt(self, reason: str) -> None:
        """SIGTERM at once: a program that has no word for it is asked like this to clean up and go (spec agents 2.13)."""
        if self._account.settled or self.process is None:
            return
        self._interrupted = self._interrupted or reason
        self.process.terminate()
        self._stop()

    async def close(self) -> None:
        if self.process is None:
            return
        if self._stopping is not None:
            await asyncio.shield(self._stopping)
        await self.process.close()
        self._deadlines.close()

    async def respond(self, id: str, response: ControlResponse) -> None:
        await self._asking.respond(id, response)

    # -- reading

    async def _pump(self) -> None:
        async for event in self._decoder:
            self._account.events.append(event)  # whatever it is (spec agents 1.8)
            self._account.noise = self._decoder.noise
            if not self._account.settled:
                await self._take(event)

    async def _take(self, event: Event) -> None:
        if event.type == NOISE:
            self._tell(NoiseEvent(event.raw.encode(), event.data["why"]))
            return
        try:
            kind, parsed = self._transport.classify(event)
            messages = self._transport.accumulate_message(event) if kind == EventKind.MESSAGE else ()
        except Exception as error:  # one frame that it cannot read is no reason to read no more (design rule 4)
            log.exception("%s: its transport failed on a frame", self.name)
            self._tell(NoiseEvent(event.raw.encode(), f"the transport failed on it: {error}"))
            return
        for message in messages:
            await self._stage.room()
            self._tell(MessageEvent(message))
        match kind, parsed:
            case EventKind.CONTROL, ApprovalRequestEvent() | AskRequestEvent() as request:
                await self._asking.ask(request)
            case EventKind.CONTROL, RequestCancelled(id=id, reason=reason):
                self._asking.withdraw(id, reason)
            case EventKind.TURN_END, _:
                self._tell(TurnCompleted(self._account.result(0.0)))
            case ((EventKind.TERMINAL_SUCCESS | EventKind.TERMINAL_ERROR), _):
                self._settle(event, failed=kind == EventKind.TERMINAL_ERROR)

    def _settle(self, event: Event, *, failed: bool) -> None:
        """The run is over: let the process end. What it still writes is read, so that it can."""
        self._account.settled = True
        if failed:
            self._failure = _result_error(self.name, event)
        self._stop()

    async def _read_text(self) -> None:
        """Bytes, and no JSON (spec agents 7.33)."""
        assert self.process is not None
        decode = codecs.getincrementaldecoder("utf-8")("replace")
        async for chunk in self.process.stdout:
            self._decoder.last = monotonic()
            await self._said(decode.decode(chunk))
        await self._said(decode.decode(b"", final=True))

    async def _said(self, text: str) -> None:
        if text:
            self._account.output.append(text)
            await self._stage.room()
            self._tell(MessageEvent(StreamDeltaMessage(agent_type=self.name, session_id=self._account.session_id, delta=text)))

    def _tell(self, event: StreamEvent) -> None:
        self._stage.emit(model.OtherEvent(kind="agentboot", native=event))

    def _stderr(self, line: str) -> None:
        turn = self._stage.turn
        if turn is not None and not turn.crowded:  # a flood goes by; its end is kept anyway (spec agents 7.26)
            self._stage.emit(model.Stderr(line=line))

    async def _watch(self) -> None:
        """Tell once of each long silence (spec agents 7.35)."""
        told = 0.0
        while True:
            last = self._decoder.last
            if monotonic() - last >= self._limits.agent_silent and told != last:
                told = last
                self._stage.emit(model.StateChanged(state="stalled"))
            await asyncio.sleep(max(last + self._limits.agent_silent - monotonic(), self._limits.agent_silent / 10))

    # -- writing

    async def _feed(self) -> None:
        """The first input. Should that fail, the end of the process says more than a broken pipe (spec agents 7.13)."""
        try:
            async for value in _each(self._spec.initial_input):
                await self._encoder.encode(value)
            if self._account.format == OutputFormat.TEXT:  # nobody will say anything more
                await self._encoder.close()
        except EncoderClosed:
            pass
        except SeraiError as error:
            log.info("%s: its first input was not written: %s", self.name, error)

    # -- its end

    def _stop(self) -> asyncio.Task[StopResult]:
        """The one ladder, begun by whoever comes first."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._ladder(), name=f"end of {self.name}")
        return self._stopping

    async def _ladder(self) -> StopResult:
        assert self.process is not None
        try:
            async with asyncio.timeout(self._limits.stop_polite):
                await self._encoder.close()
        except (TimeoutError, SeraiError) as error:  # it does not read; then it does not hear of the end either
            log.debug("%s: its input was not ended: %s", self.name, error)
        return await self.process.stop(self._limits)

    def _outcome(self, stopped: StopResult) -> model.TurnResult:
        """The first that there is of: the agent's own word, the cancellation, its process's end, no result (spec agents 1.8)."""
        assert self.process is not None
        account, status = self._account, stopped.exit
        if self._failure is not None:
            account.exit_code = _code(status, 0)
            raise self._unfinished(self._failure)
        by_itself = stopped.step in ("already", "polite")
        if account.settled:
            if by_itself and status is not None and not status.ok:
                account.warnings.append(f"its process ended badly after its result: {status}")
                log.warning("%s: %s", self.name, account.warnings[-1])
            return model.TurnResult(status="success", text=account.result(0.0).answer())
        account.exit_code = _code(status, -1)
        if self._interrupted:
            return model.TurnResult(status="cancelled", error=self._interrupted)
        if by_itself and status is not None and not status.ok:
            cause = self.process.error()
            cause = None if isinstance(cause, ProcessError) else cause
            raise self._unfinished(process_error(self.name, status, self.process.stderr, cause=cause))
        if account.format == OutputFormat.TEXT:
            return model.TurnResult(status="success", text="".join(account.output))
        account.exit_code = _code(status, 0) if by_itself else -1
        missing = NoTerminalResult(who=self.name)
        raise self._unfinished(
            ProtocolError(f"protocol error: {missing.message}", agent=self.name, cause=missing, kind="no_result")
        )

    def _unfinished(self, error: SeraiError) -> Unfinished:
        return Unfinished(error, model.TurnResult(status="error", error=str(error)))


def _code(status: Any, otherwise: int) -> int:
    code = status.code if status is not None else None
    return otherwise if code is None else code


async def _each(values: Iterable[Any] | AsyncIterable[Any] | None) -> AsyncIterable[Any]:
    if isinstance(values, AsyncIterable):
        async for value in values:
            yield value
    else:
        for value in values or ():
            yield value


def _result_error(agent: str, event: Event) -> ResultError:
    """What the agent says of its failure. One that calls itself a success is not called so here (spec agents 1.11)."""
    data = event.data
    errors = data.get("errors")
    details = tuple(one for one in errors if isinstance(one, str)) if isinstance(errors, list) else ()
    if not details:
        details = tuple(text for key in ("error", "result") if isinstance(text := data.get(key), str) and text)[:1]
    subtype = data.get("subtype")
    subtype = subtype if isinstance(subtype, str) and subtype != "success" else ""
    status = data.get("api_error_status")
    message = f"returned an error result{f' ({subtype})' if subtype else ''}: {'; '.join(details) or 'without a word'}"
    kind = subtype or ("api_error" if status else "error")
    return ResultError(
        message, agent=agent, kind=kind, details=details, status=status if isinstance(status, int) else 0, native=data
    )


class _ChannelInput:
    """A channel's sending half, waited for with a deadline: who does not read must not hold up anybody for ever."""

    def __init__(self, channel: Channel, limits: Limits) -> None:
        self._channel = channel
        self._limits = limits

    async def write(self, data: bytes) -> None:
        self._channel.send(data)
        try:
            async with asyncio.timeout(self._limits.agent_control):
                await self._channel.drain()
        except TimeoutError:
            limit = LimitHit("agent_control", self._limits.agent_control)
            raise PeerTimeout("it does not read its input", who=self._channel.child.who, limit=limit) from None

    async def close(self) -> None:
        self._channel.end_input()


class _ProcessInput:
    """The same of a process without a channel."""

    def __init__(self, process: ProcessHandle) -> None:
        self._process = process

    async def write(self, data: bytes) -> None:
        await self._process.write(data)

    async def close(self) -> None:
        self._process.close_stdin()
