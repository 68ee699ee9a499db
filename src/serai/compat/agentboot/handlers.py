"""A person's side of an execution: a prompter that answers requests, and the loop that asks it (spec agents 1.13).

Also the seed's callbacks: a handler that is put together from parts, and the loop that calls it (spec agents 1.14). A part that is
missing denies. The seed's auto-approve has to be chosen: `CompositeHandler(default=Allow())` (design rule 7).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, Self, TypeVar

import msgspec

from serai.compat.agentboot.codec import get_now
from serai.compat.agentboot.messages import (
    ApprovalRequestEvent,
    ApprovalResponse,
    AskRequestEvent,
    AskResponse,
    ControlResponse,
    ErrorEvent,
    MessageEvent,
    RequestCancelled,
    Waited,
)
from serai.compat.agentboot.options import ExecutionHandle
from serai.compat.agentboot.permissions import AskRequest, AskResult, PermissionRequest, PermissionResult
from serai.model.approvals import Allow

log = logging.getLogger("serai.agents")

MessageSink = Callable[[Any], object]


class Prompter(Protocol):
    """Answers approvals and questions. Cancelled when nobody waits any more; what fails is a no.

    What is to be remembered it remembers itself: an approval of the same tool is not put to the person again.
    """

    async def on_approval(self, request: PermissionRequest, /) -> PermissionResult: ...
    async def on_ask(self, request: AskRequest, /) -> AskResult: ...


async def run_with_prompter(handle: ExecutionHandle, prompter: Prompter, sink: MessageSink | None = None) -> Waited:
    """Play an execution to its end: messages and errors to the sink, requests to the prompter, its answers back.

    Each request has a task of its own, as an agent may have several open and goes on meanwhile; one that is withdrawn is taken back
    from the prompter.
    """
    asking: dict[str, asyncio.Task[None]] = {}
    try:
        async for event in handle.events():
            match event:
                case MessageEvent(raw=raw):
                    _send_to_sink(sink, raw)
                case ApprovalRequestEvent() | AskRequestEvent():
                    asking[event.id] = asyncio.create_task(_answer_request(handle, prompter, event), name=f"ask {event.id}")
                case RequestCancelled(id=id) if id in asking:
                    asking.pop(id).cancel()
                case ErrorEvent(err=error):
                    log.warning("an execution failed: %s", error)
                    _send_to_sink(sink, event)
    finally:
        for task in asking.values():
            task.cancel()
        await asyncio.gather(*asking.values(), return_exceptions=True)
    return await handle.wait()


def _send_to_sink(sink: MessageSink | None, value: Any) -> None:
    if sink is not None:
        sink(value)


async def _answer_request(handle: ExecutionHandle, prompter: Prompter, request: ApprovalRequestEvent | AskRequestEvent) -> None:
    try:
        response = await _ask_prompter(prompter, request)
    except Exception as error:  # there is always a safe answer (design rule 7)
        log.warning("the prompter failed when it was asked: %r", error)
        why = str(error) or type(error).__name__
        denied = ApprovalResponse if isinstance(request, ApprovalRequestEvent) else AskResponse
        response = denied(approved=False, reason=why)
    try:
        await handle.respond(request.id, response)
    except Exception as error:  # it was answered elsewhere or withdrawn in the meantime, or the agent is gone
        log.info("the answer to %r was not given: %s", request.id, error)


async def _ask_prompter(prompter: Prompter, request: ApprovalRequestEvent | AskRequestEvent) -> ControlResponse:
    if isinstance(request, AskRequestEvent):
        answer = await prompter.on_ask(build_ask_request(request))
        if not isinstance(answer, AskResult):
            raise TypeError(f"a question is answered with an AskResult, not {type(answer).__name__}")
        return AskResponse(
            approved=answer.approved,
            updated_input=answer.updated_input or None,
            reason=answer.reason,
            response=answer.response,
            selection=answer.selection or None,
        )
    result = await prompter.on_approval(build_permission_request(request))
    if not isinstance(result, PermissionResult):
        raise TypeError(f"an approval is answered with a PermissionResult, not {type(result).__name__}")
    return ApprovalResponse(
        approved=result.approved, updated_input=result.updated_input, reason=result.reason, remember=result.remember
    )


def build_permission_request(event: ApprovalRequestEvent) -> PermissionRequest:
    """The same as a prompter gets it."""
    return PermissionRequest(
        request_id=event.id,
        agent_type=event.agent_type,
        tool_name=event.tool_name,
        input=event.input,
        reason=event.reason or event.decision_reason,
        timestamp=get_now().isoformat().replace("+00:00", "Z"),
        session_id=event.session_id,
        bot_uuid=event.bot_uuid,
        chat_id=event.chat_id,
        platform=event.platform,
    )


def build_ask_request(event: AskRequestEvent) -> AskRequest:
    """The same as a prompter gets it."""
    return AskRequest(
        id=event.id,
        type=event.type or "question",
        agent_type=event.agent_type,
        platform=event.platform,
        chat_id=event.chat_id,
        bot_uuid=event.bot_uuid,
        session_id=event.session_id,
        tool_name=event.tool_name,
        input=event.input,
        message=event.message,
        call_id=event.call_id,
        reason=event.reason,
    )


class FakePrompter:
    """Answers from a script and remembers what it was asked: for tests and demonstrations (spec agents 5.1).

    Without a `default` it denies what the script does not answer (design rule 7): `FakePrompter(default=True)` approves as the
    seed's does, each call with its own input. `delay` is how long each answer takes, in seconds.
    """

    def __init__(
        self,
        approvals: Iterable[PermissionResult] = (),
        asks: Iterable[AskResult] = (),
        *,
        default: bool = False,
        always: Iterable[str] = (),
        delay: float = 0.0,
    ) -> None:
        self.approvals = deque(approvals)
        self.asks = deque(asks)
        self.always = set(always)  # tools that are allowed without using up an answer
        self.approval_requests: list[PermissionRequest] = []
        self.ask_requests: list[AskRequest] = []
        self._default = default
        self._delay = delay

    async def on_approval(self, request: PermissionRequest) -> PermissionResult:
        self.approval_requests.append(request)
        await asyncio.sleep(self._delay)
        if request.tool_name in self.always:
            return PermissionResult(approved=True, updated_input=request.input, remember=True)
        if not self.approvals:
            why = "" if self._default else "nobody is there to approve it"
            return PermissionResult(approved=self._default, reason=why, updated_input=request.input if self._default else None)
        result = self.approvals.popleft()
        if result.approved and result.remember:
            self.always.add(request.tool_name)
        return result

    async def on_ask(self, request: AskRequest) -> AskResult:
        self.ask_requests.append(request)
        await asyncio.sleep(self._delay)
        if self.asks:
            return msgspec.structs.replace(self.asks.popleft(), id=request.id)
        why = "" if self._default else "nobody is there to answer it"
        return AskResult(id=request.id, approved=self._default, reason=why, updated_input=request.input if self._default else {})


RunWithPrompter = run_with_prompter


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

        def call_both(error: BaseException) -> None:
            function(error)
            if before is not None:
                before.on_error(error)

        self._streamer = _Streamer(before.on_message if before is not None else None, call_both)
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
            return await _await_if_needed(self._approval.on_approval(request))
        if self._default is None:
            return PermissionResult(approved=False, reason="nobody is there to approve it")
        arguments = self._default.arguments
        return PermissionResult(approved=True, updated_input=request.input if arguments is msgspec.UNSET else arguments)

    async def on_ask(self, request: AskRequest) -> AskResult:
        if self._ask is not None:
            return await _await_if_needed(self._ask.on_ask(request))
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


async def _await_if_needed(answer: Awaitable[Told] | Told) -> Told:
    """Handlers may be plain functions too."""
    return await answer if inspect.isawaitable(answer) else answer


async def run_with_handler(handle: ExecutionHandle, handler: MessageHandler) -> Waited:
    """Play an execution to its end by callbacks: messages, errors, requests, and the completion last."""

    def dispatch(value: Any) -> None:
        if isinstance(value, ErrorEvent):
            handler.on_error(value.err)
            return
        try:
            handler.on_message(value)
        except Exception as error:  # a handler's own failure does not end the run
            log.exception("a message handler failed")
            handler.on_error(error)

    waited = await run_with_prompter(handle, handler, dispatch)
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
