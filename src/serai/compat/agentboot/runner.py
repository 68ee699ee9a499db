"""The seed's runner: a driver and a transport of one agent, and a factory for its process, as an `Agent` (spec agents 1.8).

`TransportDriver` makes one driver of Serai of the two: it plays the process of a launch spec on a session's `EventHub`. This is
the seed's algorithm with the corrections of the spec: noise is skipped, each request of the agent has a task of its own and is
answered in the form of its transport (spec agents 1.9), the process is ended by the stop ladder, and nothing waits in the reader.
"""

from __future__ import annotations

import asyncio
import codecs
import copy
import inspect
import logging
from collections.abc import AsyncIterable, Callable, Iterable
from time import monotonic
from typing import Any

import msgspec

from serai.agents.driver import Capabilities, Driver, Prompt, TurnFailed
from serai.agents.event_hub import EventHub
from serai.agents.session import Session
from serai.compat.agentboot.codec import NOISE, AgentType, Decoder, Encoder, Event, EventKind, OutputFormat
from serai.compat.agentboot.errors import (
    AgentNotAvailable,
    EncoderClosed,
    InvalidLaunch,
    NotDelivered,
    NoTerminalResult,
    ProcessError,
    ProtocolError,
    ResultError,
    StartFailed,
    UnknownRequestId,
    process_error,
)
from serai.compat.agentboot.execution import Execution, Handle, build_decision, check_response, notify_store, to_stream_events
from serai.compat.agentboot.messages import (
    ApprovalRequestEvent,
    ApprovalResponse,
    AskRequestEvent,
    AskResponse,
    ControlResponse,
    MessageEvent,
    NoiseEvent,
    RequestCancelled,
    RunAccount,
    StreamDeltaMessage,
    StreamEvent,
    TurnCompleted,
)
from serai.compat.agentboot.options import (
    AgentDriver,
    AgentTransport,
    ExecutionOptions,
    LaunchSpec,
    RunnerConfig,
    check_folder,
    choose_timeout,
)
from serai.compat.agentboot.process import Factory, OsFactory, ProcessHandle
from serai.errors import Closed, LimitHit, NoApproval, PeerTimeout, SeraiError
from serai.limits import Limits
from serai.model import events as model
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question, QuestionItem, parse_questions
from serai.model.tools import NativeCall, ToolCall
from serai.wire.channel import Channel
from serai.wire.event_loop import Deadlines
from serai.wire.process import StopResult

log = logging.getLogger("serai.agents")

Request = ApprovalRequestEvent | AskRequestEvent


