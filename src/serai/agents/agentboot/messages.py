"""The seed's neutral messages: what any agent says, with the seed's JSON names (spec agents 1.19)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol, Self, runtime_checkable

import msgspec

from serai.agents.agentboot.words import (
    AgentType,
    Event,
    EventTypeAssistant,
    EventTypeInit,
    EventTypePermissionRequest,
    EventTypePermissionResult,
    EventTypeResult,
    EventTypeStreamDelta,
    now,
)

__all__ = [
    "AgentMessage", "AssistantMessage", "BaseMessage", "ContentBlock", "GenericMessage", "InitMessage", "MessageFromEvent",
    "NewAssistantMessage", "NewInitMessage", "NewPermissionRequestMessage", "NewPermissionResultMessage", "NewResultMessage",
    "NewStreamDeltaMessage", "PermissionRequestMessage", "PermissionResultMessage", "ResultMessage", "StreamDeltaMessage",
    "message_from_event", "new_assistant_message", "new_init_message", "new_permission_request_message",
    "new_permission_result_message", "new_result_message", "new_stream_delta_message",
]  # fmt: skip


@runtime_checkable
class AgentMessage(Protocol):
    """What every message can tell."""

    def get_type(self) -> str: ...
    def get_timestamp(self) -> datetime: ...
    def get_session_id(self) -> str: ...
    def get_agent_type(self) -> AgentType: ...
    def get_raw_data(self) -> dict[str, Any]: ...
    def to_event(self) -> Event: ...


def _type(name: str) -> Any:
    """A default that is written all the same: what is equal to a plain one is left out."""
    return msgspec.field(default_factory=lambda: name)


class BaseMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What all messages have. Empty optional fields are left out of its JSON."""

    type: str
    agent_type: AgentType
    session_id: str = ""
    timestamp: datetime = msgspec.field(default_factory=now)

    def get_type(self) -> str:
        return self.type

    def get_timestamp(self) -> datetime:
        return self.timestamp

    def get_session_id(self) -> str:
        return self.session_id

    def get_agent_type(self) -> AgentType:
        return self.agent_type

    def get_raw_data(self) -> dict[str, Any]:
        """Its JSON, as data."""
        data = msgspec.to_builtins(self)
        assert isinstance(data, dict)
        return data

    def to_event(self) -> Event:
        data = self.get_raw_data()
        del data["type"], data["timestamp"]
        return Event(self.type, self._as_data(data), self.timestamp)

    def _as_data(self, data: dict[str, Any]) -> dict[str, Any]:
        return data

    @classmethod
    def _read(cls, event: Event, agent_type: AgentType) -> Self:
        """From an event that may be an agent's own: only what fits is taken."""
        data = event.data
        given = {name: value for name in cls.__struct_fields__ if (value := data.get(name)) is not None and name != "timestamp"}
        given |= {"type": event.type, "agent_type": agent_type or str(data.get("agent_type", ""))}
        message = cls(**{name: _fitting(cls, name, value) for name, value in given.items()})
        message.timestamp = _when(event)
        return message


def _when(event: Event) -> datetime:
    """The seed's language has the year 1 for a time that was never set."""
    return event.timestamp if event.timestamp.year > 1 else now()


def _fitting(cls: type[BaseMessage], name: str, value: Any) -> Any:
    """The value, converted where another kind of number came; what cannot be is the field's zero."""
    kind = _KINDS[cls][name]
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        if kind is int and isinstance(value, float):
            return int(value)
        zero = {str: "", dict: {}, list: []}
        return zero.get(getattr(kind, "__origin__", kind), 0 if kind in (int, float) else False)


class ContentBlock(msgspec.Struct, kw_only=True, omit_defaults=True):
    type: str
    text: str = ""
    tool_id: str = ""
    tool_name: str = ""
    input: dict[str, Any] = {}


class InitMessage(BaseMessage, kw_only=True, omit_defaults=True):
    type: str = _type(EventTypeInit)
    max_iterations: int = 0


class AssistantMessage(BaseMessage, kw_only=True, omit_defaults=True):
    type: str = _type(EventTypeAssistant)
    text: str = ""
    content: list[ContentBlock] = []
    extra: dict[str, Any] = {}

    def get_text(self) -> str:
        """Its text, else that of its blocks."""
        return self.text or "".join(block.text for block in self.content if block.type == "text")

    def _as_data(self, data: dict[str, Any]) -> dict[str, Any]:
        """The text is `message` there, and what is extra is among the rest."""
        text, extra = data.pop("text", ""), data.pop("extra", {})
        return {**extra, **data, **({"message": text} if text else {})}

    @classmethod
    def _read(cls, event: Event, agent_type: AgentType) -> Self:
        """`message` is a text, or an agent's own object with blocks of its own."""
        data = dict(event.data)
        said = data.pop("message", None)
        if isinstance(said, Mapping):
            data["content"] = [_block(block) for block in _list(said.get("content")) if isinstance(block, Mapping)]
        elif isinstance(said, str):
            data["text"] = said
        known = {*cls.__struct_fields__, "message"}
        data.setdefault("extra", {name: value for name, value in data.items() if name not in known})
        message = super()._read(Event(event.type, data, event.timestamp), agent_type)
        message.text = message.get_text()
        return message


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [{"type": "text", "text": value}] if isinstance(value, str) else []


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    """An agent's own content block in our names."""
    text = block.get("text", block.get("thinking", ""))
    made: dict[str, Any] = {"type": str(block.get("type", "")), "text": text if isinstance(text, str) else ""}
    if isinstance(given := block.get("input"), dict):
        made["input"] = given
    for ours, theirs in (("tool_id", ("tool_id", "tool_use_id", "id")), ("tool_name", ("tool_name", "name"))):
        made[ours] = next((value for key in theirs if isinstance(value := block.get(key), str)), "")
    return made


