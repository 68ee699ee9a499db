"""What an extension hears, whatever the dialect. An adapter makes these of frames; the engine acts on them."""

from __future__ import annotations

from typing import Any, NamedTuple


class ToolDone(NamedTuple):
    """What came of a call: the tool's name, and the `details` of its result as they came.

    They are what a tool tells a surface, as the number of changed lines; a result that has none comes with its content instead.
    """

    name: str
    details: Any

    @property
    def is_error(self) -> bool:
        """Whether the tool said that it failed, where the host tells."""
        return isinstance(self.details, dict) and self.details.get("isError") is True

    @property
    def text(self) -> str | None:
        """The text that the model is to read, where the host gave it."""
        content = self.details.get("content") if isinstance(self.details, dict) else None
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            return None
        return "\n".join(block.get("text", "") for block in content if isinstance(block, dict) and block.get("type") == "text")


class ToolCall(NamedTuple):
    """A call that an interceptor may stop: whose tool it is does not matter. `id` is the model's own for it, where it is told."""

    id: str
    name: str
    args: Any


class Event:
    """Something happened; which members say anything depends on the event (spec zot 4.3). `data` is all of it, as it came."""

    __slots__ = ("data", "name")

    def __init__(self, name: str, data: dict[str, Any]) -> None:
        self.name = name
        self.data = data

    def __repr__(self) -> str:
        return f"<event {self.name}>"

    @property
    def step(self) -> int:
        """Which model call of this prompt, from 1."""
        step = self.data.get("step")
        return step if isinstance(step, int) else 0

    @property
    def stop(self) -> str:
        """Why a turn ended: end, length, tool_use, error, aborted."""
        return self._get_text("stop")

    @property
    def error(self) -> str:
        return self._get_text("error")

    @property
    def text(self) -> str:
        return self._get_text("text")

    @property
    def tool_id(self) -> str:
        return self._get_text("tool_id")

    @property
    def tool_name(self) -> str:
        return self._get_text("tool_name")

    @property
    def tool_args(self) -> Any:
        return self.data.get("tool_args")

    def _get_text(self, key: str) -> str:
        value = self.data.get(key)
        return value if isinstance(value, str) else ""


class HandshakeDone(NamedTuple):
    """The host took the extension in, and says who it is: values for the members of `Host`."""

    about: dict[str, Any]


class HandshakeStarted(NamedTuple):
    """A host that speaks first has spoken, and waits for all that is offered before the answer."""

    id: str
    about: dict[str, Any]


class ToolCalled(NamedTuple):
    id: str
    name: str
    args: Any  # whatever JSON the model produced (spec zot 7.51)
    call: str = ""  # the model's own id of it, where that is another one


class CommandInvoked(NamedTuple):
    id: str
    name: str
    args: str


class InterceptRequest(NamedTuple):
    """May this happen? `subject` is a `ToolCall`, the step of a turn, or a message's text."""

    id: str
    stage: str
    subject: Any
    guard: str = ""  # the name of the interceptor that is asked; empty means all


class OptionalRequest(NamedTuple):
    """A request to what only some dialects have: its `kind`, the `name` of whom it is for, and what that is given."""

    id: str
    kind: str
    name: str
    given: Any


class UnsupportedRequest(NamedTuple):
    """A request that is answered with this error at once."""

    id: str
    code: int
    why: str


class ReplyReceived(NamedTuple):
    """What the host says to what it was asked."""

    id: int
    result: Any
    error: tuple[int, str] | None = None


class TopicPublished(NamedTuple):
    """What a topic of the host's bus brings to a subscription."""

    subscription: int
    topic: str
    data: Any


class OversizeRequest(NamedTuple):
    """A request that was not kept. It is owed an answer all the same."""

    id: str
    kind: str  # "tool", "command" or "question"
    why: str


class EventReceived(NamedTuple):
    event: Event


class KeyPressed(NamedTuple):
    panel: str
    key: str
    text: str


class PanelResized(NamedTuple):
    panel: str
    width: int
    height: int


class PanelClosed(NamedTuple):
    panel: str


class CancelRequested(NamedTuple):
    """Nobody waits for this answer any more. zot has no such frame; other dialects do."""

    id: str


class ShutdownRequested(NamedTuple):
    """The host wants an end."""


class Unrecognized(NamedTuple):
    """What fits nothing: told on stderr, and passed over (design rule 4)."""

    why: str


Heard = (
    HandshakeDone
    | HandshakeStarted
    | OptionalRequest
    | UnsupportedRequest
    | ReplyReceived
    | TopicPublished
    | ToolCalled
    | CommandInvoked
    | InterceptRequest
    | OversizeRequest
    | EventReceived
    | KeyPressed
    | PanelResized
    | PanelClosed
    | CancelRequested
    | ShutdownRequested
    | Unrecognized
)