class ExecutionRequests:
    """The requests of one execution."""

    def __init__(
        self, agent: str, hub: EventHub, transport: AgentTransport, encoder: Encoder, session_id: str, routing: dict[str, str]
    ) -> None:
        self._agent = agent
        self._hub = hub
        self._transport = transport
        self._encoder = encoder
        self._stamps = {"agent_type": agent, "session_id": session_id, **routing}
        self._seen: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._responses: dict[str, tuple[ControlResponse, asyncio.Future[None]]] = {}  # given, and not written yet

    async def ask(self, request: Request) -> None:
        """Have it asked, once. It is told before this returns, so that it keeps its place among the messages."""
        if request.id in self._seen:
            log.info("%s: its request %r came again", self._agent, request.id)
            return
        self._seen.add(request.id)
        self._tasks[request.id] = asyncio.create_task(self._handle_request(request), name=f"a request of {self._agent}")
        await asyncio.sleep(0)

    def withdraw(self, id: str, reason: str) -> None:
        self._hub.withdraw(id, reason or "the agent has withdrawn it")

    async def respond(self, id: str, response: ControlResponse) -> None:
        """Returns when the answer is written."""
        asked = self._hub.pending.get(id)
        if asked is None or asked.answered:
            raise UnknownRequestId(who=self._agent, id=str(id))
        check_response(asked, response)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._responses[id] = response, written
        try:
            await self._hub.answer(id, build_decision(asked, response))
        except (NoApproval, Closed):
            self._responses.pop(id, None)
            raise UnknownRequestId(who=self._agent, id=str(id)) from None
        await asyncio.shield(written)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # -- inside

    async def _handle_request(self, request: Request) -> None:
        error: Exception | None = None
        try:
            decision = await self._hub.ask(self._to_model_request(request))
            given, _ = self._responses.get(request.id, (None, None))
            await self._encoder.encode(self._build_frame(request, given or build_response(request, decision)))
        except asyncio.CancelledError:
            error = NotDelivered("the run ended before the answer was written", who=self._agent, id=str(request.id))
            raise
        except Exception as failure:  # the run's own end says more than a broken pipe
            log.warning("%s: the answer to %r was not delivered: %s", self._agent, request.id, failure)
            error = NotDelivered(f"the answer was not delivered: {failure}", who=self._agent, id=str(request.id))
            error.__cause__ = failure
        finally:
            self._tasks.pop(request.id, None)
            _, written = self._responses.pop(request.id, (None, None))
            if written is not None and not written.done():
                written.set_exception(error) if error is not None else written.set_result(None)

    def _build_frame(self, request: Request, response: ControlResponse) -> object:
        frame: object = self._transport.encode_control_response(request.id, response, request.input)
        if frame is None:
            raise ProtocolError("transport produced nil control response", agent=self._agent)
        return frame

    def _to_model_request(self, request: Request) -> Approval | Question:
        """Whoever is shown it may do with its input what they like: what goes back is the agent's own (spec agents 7.20)."""
        missing = {name: stamp for name, stamp in self._stamps.items() if not getattr(request, name)}
        shown = msgspec.structs.replace(request, input=copy.deepcopy(request.input), **missing)
        routing = {name: stamp for name in ("chat_id", "platform", "bot_uuid") if (stamp := getattr(shown, name))}
        if isinstance(shown, AskRequestEvent):
            items = parse_questions(shown.input) or (QuestionItem(shown.message or shown.reason or shown.tool_name),)
            return Question(id=shown.id, items=items, tool=shown.tool_name, call_id=shown.call_id, routing=routing, native=shown)
        call = ToolCall(
            shown.tool_name, shown.input, id=shown.tool_use_id or str(shown.id), asker=self._agent,
            native=NativeCall(shown.tool_name, shown.input),
        )  # fmt: skip
        return Approval(
            id=shown.id,
            call=call,
            title=shown.title,
            display_name=shown.display_name,
            description=shown.description,
            reason=shown.decision_reason or shown.reason,
            reason_type=shown.decision_reason_type,
            blocked_path=shown.blocked_path,
            suggestions=shown.suggestions,
            needs_person=shown.requires_user_interaction,
            default_no=shown.default_to_no,
            no_always=shown.suppress_always_allow,
            routing=routing,
            native=shown,
        )


def build_response(request: Request, decision: Decision) -> ControlResponse:
    """What was decided elsewhere, or by nobody, in the seed's words."""
    if isinstance(request, AskRequestEvent):
        if isinstance(decision, Answer) and decision.answers:
            first = next(iter(decision.answers.values()))
            return AskResponse(approved=True, selection=decision.answers, response=first if isinstance(first, str) else "")
        return AskResponse(approved=False, reason=decision.why if isinstance(decision, Deny) else "the question was not answered")
    if isinstance(decision, Allow):
        changed = None if decision.arguments is msgspec.UNSET else decision.arguments
        return ApprovalResponse(approved=True, updated_input=changed, remember=decision.remember != "once")
    why, interrupt = (decision.why, decision.interrupt) if isinstance(decision, Deny) else ("", False)
    return ApprovalResponse(approved=False, reason=why, interrupt=interrupt)