class PermissionRequestMessage(BaseMessage, kw_only=True, omit_defaults=True):
    type: str = _type(EventTypePermissionRequest)
    request_id: str = _type("")
    tool_name: str = _type("")
    input: dict[str, Any] | None = _type(None)  # type: ignore[arg-type]
    reason: str = ""
    step: int = 0
    total: int = 0


class PermissionResultMessage(BaseMessage, kw_only=True, omit_defaults=True):
    type: str = _type(EventTypePermissionResult)
    request_id: str = _type("")
    approved: bool = _type(False)  # type: ignore[arg-type]
    reason: str = ""
    remember: bool = False


class ResultMessage(BaseMessage, kw_only=True, omit_defaults=True):
    """`status` is success, error, cancelled, permission_denied or ask_denied."""

    type: str = _type(EventTypeResult)
    status: str = _type("")
    message: str = ""
    cost_usd: float = 0.0
    duration_ms: int = 0
    steps_completed: int = 0
    is_error: bool = False
    error: str = ""

    def is_success(self) -> bool:
        return self.status == "success" and not self.is_error

    @classmethod
    def _read(cls, event: Event, agent_type: AgentType) -> Self:
        """An agent's own result has other names for some of it."""
        data = dict(event.data)
        if (cost := data.get("total_cost_usd")) is not None:
            data["cost_usd"] = cost
        if "status" not in data and isinstance(subtype := data.get("subtype"), str):
            data["status"] = "success" if subtype == "success" and not data.get("is_error") else "error"
        for ours, theirs in (("message", "result"), ("steps_completed", "num_turns")):
            if ours not in data and theirs in data:
                data[ours] = data[theirs]
        return super()._read(Event(event.type, data, event.timestamp), agent_type)


class StreamDeltaMessage(BaseMessage, kw_only=True, omit_defaults=True):
    type: str = _type(EventTypeStreamDelta)
    delta: str = _type("")


class GenericMessage(BaseMessage, kw_only=True, omit_defaults=True):
    """Any other message, with all that it says."""

    data: dict[str, Any] = {}

    def get_raw_data(self) -> dict[str, Any]:
        return dict(self.data)

    def to_event(self) -> Event:
        return Event(self.type, dict(self.data), self.timestamp)


_FAMILY: dict[str, type[BaseMessage]] = {
    EventTypeInit: InitMessage,
    EventTypeAssistant: AssistantMessage,
    EventTypePermissionRequest: PermissionRequestMessage,
    EventTypePermissionResult: PermissionResultMessage,
    EventTypeResult: ResultMessage,
    EventTypeStreamDelta: StreamDeltaMessage,
}
_KINDS = {cls: {item.encode_name: item.type for item in msgspec.structs.fields(cls)} for cls in _FAMILY.values()}


def message_from_event(event: Event, agent_type: AgentType = "") -> AgentMessage:
    """What an event says, whether it is a message's own or an agent's frame; a type that is not of the family is generic."""
    cls = _FAMILY.get(event.type)
    if cls is not None:
        return cls._read(event, agent_type)
    session = event.data.get("session_id", "")
    return GenericMessage(
        type=event.type,
        agent_type=agent_type or str(event.data.get("agent_type", "")),
        session_id=session if isinstance(session, str) else "",
        timestamp=_when(event),
        data=event.data,
    )


def new_init_message(agent_type: AgentType, session_id: str = "", max_iterations: int = 0) -> InitMessage:
    return InitMessage(agent_type=agent_type, session_id=session_id, max_iterations=max_iterations)


def new_assistant_message(agent_type: AgentType, session_id: str = "", text: str = "") -> AssistantMessage:
    return AssistantMessage(agent_type=agent_type, session_id=session_id, text=text)


def new_permission_request_message(
    agent_type: AgentType, session_id: str, request_id: str, tool_name: str, input: dict[str, Any], reason: str = ""
) -> PermissionRequestMessage:
    return PermissionRequestMessage(
        agent_type=agent_type, session_id=session_id, request_id=request_id, tool_name=tool_name, input=input, reason=reason
    )


def new_permission_result_message(
    agent_type: AgentType, session_id: str, request_id: str, approved: bool, reason: str = ""
) -> PermissionResultMessage:
    return PermissionResultMessage(
        agent_type=agent_type, session_id=session_id, request_id=request_id, approved=approved, reason=reason
    )


def new_result_message(agent_type: AgentType, session_id: str, status: str, message: str = "") -> ResultMessage:
    return ResultMessage(agent_type=agent_type, session_id=session_id, status=status, message=message)


def new_stream_delta_message(agent_type: AgentType, session_id: str, delta: str) -> StreamDeltaMessage:
    return StreamDeltaMessage(agent_type=agent_type, session_id=session_id, delta=delta)


MessageFromEvent = message_from_event
NewInitMessage = new_init_message
NewAssistantMessage = new_assistant_message
NewPermissionRequestMessage = new_permission_request_message
NewPermissionResultMessage = new_permission_result_message
NewResultMessage = new_result_message
NewStreamDeltaMessage = new_stream_delta_message
