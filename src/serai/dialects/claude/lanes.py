"""The course of each lane: its steps, messages and calls, from their beginning to their end (spec agents 2.10).

A lane is the main conversation, or a sub-agent's, and has one message of the model at a time. Only the part of a message that is
not reported yet is kept: its text comes once, whether it streamed or not, and memory stays flat however long a turn is. However a
turn ends, each call gets a result and each step its two ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw

from serai.dialects.claude import blocks
from serai.dialects.claude.system_events import BackgroundTasks, read_plan
from serai.dialects.claude.tools import ToolMap
from serai.model import events
from serai.model.events import Event, Stop, Usage
from serai.model.tools import Block, ToolCall, ToolResult

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


class StreamingBlock:
    """A block that streams. `told` is how much of it was; `pieces` are those of a call's input; `whole`: its full form came."""

    __slots__ = ("id", "kind", "name", "pieces", "told", "whole")

    def __init__(self, kind: type, id: str = "", name: str = "") -> None:
        self.kind = kind
        self.id = id
        self.name = name
        self.told = 0
        self.pieces: list[str] = []
        self.whole = False


class FinishedBlock(msgspec.Struct, frozen=True):
    """A finished block that is in no message yet; `uuid` is that of its frame, by which it may be retracted."""

    block: Block
    uuid: str
    index: int


class OpenCall:
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
        self.reset()

    def reset(self) -> None:
        """A message begins of which nothing is known; the step may be the same one."""
        self.id = ""
        self.model = ""
        self.streams = False  # its pieces come one by one, and its end will be told
        self.parts: dict[int, StreamingBlock] = {}
        self.said: list[FinishedBlock] = []
        self.called: set[str] = set()
        self.count = 0  # full blocks that came
        self.usage: Usage | None = None
        self.final = False  # that is the last word on its usage
        self.stop = ""
        self.error = ""
        self.aborted = False

    def claim(self, kind: type, id: str = "") -> tuple[int, StreamingBlock | None]:
        """The place of a full block among those that streamed, and that part; the next place when it did not stream."""
        for index, part in self.parts.items():
            if part.kind is kind and not part.whole and part.id == id:
                part.whole = True
                part.pieces.clear()
                return index, part
        return max(self.count, len(self.parts)), None

    def record_usage(self, usage: blocks.Usage | None, *, final: bool = False) -> None:
        """Frames of one message tell the same tokens again and again: the last word counts, and they are never summed."""
        if usage is not None and (final or not self.final):
            self.usage = to_usage(usage, self.usage)
            self.final = final

    @property
    def why(self) -> Stop:
        """Why the message has ended."""
        if self.aborted:
            return "aborted"
        if self.error:
            return "error"
        return STOPS.get(self.stop, "tool_use" if self.called else "end")


def to_usage(usage: blocks.Usage, before: Usage | None = None) -> Usage:
    """Of what it does not tell, that of before."""
    before = before or Usage()

    def pick(now: int | None, then: int) -> int:
        return then if now is None else now

    return Usage(
        pick(usage.input_tokens, before.input),
        pick(usage.output_tokens, before.output),
        pick(usage.cache_read_input_tokens, before.cache_read),
        pick(usage.cache_creation_input_tokens, before.cache_write),
    )


INTERRUPTED = ToolResult.error("the tool did not finish before the turn ended; there is no result", code="TOOL_INTERRUPTED")
_RETRACTED = ToolResult.error("the model took this call back; it did not run", code="TOOL_INTERRUPTED")
_NAMELESS = "?"  # a message whose id was not told


