"""The seed's neutral messages, with its JSON names (spec agents 1.19), and its `Result` with its helpers (spec agents 1.15).

Also the seed's two sealed unions: the events of an execution and the responses to it (spec agents 1.10). The fields after the
seed's own are ours. Routing (`chat_id`, `platform`, `bot_uuid`) is stamped here and never into a tool's input.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import msgspec

from serai.compat.agentboot.codec import (
    NOISE,
    AgentType,
    Event,
    EventTypeAssistant,
    EventTypeInit,
    EventTypePermissionRequest,
    EventTypePermissionResult,
    EventTypeResult,
    EventTypeStreamDelta,
    OutputFormat,
    get_now,
    parse_event,
)
from serai.wire.stream import split_lines


@runtime_checkable
class AgentMessage(Protocol):
    """What every message can tell."""

    def get_type(self) -> str: ...
    def get_timestamp(self) -> datetime: ...
    def get_session_id(self) -> str: ...
    def get_agent_type(self) -> AgentType: ...
    def get_raw_data(self) -> dict[str, Any]: ...
    def to_event(self) -> Event: ...


def _make_field(name: str) -> Any:
    """A default that is written all the same: what is equal to a plain one is left out."""
    return msgspec.field(default_factory=lambda: name)


class BaseMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What all messages have. Empty optional fields are left out of its JSON."""

    type: str
    agent_type: AgentType
    session_id: str = ""
    timestamp: datetime = msgspec.field(default_factory=get_now)

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
        return Event(self.type, self._to_data(data), self.timestamp)

    def _to_data(self, data: dict[str, Any]) -> dict[str, Any]:
        return data

    @classmethod
    def _read(cls, event: Event, agent_type: AgentType) -> Self:
        """From an event that may be an agent's own: only what fits is taken."""
        data = event.data
        given = {name: value for name in cls.__struct_fields__ if (value := data.get(name)) is not None and name != "timestamp"}
        given |= {"type": event.type, "agent_type": agent_type or str(data.get("agent_type", ""))}
        message = cls(**{name: _convert_value(cls, name, value) for name, value in given.items()})
        message.timestamp = _get_time(event)
        return message


def _get_time(event: Event) -> datetime:
    """The seed's language has the year 1 for a time that was never set."""
    return event.timestamp if event.timestamp.year > 1 else get_now()


def _convert_value(cls: type[BaseMessage], name: str, value: Any) -> Any:
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
    type: str = _make_field(EventTypeInit)
    max_iterations: int = 0


class AssistantMessage(BaseMessage, kw_only=True, omit_defaults=True):
    type: str = _make_field(EventTypeAssistant)
    text: str = ""
    content: list[ContentBlock] = []
    extra: dict[str, Any] = {}

    def get_text(self) -> str:
        """Its text, else that of its blocks."""
        return self.text or "".join(block.text for block in self.content if block.type == "text")

    def _to_data(self, data: dict[str, Any]) -> dict[str, Any]:
        """The text is `message` there, and what is extra is among the rest."""
        text, extra = data.pop("text", ""), data.pop("extra", {})
        return {**extra, **data, **({"message": text} if text else {})}

    @classmethod
    def _read(cls, event: Event, agent_type: AgentType) -> Self:
        """`message` is a text, or an agent's own object with blocks of its own."""
        data = dict(event.data)
        said = data.pop("message", None)
        if isinstance(said, Mapping):
            data["content"] = [_to_block(block) for block in _to_list(said.get("content")) if isinstance(block, Mapping)]
        elif isinstance(said, str):
            data["text"] = said
        known = {*cls.__struct_fields__, "message"}
        data.setdefault("extra", {name: value for name, value in data.items() if name not in known})
        message = super()._read(Event(event.type, data, event.timestamp), agent_type)
        message.text = message.get_text()
        return message


def _to_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [{"type": "text", "text": value}] if isinstance(value, str) else []


def _to_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """An agent's own content block in our names."""
    text = block.get("text", block.get("thinking", ""))
    made: dict[str, Any] = {"type": str(block.get("type", "")), "text": text if isinstance(text, str) else ""}
    if isinstance(given := block.get("input"), dict):
        made["input"] = given
    for ours, theirs in (("tool_id", ("tool_id", "tool_use_id", "id")), ("tool_name", ("tool_name", "name"))):
        made[ours] = next((value for key in theirs if isinstance(value := block.get(key), str)), "")
    return made


class PermissionRequestMessage(BaseMessage, kw_only=True, omit_defaults=True):
    type: str = _make_field(EventTypePermissionRequest)
    request_id: str = _make_field("")
    tool_name: str = _make_field("")
    input: dict[str, Any] | None = _make_field(None)  # type: ignore[arg-type]
    reason: str = ""
    step: int = 0
    total: int = 0


class PermissionResultMessage(BaseMessage, kw_only=True, omit_defaults=True):
    type: str = _make_field(EventTypePermissionResult)
    request_id: str = _make_field("")
    approved: bool = _make_field(False)  # type: ignore[arg-type]
    reason: str = ""
    remember: bool = False


class ResultMessage(BaseMessage, kw_only=True, omit_defaults=True):
    """`status` is success, error, cancelled, permission_denied or ask_denied."""

    type: str = _make_field(EventTypeResult)
    status: str = _make_field("")
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
    type: str = _make_field(EventTypeStreamDelta)
    delta: str = _make_field("")


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
        timestamp=_get_time(event),
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


