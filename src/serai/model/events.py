"""What happens in a session, in the words that agents, guests and surfaces share.

A *turn* is one prompt's work, a *step* one call of the model within it: what zot and piglet call a turn. Every event says when and
where it happened and carries the agent's own form of it, if it came from a driven agent. What no word fits is an `OtherEvent`: the
unknown is data (design rule 4).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from serai.model.actions import Notice
from serai.model.approvals import Approval, Question
from serai.model.tools import Block, ImageBlock, TextBlock, ToolCall, ToolResult

Stop = Literal["end", "length", "tool_use", "error", "aborted"]


class EventBase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`seq` counts within a session; `at` is seconds since 1970; `lane` is a sub-agent's, empty for the main one."""

    seq: int = 0
    at: float = 0.0
    agent: str = ""
    session: str = ""
    lane: str = ""
    native: Any = None


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens, and money where it is known."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: float | None = None


class SessionStarted(EventBase, frozen=True, kw_only=True, tag="session_started"):
    """Once after start-up; `messages` is how many a resumed session brings along."""

    messages: int = 0


class TurnStarted(EventBase, frozen=True, kw_only=True, tag="turn_started"):
    prompt: str = ""
    images: tuple[ImageBlock, ...] = ()  # that came with it


class TurnPrepared(EventBase, frozen=True, kw_only=True, tag="turn_prepared"):
    """What the model will be told besides the prompt: so many messages of before, so many tools, this system prompt."""

    messages: int = 0
    tools: int = 0
    system: str = ""


class StepStarted(EventBase, frozen=True, kw_only=True, tag="step_started"):
    """A call of the model begins; `step` counts from 1 in each turn."""

    step: int


class Text(EventBase, frozen=True, kw_only=True, tag="text"):
    """A piece of what the model says, as it streams."""

    text: str
    index: int = 0


class Thinking(EventBase, frozen=True, kw_only=True, tag="thinking"):
    """A piece of its thinking."""

    text: str
    index: int = 0


class ToolInput(EventBase, frozen=True, kw_only=True, tag="tool_input"):
    """A piece of a call's arguments, as they stream."""

    text: str
    index: int = 0


class Message(EventBase, frozen=True, kw_only=True, tag="message"):
    """A whole message of the model, after interceptors; its tool calls follow as `ToolCalled`."""

    content: tuple[Block, ...] = ()
    model: str = ""

    @property
    def text(self) -> str:
        """The text blocks joined with newlines (spec zot 4.4, ours)."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))


class ToolCalled(EventBase, frozen=True, kw_only=True, tag="tool_called"):
    """The model wants a tool: as it said, before anybody is asked."""

    call: ToolCall


class ToolStarted(EventBase, frozen=True, kw_only=True, tag="tool_started"):
    """It runs, with these final arguments."""

    call: ToolCall


class ToolProgress(EventBase, frozen=True, kw_only=True, tag="tool_progress"):
    call: ToolCall
    text: str


class ToolEnded(EventBase, frozen=True, kw_only=True, tag="tool_ended"):
    call: ToolCall
    result: ToolResult


class StepEnded(EventBase, frozen=True, kw_only=True, tag="step_ended"):
    """The model is done, its tools are not yet run."""

    step: int = 0
    stop: Stop = "end"
    error: str = ""


class StepSettled(EventBase, frozen=True, kw_only=True, tag="step_settled"):
    """Its tools have run too: every call has its result. What piglet calls the end of a turn."""

    step: int = 0


class StepsExhausted(EventBase, frozen=True, kw_only=True, tag="steps_exhausted"):
    """The model wanted to go on, and may not: so many steps were allowed."""

    count: int
    most: int


class TurnResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a prompt."""

    status: Literal["success", "error", "denied", "cancelled"]
    text: str = ""
    session: str = ""
    error: str = ""
    steps: int = 0
    usage: Usage = Usage()
    seconds: float = 0.0
    native: Any = None

    @property
    def ok(self) -> bool:
        return self.status == "success"


class TurnEnded(EventBase, frozen=True, kw_only=True, tag="turn_ended"):
    result: TurnResult


class UsageReported(EventBase, frozen=True, kw_only=True, tag="usage"):
    usage: Usage
    total: Usage | None = None


class PlanEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


class Plan(EventBase, frozen=True, kw_only=True, tag="plan"):
    """What the agent means to do."""

    entries: tuple[PlanEntry, ...] = ()


class NoticeEvent(EventBase, frozen=True, kw_only=True, tag="noticed"):
    """A word from a guest, the agent or Serai itself."""

    notice: Notice


class RequestCancelled(EventBase, frozen=True, kw_only=True, tag="request_cancelled"):
    """An approval or question was withdrawn: nobody waits for its answer."""

    id: str
    reason: str = ""


class Stderr(EventBase, frozen=True, kw_only=True, tag="stderr"):
    """A line that a driven agent wrote to its stderr."""

    line: str


class StateChanged(EventBase, frozen=True, kw_only=True, tag="state_changed"):
    state: str


class Retrying(EventBase, frozen=True, kw_only=True, tag="retrying"):
    attempt: int
    most: int
    wait: float
    error: str = ""


class Compacted(EventBase, frozen=True, kw_only=True, tag="compacted"):
    """The conversation was shortened, from so many messages to so many."""

    before: int
    after: int
    tokens: int = 0


class OtherEvent(EventBase, frozen=True, kw_only=True, tag="other"):
    """Something of the agent's own; `kind` is its word for it, `native` the thing itself."""

    kind: str


Event = (
    SessionStarted
    | TurnStarted
    | TurnPrepared
    | StepStarted
    | Text
    | Thinking
    | ToolInput
    | Message
    | ToolCalled
    | ToolStarted
    | ToolProgress
    | ToolEnded
    | StepEnded
    | StepSettled
    | StepsExhausted
    | TurnEnded
    | UsageReported
    | Plan
    | NoticeEvent
    | Approval
    | Question
    | RequestCancelled
    | Stderr
    | StateChanged
    | Retrying
    | Compacted
    | OtherEvent
)

_DELTAS = (Text, Thinking, ToolInput)


def event_kind(event: Event | type[EventBase]) -> str:
    """The tag of an event, which is what handlers name."""
    tag = event.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


def is_fragment(event: object) -> bool:
    """Whether `merge_fragments` may make one of it and another."""
    return isinstance(event, _DELTAS)


def merge_fragments(first: Event, second: Event) -> Event | None:
    """Two pieces of one stream as one, or None: for who is behind (they say the same together)."""
    if type(first) is not type(second) or not isinstance(first, _DELTAS):
        return None
    assert isinstance(second, _DELTAS)
    same = (first.index, first.session, first.lane, first.agent) == (second.index, second.session, second.lane, second.agent)
    return msgspec.structs.replace(first, text=first.text + second.text, native=None) if same else None
