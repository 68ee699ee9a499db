"""Frames of Claude Code into neutral events (spec agents 2.5, 2.10).

What a driver, a store and a surface may rely on, for the main lane and for each sub-agent's:

    { step started, pieces*, [message], tool called*, [message], usage, step ended, (tool started, tool ended)*, step settled }+

A text is told once: in pieces when it streams, in one otherwise; the message that follows is the same text whole. A call is told
when its block is finished, and has an end in any case; one that was refused has no start. Each event has the line that it came
in; pieces that came together (`Folding.pieces`) have theirs as one array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from serai.dialects.claude import blocks
from serai.dialects.claude.course import INTERRUPTED, Course
from serai.dialects.claude.lanes import Lane, Part, Said
from serai.dialects.claude.messages import Assistant, Result, StreamEvent, System, ToolProgress, User
from serai.dialects.claude.reading import ids_of
from serai.dialects.claude.system import notice_of_limit, told
from serai.dialects.claude.texts import block_of, content_of, plain
from serai.dialects.claude.tools import ASKER, Tools
from serai.model import events
from serai.model.events import Event
from serai.model.tools import Block, TextBlock, ToolCall, ToolResult
from serai.wire.codec import Unknown

__all__ = ["INTERRUPTED", "Folding"]

_Pair = TypeVar("_Pair", bound=tuple[object, bytes])  # a frame and its line
_SYNTHETIC = "<synthetic>"  # the model of a message that the program itself made
_DENIED = ("permission-rule", "user-rejected")  # why a call did not run, when somebody or something said no
_TURNED_AWAY = ("<tool_use_error>Error: No such tool", "<tool_use_error>InputValidationError")
_PIECES: dict[type, tuple[type, Callable[..., Event]]] = {
    blocks.TextDelta: (blocks.Text, events.Text),
    blocks.ThinkingDelta: (blocks.Thinking, events.Thinking),
    blocks.InputJsonDelta: (blocks.ToolUse, events.ToolInput),
}


class Folding:
    """One session. Feed it every frame in order; `end` each turn."""

    def __init__(self, tools: Tools | None = None) -> None:
        self._course = Course(tools or Tools())
        self._main = self._course.main
        self._lanes = self._course.lanes
        self.session = ""  # its id: an init's counts, others fill it in
        self.model = ""
        self.mode = ""  # of its permissions
        self.version = ""
        self._folds: dict[type, Callable[[Any, bytes], list[Event]]] = {
            StreamEvent: self._stream,
            Assistant: self._assistant,
            User: self._user,
            System: self._system,
            ToolProgress: self._progress,
            Result: self._result,
            Unknown: self._unknown,
        }
        self._streams: dict[type, Callable[[Lane, Any, Raw], list[Event]]] = {
            blocks.ContentBlockDelta: self._piece,
            blocks.ContentBlockStart: self._part_started,
            blocks.ContentBlockStop: self._part_stopped,
            blocks.MessageStart: self._message_started,
            blocks.MessageDelta: self._message_ends,
            blocks.MessageStop: self._message_stopped,
        }

    @property
    def tasks(self) -> dict[str, str]:
        """What works beside the conversation: the type of each, by its id (spec agents 2.11)."""
        return self._course.tasks.types

    def call(self, tool_use_id: str) -> ToolCall | None:
        """A call that has no result yet."""
        opened = self._course.calls.get(tool_use_id)
        return None if opened is None else opened.call

    def lane(self, tool_use_id: str) -> str:
        """Whose call that is: the sub-agent's lane, empty for the main one."""
        opened = self._course.calls.get(tool_use_id)
        return "" if opened is None else opened.lane.name

    def start(self, call: ToolCall) -> list[Event]:
        """It may run, with these final arguments: told once, however often this is said."""
        opened = self._course.calls.get(call.id)
        if opened is None or opened.started:
            return []
        opened.call = call
        return self._course.start(opened, None)

    def fold(self, frame: object, line: bytes) -> list[Event]:
        """What a frame says; `line` is its JSON. Frames that only answer or ask something say nothing here."""
        fold = self._folds.get(type(frame))
        return [] if fold is None else fold(frame, line)

    def end(self, interrupted: bool = False, *, gone: bool = False) -> list[Event]:
        """The turn is over: nothing of it is open any more, and steps count from 1 again.

        Sub-agents that work in the background go on, unless the program itself is `gone`.
        """
        return self._course.end(interrupted=interrupted, gone=gone)

    # -- pieces -------------------------------------------------------------------------------------------------------------------

    def pieces(self, frames: Iterator[_Pair]) -> tuple[list[Event], _Pair | None]:
        """The next frames as far as they are pieces of one block, as one event, and the first that is not: to be folded next.

        By far the most frames are such pieces: what they cost is what a stream costs. The event has all their lines, as an array; a
        piece that comes alone is as `fold` tells it.
        """
        first = next(frames, None)
        if first is None or type(frame := first[0]) is not StreamEvent or type(frame.event) is not blocks.ContentBlockDelta:
            return [], first
        index, kind = frame.event.index, type(frame.event.delta)
        part = self._main.parts.get(index)
        if part is None or part.whole or kind not in _PIECES or frame.parent_tool_use_id is not None:
            return [], first
        texts: list[str] = [frame.event.delta.text]  # type: ignore[union-attr]  # by the table, which checkers cannot see
        lines = [first[1]]
        other = None
        for pair in frames:
            frame, line = pair
            if type(frame) is not StreamEvent or type(event := frame.event) is not blocks.ContentBlockDelta:
                other = pair
                break
            delta = event.delta
            if type(delta) is not kind or event.index != index or frame.parent_tool_use_id is not None:
                other = pair
                break
            texts.append(delta.text)  # type: ignore[union-attr]  # the same kind
            lines.append(line)
        if len(lines) == 1:
            return self.fold(*first), other
        return _joined(kind, part, index, "".join(texts), lines), other

    def _stream(self, frame: StreamEvent, line: bytes) -> list[Event]:
        event, native = frame.event, Raw(line)
        lane = self._course.lane(frame.parent_tool_use_id)
        fold = self._streams.get(type(event))
        if fold is None:
            return []
        if frame.abandoned_blocks is not None and isinstance(event, blocks.MessageDelta | blocks.MessageStop):
            return [*self._course.abandoned(lane, frame.abandoned_blocks, native), *fold(lane, event, native)]
        return fold(lane, event, native)

    def _piece(self, lane: Lane, event: blocks.ContentBlockDelta, native: Raw) -> list[Event]:
        form = _PIECES.get(type(event.delta))
        if form is None:  # signatures and citations: they are in the full block
            return []
        kind, make = form
        found: list[Event] = []
        part = lane.parts.get(event.index)
        if part is None:  # its start was not told
            found += self._course.begin(lane, ids_of(native).api_message_id or lane.id, "", native)
            lane.streams = True
            part = lane.parts[event.index] = Part(kind)
        text: str = event.delta.text  # type: ignore[union-attr]  # by the table
        if not text:
            return found
        part.told += len(text)
        if kind is blocks.ToolUse and not part.whole:
            part.pieces.append(text)
        return [*found, make(text=text, index=event.index, lane=lane.name, native=native)]

    def _part_started(self, lane: Lane, event: blocks.ContentBlockStart, native: Raw) -> list[Event]:
        block = event.content_block
        found = self._course.begin(lane, ids_of(native).api_message_id or lane.id, "", native)
        lane.streams = True
        if isinstance(block, blocks.ToolUse):
            lane.parts[event.index] = Part(blocks.ToolUse, block.id, block.name)
        else:
            lane.parts[event.index] = Part(type(block))
        return found

    def _part_stopped(self, lane: Lane, event: blocks.ContentBlockStop, native: Raw) -> list[Event]:
        """A call whose full form did not come is made of its pieces, here and once (spec agents 2.10)."""
        part = lane.parts.get(event.index)
        if part is None or part.whole or part.kind is not blocks.ToolUse or not part.id:
            return []
        text = "".join(part.pieces)
        part.pieces.clear()
        part.whole = True
        call = blocks.ToolUse(part.id, part.name, _input_of(text))
        return self._course.called(lane, call, ids_of(native).uuid, event.index, native)

    def _message_started(self, lane: Lane, event: blocks.MessageStart, native: Raw) -> list[Event]:
        message = event.message
        found = self._course.begin(lane, message.id or ids_of(native).api_message_id or "", message.model, native)
        lane.streams = True
        lane.uses(message.usage)
        return found

    def _message_ends(self, lane: Lane, event: blocks.MessageDelta, native: Raw) -> list[Event]:
        if not lane.begun:
            return []
        lane.stop = event.delta.stop_reason or lane.stop
        lane.aborted = lane.aborted or not lane.stop  # the model itself always has a reason
        lane.uses(event.usage, final=True)
        return self._course.finish(lane, native)

    def _message_stopped(self, lane: Lane, event: blocks.MessageStop, native: Raw) -> list[Event]:  # noqa: ARG002
        found = self._course.finish(lane, native)
        lane.streams = False
        return found

    # -- whole blocks -------------------------------------------------------------------------------------------------------------

    def _assistant(self, frame: Assistant, line: bytes) -> list[Event]:
        native = Raw(line)
        lane = self._course.lane(frame.parent_tool_use_id)
        message = frame.message
        found: list[Event] = []
        if frame.supersedes:
            found.append(events.OtherEvent(kind="retracted", lane=lane.name, native=native))
            found += self._course.retract(lane, frame.supersedes, native)
        found += self._course.begin(lane, message.id, message.model, native)
        lane.uses(message.usage)
        lane.stop = message.stop_reason or lane.stop
        if message.model == _SYNTHETIC and (frame.error or frame.is_api_error_message):
            # Not the model's words: why there are none.
            lane.error = (
                "\n".join(block.text for block in message.content if isinstance(block, blocks.Text)) or frame.error or "error"
            )
            return [*found, *self._course.finish(lane, native)]
        if frame.error:
            lane.error = frame.error
        for block in message.content:
            found += self._block(lane, block, frame, native)
        if message.stop_reason and not lane.streams:  # not made piece by piece: this was all
            found += self._course.finish(lane, native)
        return found

    def _block(self, lane: Lane, block: blocks.Block, frame: Assistant, native: Raw) -> list[Event]:
        if isinstance(block, blocks.ToolUse):
            index, _ = lane.claim(blocks.ToolUse, block.id)
            lane.count += 1
            return self._course.called(lane, block, frame.uuid, index, native)
        index, part = lane.claim(type(block))
        lane.count += 1
        rest = part.told if part is not None else 0
        found: list[Event] = []
        if isinstance(block, blocks.Thinking):
            if text := block.thinking[rest:]:
                found.append(events.Thinking(text=text, index=index, lane=lane.name, native=native))
            return found
        if isinstance(block, blocks.RedactedThinking):
            return found
        if isinstance(block, blocks.Text) and (text := block.text[rest:]):
            found.append(events.Text(text=text, index=index, lane=lane.name, native=native))
        if frame.aborted:  # cut off: no part of what the model said in the end
            lane.aborted = True
            return [*found, events.OtherEvent(kind="retracted", lane=lane.name, native=native)]
        if not isinstance(block, blocks.Text) or block.text:
            lane.said.append(Said(block_of(block), frame.uuid, index))
        return found

    # -- results ------------------------------------------------------------------------------------------------------------------

    def _user(self, frame: User, line: bytes) -> list[Event]:
        native = Raw(line)
        lane = self._course.lane(frame.parent_tool_use_id)
        found = [] if lane.streams else self._course.finish(lane, native)
        said = frame.message.content
        results = [block for block in said if isinstance(block, blocks.ToolResult)] if isinstance(said, list) else []
        if not results:
            kind = "replay" if frame.isReplay else "synthetic" if frame.isSynthetic else "text"
            return [*found, events.OtherEvent(kind=f"user/{kind}", lane=lane.name, native=native)]
        refused = _refused(frame.tool_result_meta)
        details = plain(frame.tool_use_result) if len(results) == 1 else None
        for block in results:
            opened = self._course.calls.get(block.tool_use_id)
            if opened is None:  # of before, or long over
                found.append(events.OtherEvent(kind="user/tool_result", lane=lane.name, native=native))
                continue
            content = content_of(block.content)
            code = refused.get(block.tool_use_id)
            if code is None and not (block.is_error and _unfit(content)):
                found += self._course.start(opened, native)
            result = ToolResult(content, bool(block.is_error), code or "", details=details)
            found += self._course.ended(opened, result, native)
        return found

    def _progress(self, frame: ToolProgress, line: bytes) -> list[Event]:
        native = Raw(line)
        opened = self._course.calls.get(frame.tool_use_id)
        text = f"{frame.elapsed_time_seconds:g} s"
        if opened is None:
            call = ToolCall(frame.tool_name, {}, frame.tool_use_id, ASKER)
            return [events.ToolProgress(call=call, text=text, lane=frame.parent_tool_use_id or "", native=native)]
        return [
            *self._course.start(opened, native),
            events.ToolProgress(call=opened.call, text=text, lane=opened.lane.name, native=native),
        ]

    def _result(self, frame: Result, line: bytes) -> list[Event]:
        """The driver makes a turn's end of it; here only what the model said is over."""
        self.session = self.session or frame.session_id
        self._main.streams = False
        return self._course.finish(self._main, Raw(line))

    # -- all the rest -------------------------------------------------------------------------------------------------------------

    def _system(self, frame: System, line: bytes) -> list[Event]:
        native = Raw(line)
        if frame.subtype == "init":
            return self._init(frame, native)
        self.session = self.session or frame.session_id
        if frame.subtype == "status" and frame.permissionMode:
            self.mode = frame.permissionMode
        if frame.subtype == "api_retry":
            self._course.again(self._main)
        found: list[Event] = []
        over = self._lanes.get(self._course.tasks.take(frame))
        if over is not None and over.name:
            found += self._course.leave(over, native)
        if frame.retracted_message_uuids:
            found.append(events.OtherEvent(kind="retracted", native=native))
            for lane in list(self._lanes.values()):
                found += self._course.retract(lane, frame.retracted_message_uuids, native)
        return [*found, *told(frame, native)]

    def _init(self, frame: System, native: Raw) -> list[Event]:
        """At the start of every turn (spec agents 2.5): it is no second session."""
        self.session = frame.session_id or self.session
        self.model = frame.model or self.model
        self.version = frame.claude_code_version or self.version
        before, self.mode = self.mode, frame.permissionMode or self.mode
        return [events.StateChanged(state=f"mode:{self.mode}", native=native)] if before and self.mode != before else []

    def _unknown(self, frame: Unknown, line: bytes) -> list[Event]:
        native = Raw(line)
        if frame.kind == "rate_limit_event" and (notice := notice_of_limit(native)) is not None:
            return [events.NoticeEvent(notice=notice, native=native)]
        return [events.OtherEvent(kind=frame.kind or "unknown", native=native)]


