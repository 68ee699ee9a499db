"""A person's side of an execution: who answers what is asked, and the loop that puts it to them (spec agents 1.13)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from serai.agents.agentboot.result import Waited
from serai.agents.agentboot.roles import ExecutionHandle
from serai.agents.agentboot.stream import (
    ApprovalRequestEvent,
    ApprovalResponse,
    AskRequestEvent,
    AskResponse,
    ControlResponse,
    ErrorEvent,
    MessageEvent,
    RequestCancelled,
)
from serai.agents.agentboot.words import now
from serai.compat.agentboot.permissions import AskRequest, AskResult, PermissionRequest, PermissionResult

__all__ = ["FakePrompter", "MessageSink", "Prompter", "RunWithPrompter", "ask_request", "permission_request", "run_with_prompter"]

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
                    _hand(sink, raw)
                case ApprovalRequestEvent() | AskRequestEvent():
                    asking[event.id] = asyncio.create_task(_put(handle, prompter, event), name=f"ask {event.id}")
                case RequestCancelled(id=id) if id in asking:
                    asking.pop(id).cancel()
                case ErrorEvent(err=error):
                    log.warning("an execution failed: %s", error)
                    _hand(sink, event)
    finally:
        for task in asking.values():
            task.cancel()
        await asyncio.gather(*asking.values(), return_exceptions=True)
    return await handle.wait()


def _hand(sink: MessageSink | None, value: Any) -> None:
    if sink is not None:
        sink(value)


async def _put(handle: ExecutionHandle, prompter: Prompter, request: ApprovalRequestEvent | AskRequestEvent) -> None:
    try:
        response = await _answered(prompter, request)
    except Exception as error:  # there is always a safe answer (design rule 7)
        log.warning("the prompter failed when it was asked: %r", error)
        why = str(error) or type(error).__name__
        denied = ApprovalResponse if isinstance(request, ApprovalRequestEvent) else AskResponse
        response = denied(approved=False, reason=why)
    try:
        await handle.respond(request.id, response)
    except Exception as error:  # it was answered elsewhere or withdrawn in the meantime, or the agent is gone
        log.info("the answer to %r was not given: %s", request.id, error)


async def _answered(prompter: Prompter, request: ApprovalRequestEvent | AskRequestEvent) -> ControlResponse:
    if isinstance(request, AskRequestEvent):
        answer = await prompter.on_ask(ask_request(request))
        if not isinstance(answer, AskResult):
            raise TypeError(f"a question is answered with an AskResult, not {type(answer).__name__}")
        return AskResponse(
            approved=answer.approved,
            updated_input=answer.updated_input or None,
            reason=answer.reason,
            response=answer.response,
            selection=answer.selection or None,
        )
    result = await prompter.on_approval(permission_request(request))
    if not isinstance(result, PermissionResult):
        raise TypeError(f"an approval is answered with a PermissionResult, not {type(result).__name__}")
    return ApprovalResponse(
        approved=result.approved, updated_input=result.updated_input, reason=result.reason, remember=result.remember
    )


def permission_request(event: ApprovalRequestEvent) -> PermissionRequest:
    """The same as a prompter gets it."""
    return PermissionRequest(
        request_id=event.id,
        agent_type=event.agent_type,
        tool_name=event.tool_name,
        input=event.input,
        reason=event.reason or event.decision_reason,
        timestamp=now().isoformat().replace("+00:00", "Z"),
        session_id=event.session_id,
        bot_uuid=event.bot_uuid,
        chat_id=event.chat_id,
        platform=event.platform,
    )


def ask_request(event: AskRequestEvent) -> AskRequest:
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
