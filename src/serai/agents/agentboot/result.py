"""What came of an execution: the seed's `Result` with its helpers (spec agents 1.15)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from serai.agents.agentboot.codec import NOISE, event_of
from serai.agents.agentboot.words import Event, OutputFormat
from serai.wire.stream import split_lines

__all__ = ["Account", "Result", "Waited"]


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
        return "".join(_text(event) for event in self.events if not event.data.get("parent_tool_use_id"))

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
        return self._with_blocks("assistant", "tool_use")

    def get_tool_result_messages(self) -> list[Event]:
        """One for each `tool_result` block of a user frame, and each such event of an agent that has these."""
        return self._with_blocks("user", "tool_result")

    def get_message_chain(self) -> list[Event]:
        """What was said, without what the process told of itself."""
        others = ("system", "result", "noise")
        return [event for event in self.events if event.type not in others and not event.type.startswith("control_")]

    def _with_blocks(self, of: str, kind: str) -> list[Event]:
        found: list[Event] = []
        for event in self.events:
            if event.type == kind:
                found.append(event)
            elif event.type == of:
                blocks = (block for block in _blocks(event) if block.get("type") == kind)
                found += [Event(kind, block, event.timestamp, event.raw) for block in blocks]
        return found


class Account(msgspec.Struct, kw_only=True):
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
                event = event_of(line)
                event.timestamp = when
                self.noise += event.type == NOISE
                self.events.append(event)

    def result(self, seconds: float, error: BaseException | None = None) -> Result:
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


def _blocks(event: Event) -> list[dict[str, Any]]:
    message = event.data.get("message")
    content = message.get("content") if isinstance(message, dict) else event.data.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _text(event: Event) -> str:
    """The text of one event, in each of the shapes that agents have for it."""
    data = event.data
    match event.type:
        case "assistant":
            if isinstance(message := data.get("message"), str):
                return message
            return "".join(
                text for block in _blocks(event) if block.get("type") == "text" and isinstance(text := block.get("text"), str)
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
