"""The seed's runner: a driver and a transport of one agent, and a factory for its process, as an `Agent` (spec agents 1.8)."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable
from time import monotonic

import msgspec

from serai.agents.agentboot.errors import AgentNotAvailable, InvalidLaunch, StartFailed
from serai.agents.agentboot.execution import Execution, Handle, keep, told
from serai.agents.agentboot.options import BUFFER, GRACE, ExecutionOptions, LaunchSpec, patience
from serai.agents.agentboot.playing import TransportDriver
from serai.agents.agentboot.process import Factory, OsFactory
from serai.agents.agentboot.result import Account
from serai.agents.agentboot.roles import AgentDriver, AgentTransport
from serai.agents.agentboot.stream import StreamEvent
from serai.agents.agentboot.words import AgentType, OutputFormat
from serai.agents.history.errors import InvalidPath
from serai.agents.session import Session
from serai.errors import SeraiError
from serai.limits import Limits
from serai.model import events as model

__all__ = ["NewRunner", "NewRunnerWithFactory", "Runner", "RunnerConfig", "must_be_folder", "new_runner", "new_runner_with_factory"]


class RunnerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What is 0 or less has its default, except that a negative time-out means none. Seconds."""

    default_format: OutputFormat = OutputFormat.STREAM_JSON
    stream_buffer_size: int = BUFFER
    default_execution_timeout: float = 0.0
    shutdown_grace_period: float = GRACE

    def limits(self, limits: Limits) -> Limits:
        """Those of an execution's session."""
        grace = self.shutdown_grace_period if self.shutdown_grace_period > 0 else GRACE
        return limits.but(
            waiting=self.stream_buffer_size if self.stream_buffer_size > 0 else BUFFER,
            stop_polite=grace,
            stop_term=limits.agent_stop,
            interrupt=max(limits.interrupt, grace + limits.agent_stop + limits.stop_kill),
        )


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
        self._limits = self._config.limits(self._bounds)
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
        must_be_folder(opts.project_path)
        spec = await self._prepared(prompt, opts)
        account = Account(format=OutputFormat(opts.output_format or self._format), session_id=opts.session_id)
        transport = self._fresh(opts)
        driver = TransportDriver(agent, spec, transport, self._factory, account, limits=self._limits, routing=opts.routing)
        session = Session(driver, limits=self._limits)
        try:
            await session.open()
        except (SeraiError, OSError, ValueError) as error:
            failure = StartFailed(f"start process: {error}", who=agent, errno=getattr(error, "errno", 0) or 0, hint=_hint(error))
            if opts.store is not None and opts.session_id:
                store = opts.store
                keep(lambda: store.set_failed(opts.session_id, str(failure)))
            raise failure from error
        execution = Execution(
            session,
            account,
            translate=lambda event: _translated(event, account),
            respond=driver.respond,
            began=began,
            timeout=patience(opts.timeout, self._config.default_execution_timeout, self._bounds),
            store=opts.store,
            session_id=opts.session_id,
            folder=spec.work_dir or opts.project_path,
        )
        return Handle(execution, await execution.begin(prompt))

    async def _prepared(self, prompt: str, opts: ExecutionOptions) -> LaunchSpec:
        agent = self.type()
        try:
            spec = self._driver.prepare(prompt, opts)
            if inspect.isawaitable(spec):
                spec = await spec
        except Exception as error:
            raise InvalidLaunch(f"prepare launch spec: {error}", who=agent, hint=_hint(error)) from error
        if not spec.command:
            raise InvalidLaunch("empty launch command", who=agent)
        must_be_folder(spec.work_dir)
        return spec

    def _fresh(self, opts: ExecutionOptions) -> AgentTransport:
        made = self._transport() if callable(self._transport) else copy.deepcopy(self._transport)
        if made is None:
            raise InvalidLaunch("the transport factory returned nothing", who=self.type())
        made.set_execution_context(opts.session_id, opts.chat_id, opts.platform, opts.bot_uuid)
        return made


def _translated(event: model.Event, account: Account) -> list[StreamEvent]:
    if isinstance(event, model.OtherEvent) and event.kind == "agentboot":
        return [event.native]
    return told(event, account)


def _hint(error: BaseException) -> str:
    return error.hint if isinstance(error, SeraiError) else ""


def must_be_folder(path: str) -> None:
    """Before anything is started (spec agents 7.23)."""
    if path and not os.path.isdir(path):
        raise InvalidPath(path, "it is no folder" if os.path.exists(path) else "it does not exist")


def new_runner(driver: AgentDriver, transport: AgentTransport | Callable[[], AgentTransport]) -> Runner:
    return Runner(driver, transport)


def new_runner_with_factory(
    driver: AgentDriver, transport: AgentTransport | Callable[[], AgentTransport], factory: Factory
) -> Runner:
    return Runner(driver, transport, factory)


NewRunner = new_runner
NewRunnerWithFactory = new_runner_with_factory