class LaneTracker:
    """All lanes of a session, and the calls that have no result yet."""

    def __init__(self, tools: ToolMap) -> None:
        self.tools = tools
        self.main = Lane("")
        self.lanes: dict[str, Lane] = {"": self.main}
        self.calls: dict[str, OpenCall] = {}
        self.tasks = BackgroundTasks()

    def get_lane(self, name: str | None) -> Lane:
        key = name or ""
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(key)
        return lane

    # -- messages and steps

    def begin(self, lane: Lane, id: str, model: str, native: Any) -> list[Event]:
        """A frame of this message is here; with a new one the step before is over."""
        if lane.id and (id == lane.id or (not id and lane.begun)):
            lane.model = lane.model or model
            return []
        found: list[Event] = []
        again = lane.begun and not lane.id  # asked once more, after something went wrong
        if not again:
            found += self.finish(lane, native)
            found += self.settle(lane, native)
        lane.reset()
        lane.id, lane.model = id or _NAMELESS, model
        if not again:
            lane.step += 1
            lane.begun = True
            found.append(events.StepStarted(step=lane.step, lane=lane.name, native=native))
        return found

    def discard_streamed(self, lane: Lane) -> None:
        """The model is asked once more: what had streamed of its answer counts no more, and the step is the same one."""
        if lane.begun and lane.streams and not lane.called:
            lane.reset()

    def flush_message(self, lane: Lane, native: Any) -> list[Event]:
        """What is said and in no message yet."""
        if not lane.said:
            return []
        content = tuple(said.block for said in lane.said)
        lane.said.clear()
        return [events.Message(content=content, model=lane.model, lane=lane.name, native=native)]

    def finish(self, lane: Lane, native: Any) -> list[Event]:
        """The message is made: what is left of it, its usage, and the end of its step. Any number of times."""
        found = self.flush_message(lane, native)
        if not lane.begun:
            return found
        lane.begun, lane.unsettled = False, True
        if lane.usage is not None and lane.usage != events.Usage():
            found.append(events.UsageReported(usage=lane.usage, lane=lane.name, native=native))
        ended = events.StepEnded(step=lane.step, stop=lane.why, error=lane.error, lane=lane.name, native=native)
        return [*found, ended]

    def settle(self, lane: Lane, native: Any) -> list[Event]:
        """Each of its calls has its result."""
        if not lane.unsettled or any(one.lane is lane and one.step == lane.step for one in self.calls.values()):
            return []
        lane.unsettled = False
        return [events.StepSettled(step=lane.step, lane=lane.name, native=native)]

    # -- calls

    def open_call(self, lane: Lane, block: blocks.ToolUse, uuid: str, index: int, native: Any) -> list[Event]:
        if block.id in lane.called or block.id in self.calls:
            return []
        lane.called.add(block.id)
        call = self.tools.build_call(block.id, block.name, block.input)
        self.calls[block.id] = OpenCall(call, lane, uuid, index)
        found = self.flush_message(lane, native)
        found.append(events.ToolCalled(call=call, lane=lane.name, native=native))
        if block.name == "TodoWrite" and (entries := read_plan(block.input)) is not None:
            found.append(events.Plan(entries=entries, lane=lane.name, native=native))
        return found

    def start_call(self, opened: OpenCall, native: Any) -> list[Event]:
        if opened.started:
            return []
        opened.started = True
        return [events.ToolStarted(call=opened.call, lane=opened.lane.name, native=native)]

    def end_call(self, opened: OpenCall, result: ToolResult, native: Any) -> list[Event]:
        """With it ends the sub-agent that it was, unless that works on in the background."""
        id = opened.call.id
        self.calls.pop(id, None)
        self.tasks.end_call(id)
        found: list[Event] = []
        lane = self.lanes.get(id) if id else None
        if lane is not None and id not in self.tasks.lanes:
            found += self.leave(lane, native)
        return [*found, events.ToolEnded(call=opened.call, result=result, lane=opened.lane.name, native=native)]

    # -- ends

    def leave(self, lane: Lane, native: Any, *, interrupted: bool = False) -> list[Event]:
        """A sub-agent is done."""
        self.lanes.pop(lane.name, None)
        return self.close(lane, native, interrupted=interrupted)

    def close(self, lane: Lane, native: Any, *, interrupted: bool) -> list[Event]:
        """Nothing of it is open any more."""
        if interrupted and lane.begun:
            lane.aborted = True
        found = self.finish(lane, native)
        for opened in [one for one in self.calls.values() if one.lane is lane]:
            found += self.end_call(opened, INTERRUPTED, native)
        return [*found, *self.settle(lane, native)]

    def end(self, *, interrupted: bool, gone: bool) -> list[Event]:
        """The turn is over; sub-agents that work in the background are not, unless the program is `gone`."""
        self.tasks.end_turn(gone=gone)
        busy = self.tasks.lanes
        found: list[Event] = []
        for lane in [lane for lane in self.lanes.values() if lane.name and lane.name not in busy]:
            found += self.leave(lane, None, interrupted=interrupted)
        found += self.close(self.main, None, interrupted=interrupted)
        self.main.step = 0
        self.main.reset()
        return found

    # -- what is taken back

    def retract(self, lane: Lane, uuids: Iterable[str], native: Raw) -> list[Event]:
        """What these frames said counts no more: it is in no message, and none of their calls will run."""
        taken = set(uuids)
        lane.said = [said for said in lane.said if said.uuid not in taken]
        return self._retract_calls([one for one in self.calls.values() if one.lane is lane and one.uuid in taken], native)

    def retract_blocks(self, lane: Lane, told: Any, native: Raw) -> list[Event]:
        """The blocks of a message from one of them on."""
        first = told.get("from_block_index") if isinstance(told, dict) else None
        if not isinstance(first, int) or told.get("api_message_id", lane.id) != lane.id:
            return []
        if not any(index >= first for index in lane.parts):
            return []
        lane.said = [said for said in lane.said if said.index < first]
        calls = [one for id, one in self.calls.items() if id in lane.called and one.index >= first]
        return [events.OtherEvent(kind="retracted", lane=lane.name, native=native), *self._retract_calls(calls, native)]

    def _retract_calls(self, calls: list[OpenCall], native: Raw) -> list[Event]:
        """Those that run already do run."""
        return [event for opened in calls if not opened.started for event in self.end_call(opened, _RETRACTED, native)]
