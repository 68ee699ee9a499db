"""The events of a session in the seed's messages (spec agents 1.19). What an agent tells in these words itself stays so."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from serai.agents.agentboot.messages import (
    AgentMessage,
    AssistantMessage,
    ContentBlock,
    GenericMessage,
    ResultMessage,
    StreamDeltaMessage,
    message_from_event,
)
from serai.agents.agentboot.stream import NoiseEvent
from serai.agents.agentboot.words import AgentType, Event, EventTypeSystem, EventTypeToolResult, EventTypeToolUse
from serai.model import events as model
from serai.model.tools import TextBlock

__all__ = ["messages_of", "noise_of"]

_STATUS = {"success": "success", "error": "error", "cancelled": "cancelled", "denied": "permission_denied"}


def messages_of(event: model.Event, agent: AgentType, session: str) -> list[AgentMessage]:
    """The messages that an event stands for: one, or none."""
    at = datetime.fromtimestamp(event.at, UTC)
    native = event.result.native if isinstance(event, model.TurnEnded) else event.native
    if isinstance(native, dict) and isinstance(kind := native.get("type"), str):  # an agent that speaks the seed's words
        return [message_from_event(Event(kind, {"session_id": session, **native}, at), agent)]
    common: dict[str, Any] = {"agent_type": agent, "session_id": event.session or session, "timestamp": at}
    beside = {"parent_tool_use_id": event.lane} if event.lane else {}
    match event:
        case model.Message():
            blocks = [ContentBlock(type="text", text=block.text) for block in event.content if isinstance(block, TextBlock)]
            extra = {**beside, **({"model": event.model} if event.model else {})}
            return [AssistantMessage(text="".join(block.text for block in blocks), content=blocks, extra=extra, **common)]
        case model.Text() if not event.lane:
            return [StreamDeltaMessage(delta=event.text, **common)]
        case model.ToolCalled(call=call):
            named = call.native or call
            data = {"tool_id": call.id, "tool_name": named.name, "input": named.arguments, **beside}
            return [GenericMessage(type=EventTypeToolUse, data=data, **common)]
        case model.ToolEnded(call=call, result=result):
            data = {"tool_use_id": call.id, "content": result.text, "is_error": result.is_error, **beside}
            return [GenericMessage(type=EventTypeToolResult, data=data, **common)]
        case model.Retrying():
            told = {"attempt": event.attempt, "max_retries": event.most, "retry_delay_ms": round(event.wait * 1000)}
            data = {"subtype": "api_retry", **told, "error": event.error}
            return [GenericMessage(type=EventTypeSystem, data=data, **common)]
        case model.NoticeEvent(notice=notice):
            data = {"subtype": "notice", "level": notice.level, "text": notice.text, **beside}
            return [GenericMessage(type=EventTypeSystem, data=data, **common)]
        case model.TurnEnded(result=result):
            return [_result(result, common)]
    return []


def _result(result: model.TurnResult, common: dict[str, Any]) -> ResultMessage:
    return ResultMessage(
        status=_STATUS[result.status],
        message=result.text,
        cost_usd=result.usage.cost_usd or 0.0,
        duration_ms=round(result.seconds * 1000),
        steps_completed=result.steps,
        is_error=result.status == "error",
        error=result.error,
        **common,
    )


def noise_of(event: model.Event) -> NoiseEvent | None:
    """A line that was no frame."""
    if isinstance(event, model.OtherEvent) and event.kind == "noise":
        text = event.native
        return NoiseEvent(text.encode() if isinstance(text, str) else b"", "not a JSON object")
    return None