class Result(msgspec.Struct, kw_only=True):
    """`output` is the text of the text format, `events` are the frames of the other one; `duration` is in seconds."""

    output: str = ""
    exit_code: int = 0
    error: str = ""
    duration: float = 0.0
    format: OutputFormat = OutputFormat.STREAM_JSON
    events: list[Event] = []
    metadata: dict[str, Any] = {}

    def is_success(self) -> bool:
        return self.exit_code == 0 and not self.error

    def get_session_id(self) -> str:
        """The one in the metadata, else the first that an event has (codex calls it a thread)."""
        known = self.metadata.get("session_id")
        if isinstance(known, str) and known:
            return known
        named = (event.data.get("session_id") or event.data.get("thread_id") for event in self.events)
        return next((id for id in named if isinstance(id, str) and id), "")

    def get_cost_usd(self) -> float:
        """Of the last result that has one: it counts up as long as the process lives."""
        costs = (event.data.get("total_cost_usd") for event in reversed(self.events) if event.type == "result")
        return next((float(cost) for cost in costs if isinstance(cost, int | float) and not isinstance(cost, bool)), 0.0)

    def get_status(self) -> str:
        """That of the last `status` event; unknown without one."""
        if self.format == OutputFormat.STREAM_JSON:
            told = (event.data.get("status") for event in reversed(self.events) if event.type == "status")
            return next((status for status in told if isinstance(status, str)), "unknown")
        return "unknown"

    def text_output(self) -> str:
        """All that the agent said, in order, without what its sub-agents did."""
        if self.format == OutputFormat.TEXT:
            return self.output
        return "".join(_extract_text(event) for event in self.events if not event.data.get("parent_tool_use_id"))

    def answer(self) -> str:
        """The final text alone where the agent tells it, else all that it said."""
        for event in reversed(self.get_messages_by_type("result")):
            if isinstance(text := event.data.get("result"), str) and text:
                return text
        return self.text_output()

    # -- by type

    def get_messages_by_type(self, message_type: str) -> list[Event]:
        return [event for event in self.events if event.type == message_type]

    def get_assistant_messages(self) -> list[Event]:
        return self.get_messages_by_type("assistant")

    def get_user_messages(self) -> list[Event]:
        return self.get_messages_by_type("user")

    def get_tool_use_messages(self) -> list[Event]:
        """One for each `tool_use` block of an assistant frame, and each such event of an agent that has these."""
        return self._list_with_blocks("assistant", "tool_use")

    def get_tool_result_messages(self) -> list[Event]:
        """One for each `tool_result` block of a user frame, and each such event of an agent that has these."""
        return self._list_with_blocks("user", "tool_result")

    def get_message_chain(self) -> list[Event]:
        """What was said, without what the process told of itself."""
        others = ("system", "result", "noise")
        return [event for event in self.events if event.type not in others and not event.type.startswith("control_")]

    def _list_with_blocks(self, of: str, kind: str) -> list[Event]:
        found: list[Event] = []
        for event in self.events:
            if event.type == kind:
                found.append(event)
            elif event.type == of:
                blocks = (block for block in _list_blocks(event) if block.get("type") == kind)
                found += [Event(kind, block, event.timestamp, event.raw) for block in blocks]
        return found


class RunAccount(msgspec.Struct, kw_only=True):
    """What is known of a run so far, besides what its turn tells; whoever runs it writes it down here."""

    format: OutputFormat = OutputFormat.STREAM_JSON
    session_id: str = ""
    events: list[Event] = msgspec.field(default_factory=list)
    output: list[str] = msgspec.field(default_factory=list)
    lines: list[tuple[float, bytes]] = msgspec.field(default_factory=list)  # runs of frames that are no events yet, and when
    exit_code: int = 0
    noise: int = 0
    warnings: list[str] = msgspec.field(default_factory=list)
    settled: bool = False  # it has its result; what comes now is the way out

    def read(self) -> None:
        """Make events of the frames that came; many take their time, which a thread has."""
        lines, self.lines = self.lines, []
        for at, run in lines:
            when = datetime.fromtimestamp(at, UTC)
            for line in split_lines(run):
                event = parse_event(line)
                event.timestamp = when
                self.noise += event.type == NOISE
                self.events.append(event)

    def build_result(self, seconds: float, error: BaseException | None = None) -> Result:
        self.read()
        metadata: dict[str, Any] = {"session_id": self.session_id} if self.session_id else {}
        metadata |= {name: value for name, value in (("noise", self.noise), ("warnings", list(self.warnings))) if value}
        return Result(
            output="".join(self.output),
            exit_code=self.exit_code,
            error=str(error) or type(error).__name__ if error is not None else "",
            duration=seconds,
            format=self.format,
            events=list(self.events),
            metadata=metadata,
        )


class Waited(NamedTuple):
    """What `wait` gives, as in the seed: the result, which is always there, and the error if there was one."""

    result: Result
    error: BaseException | None = None

    def unwrap(self) -> Result:
        """The result; raises the error."""
        if self.error is not None:
            raise self.error
        return self.result


def _list_blocks(event: Event) -> list[dict[str, Any]]:
    message = event.data.get("message")
    content = message.get("content") if isinstance(message, dict) else event.data.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _extract_text(event: Event) -> str:
    """The text of one event, in each of the shapes that agents have for it."""
    data = event.data
    match event.type:
        case "assistant":
            if isinstance(message := data.get("message"), str):
                return message
            return "".join(
                text for block in _list_blocks(event) if block.get("type") == "text" and isinstance(text := block.get("text"), str)
            )
        case "text_delta":
            text = data.get("delta")
        case "text":
            text = data.get("text")
        case "item.completed":
            item = data.get("item")
            text = item.get("text") if isinstance(item, dict) and item.get("type") == "agent_message" else ""
        case _:
            text = ""
    return text if isinstance(text, str) else ""


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
