"""What an execution tells and what it is told back: the seed's two sealed unions (spec agents 1.10).

The fields after the seed's own are ours. Routing (`chat_id`, `platform`, `bot_uuid`) is stamped here and never into a tool's input.
"""

from __future__ import annotations

from typing import Any

import msgspec

from serai.agents.agentboot.result import Result
from serai.agents.agentboot.words import AgentType

__all__ = [
    "ApprovalRequestEvent", "ApprovalResponse", "AskRequestEvent", "AskResponse", "ControlResponse", "ErrorEvent", "MessageEvent",
    "NoiseEvent", "RequestCancelled", "StateChanged", "Stderr", "StreamEvent", "TurnCompleted", "TurnStarted",
]  # fmt: skip


class MessageEvent(msgspec.Struct, frozen=True):
    """A message of the agent; of which type is the agent's own business."""

    raw: Any


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    agent_type: AgentType = ""
    tool_name: str = ""
    input: dict[str, Any] = {}
    reason: str = ""
    session_id: str = ""
    chat_id: str = ""
    platform: str = ""
    bot_uuid: str = ""


class ApprovalRequestEvent(_Request, frozen=True, kw_only=True):
    """The agent wants to use a tool: `respond` with an `ApprovalResponse`."""

    title: str = ""
    display_name: str = ""
    description: str = ""
    suggestions: tuple[Any, ...] = ()
    blocked_path: str = ""
    decision_reason: str = ""
    decision_reason_type: str = ""
    agent_id: str = ""
    tool_use_id: str = ""
    requires_user_interaction: bool = False
    default_to_no: bool = False
    suppress_always_allow: bool = False


class AskRequestEvent(_Request, frozen=True, kw_only=True):
    """The agent asks what to do: `respond` with an `AskResponse`."""

    type: str = ""
    call_id: str = ""
    message: str = ""


class ErrorEvent(msgspec.Struct, frozen=True):
    """The error that `wait` will give as well, right before the end."""

    err: BaseException


class NoiseEvent(msgspec.Struct, frozen=True):
    """A line that is no frame of the agent's protocol; it went on after it (design rule 5)."""

    line: bytes
    why: str = ""


class RequestCancelled(msgspec.Struct, frozen=True):
    """An approval or a question was withdrawn: nobody waits for its answer."""

    id: str
    reason: str = ""


class TurnStarted(msgspec.Struct, frozen=True):
    prompt: str = ""


class TurnCompleted(msgspec.Struct, frozen=True):
    """A result. The run goes on when the agent has more to do; the last one is that of `wait`."""

    result: Result


class StateChanged(msgspec.Struct, frozen=True):
    state: str


class Stderr(msgspec.Struct, frozen=True):
    line: str


StreamEvent = (
    MessageEvent
    | ApprovalRequestEvent
    | AskRequestEvent
    | ErrorEvent
    | NoiseEvent
    | RequestCancelled
    | TurnStarted
    | TurnCompleted
    | StateChanged
    | Stderr
)


class ApprovalResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`updated_input` None: as it was asked."""

    approved: bool = False
    updated_input: dict[str, Any] | None = None
    reason: str = ""
    interrupt: bool = False
    updated_permissions: tuple[Any, ...] = ()
    remember: bool = False


class AskResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`selection` has the answer to each question by its text, `response` the one to the only one."""

    approved: bool = False
    updated_input: dict[str, Any] | None = None
    reason: str = ""
    response: str = ""
    selection: dict[str, Any] | None = None


ControlResponse = ApprovalResponse | AskResponse
