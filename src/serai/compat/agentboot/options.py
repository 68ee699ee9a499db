"""How an agent is executed, and what a driver makes of that: the seed's records (spec agents 1.4, 1.17, 1.18).

Options and launch specs count in seconds; `Config` has JSON names and so counts in nanoseconds, as the seed's JSON does. Also the
seed's interfaces of agents, drivers and transports (spec agents 1.1).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from serai.agents.drivers.claude.transcripts.files import InvalidPath
from serai.compat.agentboot.codec import AgentType, AgentTypeClaude, Event, EventKind, OutputFormat
from serai.compat.agentboot.messages import ControlResponse, StreamEvent, Waited
from serai.compat.agentboot.permissions import SECOND, PermissionConfig
from serai.limits import Limits

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

BUFFER = 100  # messages
GRACE = 5.0  # seconds


class LifecycleStore(Protocol):
    """Is told how far a run with a session id has come: running, then completed or failed. False means that the id is unknown.

    A start that fails is told as failed alone. Each run has exactly one end (spec agents 4.4).
    """

    def set_running(self, session_id: str, /) -> bool: ...
    def set_completed(self, session_id: str, response: str, /) -> bool: ...
    def set_failed(self, session_id: str, message: str, /) -> bool: ...


class ExecutionOptions(msgspec.Struct, kw_only=True):
    """`timeout` is in seconds: 0 is the default, a negative one means none. `env` has `NAME=value` entries, or is a mapping."""

    project_path: str = ""
    output_format: OutputFormat | None = None
    timeout: float = 0.0
    env: Sequence[str] | Mapping[str, str] = ()
    session_id: str = ""
    resume: bool = False
    chat_id: str = ""
    platform: str = ""
    bot_uuid: str = ""
    model: str = ""
    fallback_model: str = ""
    max_turns: int = 0
    allowed_tools: Sequence[str] = ()
    disallowed_tools: Sequence[str] = ()
    mcp_servers: Mapping[str, Any] = msgspec.field(default_factory=dict)
    strict_mcp_config: bool = False
    custom_system_prompt: str = ""
    append_system_prompt: str = ""
    permission_mode: str = ""
    settings_path: str = ""
    permission_prompt_tool: str = ""
    store: LifecycleStore | None = None

    @property
    def routing(self) -> dict[str, str]:
        """Where the run's person is reached."""
        stamps = {"chat_id": self.chat_id, "platform": self.platform, "bot_uuid": self.bot_uuid}
        return {name: stamp for name, stamp in stamps.items() if stamp}


class LaunchSpec(msgspec.Struct, kw_only=True):
    """How to start an agent's process. `env` None: ours; `work_dir` "": here.

    `initial_input` are values that are written to its stdin as JSON lines after the start; their end does not close it.
    """

    command: list[str] = []
    env: Sequence[str] | Mapping[str, str] | None = None
    work_dir: str = ""
    initial_input: Iterable[Any] | AsyncIterable[Any] | None = None