class TransportDriver(Driver):
    """One process, one prompt."""

    capabilities = Capabilities(approvals=True, questions=True, interrupt=True, guards="asked-calls", rewrite=True)

    def __init__(
        self,
        agent: str,
        spec: LaunchSpec,
        transport: AgentTransport,
        factory: Factory,
        account: RunAccount,
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

    async def open(self, hub: EventHub) -> None:
        self._hub = hub
        self.process = await self._factory.start(self._spec)
        self.process.on_stderr_line(self._on_stderr_line)
        self._deadlines = Deadlines()
        self._decoder = Decoder()
        if self._account.format == OutputFormat.STREAM_JSON:
            channel = Channel(self.process.child, self._decoder, deadlines=self._deadlines, limits=self._limits)
            self._decoder.source = channel
            self._encoder = Encoder(_ChannelInput(channel, self._limits))
        else:
            self._encoder = Encoder(_ProcessInput(self.process))
        self._asking = ExecutionRequests(self.name, hub, self._transport, self._encoder, self._account.session_id, self._routing)

    async def run(self, prompt: Prompt) -> model.TurnResult:  # noqa: ARG002  (the launch spec has it)
        aside = [asyncio.create_task(self._write_initial_input(), name=f"first input of {self.name}")]
        aside.append(asyncio.create_task(self._watch(), name=f"watch {self.name}"))
        try:
            await (self._read_events() if self._account.format == OutputFormat.STREAM_JSON else self._read_text())
            stopped = await asyncio.shield(self._stop())
        finally:
            for task in aside:
                task.cancel()
            await self._asking.close()
            await asyncio.gather(*aside, return_exceptions=True)
        return self._build_result(stopped)

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

    async def _read_events(self) -> None:
        async for event in self._decoder:
            self._account.events.append(event)  # whatever it is (spec agents 1.8)
            self._account.noise = self._decoder.noise
            if not self._account.settled:
                await self._handle_event(event)

    async def _handle_event(self, event: Event) -> None:
        if event.type == NOISE:
            self._emit(NoiseEvent(event.raw.encode(), event.data["why"]))
            return
        try:
            kind, parsed = self._transport.classify(event)
            messages = self._transport.accumulate_message(event) if kind == EventKind.MESSAGE else ()
        except Exception as error:  # one frame that it cannot read is no reason to read no more (design rule 4)
            log.exception("%s: its transport failed on a frame", self.name)
            self._emit(NoiseEvent(event.raw.encode(), f"the transport failed on it: {error}"))
            return
        for message in messages:
            await self._hub.wait_for_room()
            self._emit(MessageEvent(message))
        match kind, parsed:
            case EventKind.CONTROL, ApprovalRequestEvent() | AskRequestEvent() as request:
                await self._asking.ask(request)
            case EventKind.CONTROL, RequestCancelled(id=id, reason=reason):
                self._asking.withdraw(id, reason)
            case EventKind.TURN_END, _:
                self._emit(TurnCompleted(self._account.build_result(0.0)))
            case ((EventKind.TERMINAL_SUCCESS | EventKind.TERMINAL_ERROR), _):
                self._settle(event, failed=kind == EventKind.TERMINAL_ERROR)

    def _settle(self, event: Event, *, failed: bool) -> None:
        """The run is over: let the process end. What it still writes is read, so that it can."""
        self._account.settled = True
        if failed:
            self._failure = _build_result_error(self.name, event)
        self._stop()

    async def _read_text(self) -> None:
        """Bytes, and no JSON (spec agents 7.33)."""
        assert self.process is not None
        decode = codecs.getincrementaldecoder("utf-8")("replace")
        async for chunk in self.process.stdout:
            self._decoder.last = monotonic()
            await self._add_text(decode.decode(chunk))
        await self._add_text(decode.decode(b"", final=True))

    async def _add_text(self, text: str) -> None:
        if text:
            self._account.output.append(text)
            await self._hub.wait_for_room()
            self._emit(MessageEvent(StreamDeltaMessage(agent_type=self.name, session_id=self._account.session_id, delta=text)))

    def _emit(self, event: StreamEvent) -> None:
        self._hub.emit(model.OtherEvent(kind="agentboot", native=event))

    def _on_stderr_line(self, line: str) -> None:
        turn = self._hub.turn
        if turn is not None and not turn.crowded:  # a flood goes by; its end is kept anyway (spec agents 7.26)
            self._hub.emit(model.Stderr(line=line))

    async def _watch(self) -> None:
        """Tell once of each long silence (spec agents 7.35)."""
        told = 0.0
        while True:
            last = self._decoder.last
            if monotonic() - last >= self._limits.agent_silent and told != last:
                told = last
                self._hub.emit(model.StateChanged(state="stalled"))
            await asyncio.sleep(max(last + self._limits.agent_silent - monotonic(), self._limits.agent_silent / 10))

    # -- writing

    async def _write_initial_input(self) -> None:
        """The first input. Should that fail, the end of the process says more than a broken pipe (spec agents 7.13)."""
        try:
            async for value in _iter_values(self._spec.initial_input):
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
            self._stopping = asyncio.create_task(self._run_stop_ladder(), name=f"end of {self.name}")
        return self._stopping

    async def _run_stop_ladder(self) -> StopResult:
        assert self.process is not None
        try:
            async with asyncio.timeout(self._limits.stop_polite):
                await self._encoder.close()
        except (TimeoutError, SeraiError) as error:  # it does not read; then it does not hear of the end either
            log.debug("%s: its input was not ended: %s", self.name, error)
        return await self.process.stop(self._limits)

    def _build_result(self, stopped: StopResult) -> model.TurnResult:
        """The first that there is of: the agent's own word, the cancellation, its process's end, no result (spec agents 1.8)."""
        assert self.process is not None
        account, status = self._account, stopped.exit
        if self._failure is not None:
            account.exit_code = _get_exit_code(status, 0)
            raise self._build_failure(self._failure)
        by_itself = stopped.step in ("already", "polite")
        if account.settled:
            if by_itself and status is not None and not status.ok:
                account.warnings.append(f"its process ended badly after its result: {status}")
                log.warning("%s: %s", self.name, account.warnings[-1])
            return model.TurnResult(status="success", text=account.build_result(0.0).answer())
        account.exit_code = _get_exit_code(status, -1)
        if self._interrupted:
            return model.TurnResult(status="cancelled", error=self._interrupted)
        if by_itself and status is not None and not status.ok:
            cause = self.process.find_error()
            cause = None if isinstance(cause, ProcessError) else cause
            raise self._build_failure(process_error(self.name, status, self.process.stderr, cause=cause))
        if account.format == OutputFormat.TEXT:
            return model.TurnResult(status="success", text="".join(account.output))
        account.exit_code = _get_exit_code(status, 0) if by_itself else -1
        missing = NoTerminalResult(who=self.name)
        raise self._build_failure(
            ProtocolError(f"protocol error: {missing.message}", agent=self.name, cause=missing, kind="no_result")
        )

    def _build_failure(self, error: SeraiError) -> TurnFailed:
        return TurnFailed(error, model.TurnResult(status="error", error=str(error)))


def _get_exit_code(status: Any, otherwise: int) -> int:
    code = status.code if status is not None else None
    return otherwise if code is None else code


async def _iter_values(values: Iterable[Any] | AsyncIterable[Any] | None) -> AsyncIterable[Any]:
    if isinstance(values, AsyncIterable):
        async for value in values:
            yield value
    else:
        for value in values or ():
            yield value


def _build_result_error(agent: str, event: Event) -> ResultError:
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


class Runner:
    """Executes prompts, each in a process of its own.

    `transport` makes a transport, or is one: then each execution has a copy of it, so that none sees another's stamps.
    """

    def __init__(
        self,
        driver: AgentDriver,
        transport: AgentTransport | Callable[[], AgentTransport],
        factory: Factory | None = None,
        *,
        config: RunnerConfig | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._driver = driver
        self._transport = transport
        self._config = config or RunnerConfig()
        self._format = self._config.default_format
        self._bounds = limits or Limits()
        self._limits = self._config.build_limits(self._bounds)
        self._factory = factory or OsFactory(limits=self._limits)

    def type(self) -> AgentType:
        return self._driver.type()

    def is_available(self) -> bool:
        return self._driver.is_available()

    def set_default_format(self, format: OutputFormat) -> None:
        self._format = OutputFormat(format)

    def get_default_format(self) -> OutputFormat:
        return self._format

    async def execute(self, prompt: str, opts: ExecutionOptions | None = None) -> Handle:
        """Start it. Nothing is started when the prompt, the folder or the driver are not fit for it."""
        opts = opts or ExecutionOptions()
        agent = self.type()
        began = monotonic()
        if not prompt.strip():
            raise ValueError("an empty prompt asks nothing")
        if not self.is_available():
            raise AgentNotAvailable("agent CLI not available", who=agent)
        check_folder(opts.project_path)
        spec = await self._prepare(prompt, opts)
        account = RunAccount(format=OutputFormat(opts.output_format or self._format), session_id=opts.session_id)
        transport = self._make_transport(opts)
        driver = TransportDriver(agent, spec, transport, self._factory, account, limits=self._limits, routing=opts.routing)
        session = Session(driver, limits=self._limits)
        try:
            await session.open()
        except (SeraiError, OSError, ValueError) as error:
            failure = StartFailed(f"start process: {error}", who=agent, errno=getattr(error, "errno", 0) or 0, hint=_to_hint(error))
            if opts.store is not None and opts.session_id:
                store = opts.store
                notify_store(lambda: store.set_failed(opts.session_id, str(failure)))
            raise failure from error
        execution = Execution(
            session,
            account,
            translate=lambda event: _translate(event, account),
            respond=driver.respond,
            began=began,
            timeout=choose_timeout(opts.timeout, self._config.default_execution_timeout, self._bounds),
            store=opts.store,
            session_id=opts.session_id,
            folder=spec.work_dir or opts.project_path,
        )
        return Handle(execution, await execution.begin(prompt))

    async def _prepare(self, prompt: str, opts: ExecutionOptions) -> LaunchSpec:
        agent = self.type()
        try:
            spec = self._driver.prepare(prompt, opts)
            if inspect.isawaitable(spec):
                spec = await spec
        except Exception as error:
            raise InvalidLaunch(f"prepare launch spec: {error}", who=agent, hint=_to_hint(error)) from error
        if not spec.command:
            raise InvalidLaunch("empty launch command", who=agent)
        check_folder(spec.work_dir)
        return spec

    def _make_transport(self, opts: ExecutionOptions) -> AgentTransport:
        made = self._transport() if callable(self._transport) else copy.deepcopy(self._transport)
        if made is None:
            raise InvalidLaunch("the transport factory returned nothing", who=self.type())
        made.set_execution_context(opts.session_id, opts.chat_id, opts.platform, opts.bot_uuid)
        return made


def _translate(event: model.Event, account: RunAccount) -> list[StreamEvent]:
    if isinstance(event, model.OtherEvent) and event.kind == "agentboot":
        return [event.native]
    return to_stream_events(event, account)


def _to_hint(error: BaseException) -> str:
    return error.hint if isinstance(error, SeraiError) else ""


def new_runner(driver: AgentDriver, transport: AgentTransport | Callable[[], AgentTransport]) -> Runner:
    return Runner(driver, transport)


def new_runner_with_factory(
    driver: AgentDriver, transport: AgentTransport | Callable[[], AgentTransport], factory: Factory
) -> Runner:
    return Runner(driver, transport, factory)


NewRunner = new_runner
NewRunnerWithFactory = new_runner_with_factory
