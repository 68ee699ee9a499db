"""What is under way: a lane is the main conversation, or a sub-agent's (spec agents 2.10).

A lane has one message of the model at a time. Of a message only that is kept which is not told yet: its text comes once, whether
it streamed or not, and memory stays flat however long a turn is.
"""

from __future__ import annotations

import msgspec

from serai.dialects.claude import blocks
from serai.model.events import Stop, Usage
from serai.model.tools import Block, ToolCall

__all__ = ["STOPS", "Lane", "Opened", "Part", "Said", "usage_of"]

# Why the API says that a message ended, in our words.
STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_use",
    "refusal": "error",
}


class Part:
    """A block that streams. `told` is how much of it was; `pieces` are those of a call's input; `whole`: its full form came."""

    __slots__ = ("id", "kind", "name", "pieces", "told", "whole")

    def __init__(self, kind: type, id: str = "", name: str = "") -> None:
        self.kind = kind
        self.id = id
        self.name = name
        self.told = 0
        self.pieces: list[str] = []
        self.whole = False


class Said(msgspec.Struct, frozen=True):
    """A finished block that is in no message yet; `uuid` is that of its frame, by which it may be retracted."""

    block: Block
    uuid: str
    index: int


class Opened:
    """A call that has no result yet."""

    __slots__ = ("call", "index", "lane", "started", "step", "uuid")

    def __init__(self, call: ToolCall, lane: Lane, uuid: str, index: int) -> None:
        self.call = call
        self.lane = lane
        self.step = lane.step
        self.uuid = uuid
        self.index = index
        self.started = False


class Lane:
    """One conversation, and the message in it that is being made."""

    __slots__ = (
        *("aborted", "begun", "called", "count", "error", "final", "id", "model", "name"),
        *("parts", "said", "step", "stop", "streams", "unsettled", "usage"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.step = 0
        self.begun = False  # a step has begun and not ended
        self.unsettled = False  # one has ended, and its calls may be open
        self.id = ""  # of the message
        self.forget()

    def forget(self) -> None:
        """A message begins of which nothing is known; the step may be the same one."""
        self.id = ""
        self.model = ""
        self.streams = False  # its pieces come one by one, and its end will be told
        self.parts: dict[int, Part] = {}
        self.said: list[Said] = []
        self.called: set[str] = set()
        self.count = 0  # full blocks that came
        self.usage: Usage | None = None
        self.final = False  # that is the last word on its usage
        self.stop = ""
        self.error = ""
        self.aborted = False

    def claim(self, kind: type, id: str = "") -> tuple[int, Part | None]:
        """The place of a full block among those that streamed, and that part; the next place when it did not stream."""
        for index, part in self.parts.items():
            if part.kind is kind and not part.whole and part.id == id:
                part.whole = True
                part.pieces.clear()
                return index, part
        return max(self.count, len(self.parts)), None

    def uses(self, usage: blocks.Usage | None, *, final: bool = False) -> None:
        """Frames of one message tell the same tokens again and again: the last word counts, and they are never summed."""
        if usage is not None and (final or not self.final):
            self.usage = usage_of(usage, self.usage)
            self.final = final

    @property
    def why(self) -> Stop:
        """Why the message has ended."""
        if self.aborted:
            return "aborted"
        if self.error:
            return "error"
        return STOPS.get(self.stop, "tool_use" if self.called else "end")


def usage_of(usage: blocks.Usage, before: Usage | None = None) -> Usage:
    """Of what it does not tell, that of before."""
    before = before or Usage()

    def one(now: int | None, then: int) -> int:
        return then if now is None else now

    return Usage(
        one(usage.input_tokens, before.input),
        one(usage.output_tokens, before.output),
        one(usage.cache_read_input_tokens, before.cache_read),
        one(usage.cache_creation_input_tokens, before.cache_write),
    )
