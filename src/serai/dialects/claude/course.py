"""The course of each lane: its steps, messages and calls, from their beginning to their end (spec agents 2.10).

However a turn ends, what has begun has an end: each call a result, each step its two ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Raw

from serai.dialects.claude import blocks
from serai.dialects.claude.lanes import Lane, Opened
from serai.dialects.claude.system import Tasks, plan_of
from serai.dialects.claude.tools import Tools
from serai.model import events
from serai.model.events import Event
from serai.model.tools import ToolResult

__all__ = ["INTERRUPTED", "Course"]

INTERRUPTED = ToolResult.error("the tool did not finish before the turn ended; there is no result", code="TOOL_INTERRUPTED")
_RETRACTED = ToolResult.error("the model took this call back; it did not run", code="TOOL_INTERRUPTED")
_NAMELESS = "?"  # a message whose id was not told


class Course:
    """All lanes of a session, and the calls that have no result yet."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.main = Lane("")
        self.lanes: dict[str, Lane] = {"": self.main}
        self.calls: dict[str, Opened] = {}
        self.tasks = Tasks()

    def lane(self, name: str | None) -> Lane:
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
        lane.forget()
        lane.id, lane.model = id or _NAMELESS, model
        if not again:
            lane.step += 1
            lane.begun = True
            found.append(events.StepStarted(step=lane.step, lane=lane.name, native=native))
        return found

    def again(self, lane: Lane) -> None:
        """The model is asked once more: what had streamed of its answer counts no more, and the step is the same one."""
        if lane.begun and lane.streams and not lane.called:
            lane.forget()

    def message(self, lane: Lane, native: Any) -> list[Event]:
        """What is said and in no message yet."""
        if not lane.said:
            return []
        content = tuple(said.block for said in lane.said)
        lane.said.clear()
        return [events.Message(content=content, model=lane.model, lane=lane.name, native=native)]

    def finish(self, lane: Lane, native: Any) -> list[Event]:
        """The message is made: what is left of it, its usage, and the end of its step. Any number of times."""
        found = self.message(lane, native)
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

    def called(self, lane: Lane, block: blocks.ToolUse, uuid: str, index: int, native: Any) -> list[Event]:
        if block.id in lane.called or block.id in self.calls:
            return []
        lane.called.add(block.id)
        call = self.tools.call(block.id, block.name, block.input)
        self.calls[block.id] = Opened(call, lane, uuid, index)
        found = self.message(lane, native)
        found.append(events.ToolCalled(call=call, lane=lane.name, native=native))
        if block.name == "TodoWrite" and (entries := plan_of(block.input)) is not None:
            found.append(events.Plan(entries=entries, lane=lane.name, native=native))
        return found

    def start(self, opened: Opened, native: Any) -> list[Event]:
        if opened.started:
            return []
        opened.started = True
        return [events.ToolStarted(call=opened.call, lane=opened.lane.name, native=native)]

    def ended(self, opened: Opened, result: ToolResult, native: Any) -> list[Event]:
        """With it ends the sub-agent that it was, unless that works on in the background."""
        id = opened.call.id
        self.calls.pop(id, None)
        self.tasks.called_off(id)
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
            found += self.ended(opened, INTERRUPTED, native)
        return [*found, *self.settle(lane, native)]

    def end(self, *, interrupted: bool, gone: bool) -> list[Event]:
        """The turn is over; sub-agents that work in the background are not, unless the program is `gone`."""
        self.tasks.turn_over(gone=gone)
        busy = self.tasks.lanes
        found: list[Event] = []
        for lane in [lane for lane in self.lanes.values() if lane.name and lane.name not in busy]:
            found += self.leave(lane, None, interrupted=interrupted)
        found += self.close(self.main, None, interrupted=interrupted)
        self.main.step = 0
        self.main.forget()
        return found

    # -- what is taken back

    def retract(self, lane: Lane, uuids: Iterable[str], native: Raw) -> list[Event]:
        """What these frames said counts no more: it is in no message, and none of their calls will run."""
        taken = set(uuids)
        lane.said = [said for said in lane.said if said.uuid not in taken]
        return self._taken([one for one in self.calls.values() if one.lane is lane and one.uuid in taken], native)

    def abandoned(self, lane: Lane, told: Any, native: Raw) -> list[Event]:
        """The blocks of a message from one of them on."""
        first = told.get("from_block_index") if isinstance(told, dict) else None
        if not isinstance(first, int) or told.get("api_message_id", lane.id) != lane.id:
            return []
        if not any(index >= first for index in lane.parts):
            return []
        lane.said = [said for said in lane.said if said.index < first]
        calls = [one for id, one in self.calls.items() if id in lane.called and one.index >= first]
        return [events.OtherEvent(kind="retracted", lane=lane.name, native=native), *self._taken(calls, native)]

    def _taken(self, calls: list[Opened], native: Raw) -> list[Event]:
        """Those that run already do run."""
        return [event for opened in calls if not opened.started for event in self.ended(opened, _RETRACTED, native)]
