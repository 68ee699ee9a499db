"""The seed's callbacks: a handler that is put together from parts, and the loop that calls it (spec agents 1.14).

A part that is missing denies. Who wants the seed's auto-approve says so: `CompositeHandler(default=Allow())` (design rule 7).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, Self, TypeVar

import msgspec

from serai.agents.agentboot.prompting import run_with_prompter
from serai.agents.agentboot.result import Waited
from serai.agents.agentboot.roles import ExecutionHandle
from serai.agents.agentboot.stream import ErrorEvent
from serai.compat.agentboot.permissions import AskRequest, AskResult, PermissionRequest, PermissionResult
from serai.model.approvals import Allow

__all__ = [
    "ApprovalHandler", "AskHandler", "CompletionCallback", "CompletionResult", "CompositeHandler", "MessageHandler",
    "MessageStreamer", "NewCompositeHandler", "new_composite_handler", "run_with_handler",
]  # fmt: skip

log = logging.getLogger("serai.agents")

Told = TypeVar("Told")


class CompletionResult(msgspec.Struct, kw_only=True):
    success: bool = False
    duration_ms: int = 0
    session_id: str = ""
    error: str = ""
    extra_fields: dict[str, Any] = {}


class ApprovalHandler(Protocol):
    async def on_approval(self, request: PermissionRequest, /) -> PermissionResult: ...


class AskHandler(Protocol):
    async def on_ask(self, request: AskRequest, /) -> AskResult: ...


class CompletionCallback(Protocol):
    def on_complete(self, result: CompletionResult, /) -> object: ...


class MessageStreamer(Protocol):
    def on_message(self, message: Any, /) -> object: ...
    def on_error(self, error: BaseException, /) -> object: ...


class MessageHandler(ApprovalHandler, AskHandler, CompletionCallback, MessageStreamer, Protocol):
    """All of them."""


class CompositeHandler:
    """A `MessageHandler` of parts, each set by a method that returns the handler."""

    def __init__(self, *, default: Allow | None = None) -> None:
        """`default` is the answer to what has no handler; without one that is denied."""
        self._default = default
        self._streamer: MessageStreamer | None = None
        self._approval: ApprovalHandler | None = None
        self._ask: AskHandler | None = None
        self._completion: CompletionCallback | None = None

    # -- its parts

    def set_streamer(self, streamer: MessageStreamer) -> Self:
        self._streamer = streamer
        return self

    def set_approval_handler(self, handler: ApprovalHandler) -> Self:
        self._approval = handler
        return self

    def set_ask_handler(self, handler: AskHandler) -> Self:
        self._ask = handler
        return self

    def set_completion_callback(self, callback: CompletionCallback) -> Self:
        self._completion = callback
        return self

    def with_message_func(self, function: Callable[[Any], object]) -> Self:
        """For messages; who is told of errors stays."""
        self._streamer = _Streamer(function, self._streamer.on_error if self._streamer is not None else None)
        return self

    def with_error_func(self, function: Callable[[BaseException], object]) -> Self:
        """For errors: this one first, then whoever was told before."""
        before = self._streamer

        def both(error: BaseException) -> None:
            function(error)
            if before is not None:
                before.on_error(error)

        self._streamer = _Streamer(before.on_message if before is not None else None, both)
        return self

    def with_completion_func(self, function: Callable[[CompletionResult], object]) -> Self:
        self._completion = _Completion(function)
        return self

    # -- a MessageHandler

    def on_message(self, message: Any) -> object:
        return self._streamer.on_message(message) if self._streamer is not None else None

    def on_error(self, error: BaseException) -> None:
        if self._streamer is not None:
            self._streamer.on_error(error)

    def on_complete(self, result: CompletionResult) -> None:
        if self._completion is not None:
            self._completion.on_complete(result)

    async def on_approval(self, request: PermissionRequest) -> PermissionResult:
        if self._approval is not None:
            return await _awaited(self._approval.on_approval(request))
        if self._default is None:
            return PermissionResult(approved=False, reason="nobody is there to approve it")
        arguments = self._default.arguments
        return PermissionResult(approved=True, updated_input=request.input if arguments is msgspec.UNSET else arguments)

    async def on_ask(self, request: AskRequest) -> AskResult:
        if self._ask is not None:
            return await _awaited(self._ask.on_ask(request))
        if self._default is None:
            return AskResult(id=request.id, approved=False, reason="nobody is there to answer it")
        return AskResult(id=request.id, approved=True, updated_input=request.input)


class _Streamer:
    def __init__(self, message: Callable[[Any], object] | None, error: Callable[[BaseException], object] | None) -> None:
        self._message = message
        self._error = error

    def on_message(self, message: Any) -> object:
        return self._message(message) if self._message is not None else None

    def on_error(self, error: BaseException) -> object:
        return self._error(error) if self._error is not None else None


class _Completion:
    def __init__(self, function: Callable[[CompletionResult], object]) -> None:
        self.on_complete = function


async def _awaited(answer: Awaitable[Told] | Told) -> Told:
    """Handlers may be plain functions too."""
    return await answer if inspect.isawaitable(answer) else answer


async def run_with_handler(handle: ExecutionHandle, handler: MessageHandler) -> Waited:
    """Play an execution to its end by callbacks: messages, errors, requests, and the completion last."""

    def sink(value: Any) -> None:
        if isinstance(value, ErrorEvent):
            handler.on_error(value.err)
            return
        try:
            handler.on_message(value)
        except Exception as error:  # a handler's own failure does not end the run
            log.exception("a message handler failed")
            handler.on_error(error)

    waited = await run_with_prompter(handle, handler, sink)
    result = waited.result
    completion = CompletionResult(
        success=result.is_success(),
        duration_ms=round(result.duration * 1000),
        session_id=result.get_session_id(),
        error=result.error,
        extra_fields=dict(result.metadata),
    )
    handler.on_complete(completion)
    return waited


def new_composite_handler() -> CompositeHandler:
    return CompositeHandler()


NewCompositeHandler = new_composite_handler