def _joined(kind: type, part: Part, index: int, text: str, lines: list[bytes]) -> list[Event]:
    """Pieces of one block that came together; `kind` is that of their deltas."""
    if not text:
        return []
    of, make = _PIECES[kind]
    part.told += len(text)
    if of is blocks.ToolUse:
        part.pieces.append(text)
    return [make(text=text, index=index, native=Raw(b"".join((b"[", b",".join(lines), b"]"))))]


def _input_of(text: str) -> Any:
    """A call's input as it streamed; the text itself when it is no JSON."""
    if not text:
        return {}
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return text


def _refused(meta: Raw) -> dict[str, str]:
    """Which calls never ran, and our word for why: a person, a rule or a mode said no, or something else was wrong."""
    found: dict[str, str] = {}
    entries = plain(meta)
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or not isinstance(id := entry.get("id"), str):
            continue
        decision = entry.get("permission_decision")
        said_no = isinstance(decision, dict) and decision.get("decision") == "reject"
        kind = entry.get("non_execution_kind")
        if said_no or kind in _DENIED:
            found[id] = "DENIED"
        elif kind:
            found[id] = ""
    return found


def _unfit(content: tuple[Block, ...]) -> bool:
    """Whether a call was turned away before anybody was asked: there is no such tool, or it does not take that."""
    first = content[0] if content else None
    return isinstance(first, TextBlock) and first.text.startswith(_TURNED_AWAY)