class Config(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The service's configuration. What is 0, empty or less has its default; durations are nanoseconds."""

    default_agent: AgentType = msgspec.field(default_factory=str)
    default_format: str = msgspec.field(default_factory=str)
    enable_stream_json: bool = msgspec.field(default_factory=lambda: True)
    stream_buffer_size: int = msgspec.field(default_factory=int)
    default_execution_timeout: int = msgspec.field(default_factory=int)
    claude_projects_dir: str = ""
    shutdown_grace_period: int = 0


def fill_defaults(config: Config) -> Config:
    """The same with its defaults; a run has an hour unless somebody says otherwise (design rule 6)."""
    hour = Limits().agent_turn or 0.0
    return msgspec.structs.replace(
        config,
        default_agent=config.default_agent or AgentTypeClaude,
        default_format=OutputFormat(config.default_format or OutputFormat.STREAM_JSON),
        stream_buffer_size=config.stream_buffer_size if config.stream_buffer_size > 0 else BUFFER,
        default_execution_timeout=config.default_execution_timeout or int(hour * SECOND),
        shutdown_grace_period=config.shutdown_grace_period if config.shutdown_grace_period > 0 else int(GRACE * SECOND),
    )


def default_config() -> Config:
    return fill_defaults(Config())


def default_permission_config() -> PermissionConfig:
    """Ours asks: the seed's `auto` has to be chosen (design rule 7)."""
    return PermissionConfig()


def choose_timeout(timeout: float, default: float, limits: Limits) -> float | None:
    """How long a run may take, in seconds: 0 is the default, and a negative one is None, which waits for ever."""
    for seconds in (timeout, default):
        if seconds:
            return seconds if seconds > 0 else None
    return limits.agent_turn


DefaultConfig = default_config
DefaultPermissionConfig = default_permission_config


class ExecutionHandle(Protocol):
    """One execution. `events` has one reader; the others may be called from any task, at any time.

    `async with` cancels it on the way out if it has not ended, and waits until nothing is left of it.
    """

    def events(self) -> AsyncIterator[StreamEvent]:
        """What happens, in order; ends when the process has and everything was told."""
        ...

    async def respond(self, request_id: str, response: ControlResponse) -> None:
        """Answer an approval or a question: `HandleClosed`, `UnknownRequestId`, `TypeError` or `NotDelivered` say why not."""
        ...

    async def wait(self) -> Waited:
        """The result and the error, the same for all who wait. Where nobody reads the events, nobody approves anything."""
        ...

    def cancel(self) -> None:
        """Have it end. Idempotent; `wait` tells when it has."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Agent(Protocol):
    """Takes prompts."""

    async def execute(self, prompt: str, opts: ExecutionOptions) -> ExecutionHandle:
        """Start it; raises when it cannot be started."""
        ...

    def is_available(self) -> bool: ...
    def type(self) -> AgentType: ...
    def set_default_format(self, format: OutputFormat) -> None: ...
    def get_default_format(self) -> OutputFormat: ...


class AgentDriver(Protocol):
    """Knows how to start one agent's program: where it is, its arguments, its environment, its first input."""

    def prepare(self, prompt: str, opts: ExecutionOptions) -> LaunchSpec:
        """Starts nothing, and says the same each time."""
        ...

    def is_available(self) -> bool: ...
    def type(self) -> AgentType: ...


class AgentTransport(Protocol):
    """Reads and writes one agent's protocol, for one execution: pure, no IO, no tasks."""

    def set_execution_context(self, session_id: str, chat_id: str, platform: str, bot_uuid: str) -> None:
        """Once, before the first event: what to stamp on requests."""
        ...

    def classify(self, event: Event) -> tuple[EventKind, StreamEvent | None]:
        """What it is; for a control event also the request, or the `RequestCancelled` that takes one back."""
        ...

    def accumulate_message(self, event: Event) -> Sequence[Any]:
        """The messages that it completes, in the agent's own types."""
        ...

    def encode_control_response(self, request_id: str, response: ControlResponse, original_input: dict[str, Any]) -> Any:
        """The frame that answers a request; None is an error."""
        ...


class RunnerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What is 0 or less has its default, except that a negative time-out means none. Seconds."""

    default_format: OutputFormat = OutputFormat.STREAM_JSON
    stream_buffer_size: int = BUFFER
    default_execution_timeout: float = 0.0
    shutdown_grace_period: float = GRACE

    def build_limits(self, limits: Limits) -> Limits:
        """Those of an execution's session."""
        grace = self.shutdown_grace_period if self.shutdown_grace_period > 0 else GRACE
        return limits.but(
            waiting=self.stream_buffer_size if self.stream_buffer_size > 0 else BUFFER,
            stop_polite=grace,
            stop_term=limits.agent_stop,
            interrupt=max(limits.interrupt, grace + limits.agent_stop + limits.stop_kill),
        )


def check_folder(path: str) -> None:
    """Before anything is started (spec agents 7.23)."""
    if path and not os.path.isdir(path):
        raise InvalidPath(path, "it is no folder" if os.path.exists(path) else "it does not exist")
