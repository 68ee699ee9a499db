"""A model and a tool box that do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from serai.agents.resident.driver import Resident
from serai.agents.resident.run_context import RunContext
from serai.agents.session import Session
from serai.limits import Limits
from serai.model.approvals import Allow, Deny
from serai.model.events import Event, Stop, Usage, event_kind
from serai.model.provider import Chunk, Completion, Cost, Model, ModelMessage, ModelRequest
from serai.model.tools import ProgressCallback, TextBlock, ToolCall, ToolResult, ToolSpec

MODEL = Model("m1", "Model One", provider="test", cost=Cost(1.0, 2.0, 0.1, 1.5), context_window=0)
QUICK = Limits().but(model_wait=0.001, model_wait_most=0.002, interrupt=1.0)

Piece = Chunk | Completion | BaseException | asyncio.Event  # to be streamed, raised, or waited for
Answer = Sequence[Piece] | Callable[[ModelRequest], Sequence[Piece]]


def reply(text: str = "", *calls: ToolCall, stop: Stop | None = None, usage: Usage | None = None) -> Completion:
    message = ModelMessage("assistant", (TextBlock(text),) if text else (), calls)
    return Completion(message, stop or ("tool_use" if calls else "end"), usage or Usage(100, 10))


def call(name: str, id: str = "c1", /, **arguments: object) -> ToolCall:
    return ToolCall(name, arguments, id)


class Answers:
    """A provider with an answer for each request; the last one is given again when they run out."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[ModelRequest] = []
        self.closed = 0

    async def models(self) -> Sequence[Model]:
        return [MODEL]

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        try:
            for piece in answer(request) if callable(answer) else answer:
                if isinstance(piece, asyncio.Event):
                    await piece.wait()
                elif isinstance(piece, BaseException):
                    raise piece
                else:
                    yield piece
        finally:
            self.closed += 1


Work = Callable[[ToolCall, ProgressCallback | None], Awaitable[ToolResult]]


class Box:
    """Tools by name; each is a function of the call."""

    def __init__(self, **tools: Work | tuple[ToolSpec, Work]) -> None:
        self.tools = {name: tool if isinstance(tool, tuple) else (ToolSpec(name), tool) for name, tool in tools.items()}
        self.calls: list[ToolCall] = []

    def list(self) -> list[ToolSpec]:
        return [spec for spec, _ in self.tools.values()]

    async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
        self.calls.append(call)
        return await self.tools[call.name][1](call, tell)


async def echo(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
    return ToolResult.of(f"{call.name}: {call.arguments}")


async def hang(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
    await asyncio.Event().wait()
    raise AssertionError


async def allow_call(call: ToolCall) -> Allow | Deny:
    return Allow()


def resident(
    provider: Answers, box: Box | None = None, *, limits: Limits = QUICK, model: Model = MODEL, **harness: object
) -> Session:
    """A session in which every call may run, unless the test says otherwise."""
    options: dict[str, Any] = {"decide": allow_call} | harness
    parts = RunContext(model=model, provider=provider, limits=limits, **options)
    return Session(Resident(parts, box or Box(echo=echo)), limits=limits)


def conversation(session: Session) -> list[ModelMessage]:
    assert isinstance(session.driver, Resident)
    return session.driver.conversation.messages


def texts(messages: Sequence[ModelMessage]) -> list[str]:
    """Each as `role: text`, with its calls."""
    return [
        f"{message.role}: "
        + " ".join([*(b.text for b in message.content if isinstance(b, TextBlock)), *(f"{c.name}()" for c in message.calls)])
        for message in messages
    ]


def kinds(events: Sequence[Event]) -> list[str]:
    return [event_kind(event) for event in events]
