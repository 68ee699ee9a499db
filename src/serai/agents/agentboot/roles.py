"""Who takes part in an execution: the seed's interfaces of agents, drivers and transports (spec agents 1.1)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from serai.agents.agentboot.options import ExecutionOptions, LaunchSpec
from serai.agents.agentboot.result import Waited
from serai.agents.agentboot.stream import ControlResponse, StreamEvent
from serai.agents.agentboot.words import AgentType, Event, EventKind, OutputFormat

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Agent", "AgentDriver", "AgentTransport", "ExecutionHandle"]


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
