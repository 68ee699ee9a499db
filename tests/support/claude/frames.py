"""Frames in, neutral events out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from serai.dialects.claude.frame_reader import FrameReader
from serai.dialects.claude.messages import Result
from serai.dialects.claude.neutral import ClaudeTurnOutcome, FrameTranslator, read_outcome
from serai.dialects.claude.tools import ToolMap
from serai.model import events
from serai.model.events import Event, Message, Text, ToolEnded
from serai.model.tools import ToolResult

FOLDER = Path(__file__).parents[2] / "captures" / "claude"
CAPTURES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def read_capture(name: str) -> list[dict[str, Any]]:
    """What the program wrote."""
    entries = map(json.loads, (FOLDER / f"{name}.jsonl").read_text().splitlines())
    return [entry["line"] for entry in entries if entry["dir"] == "out" and isinstance(entry["line"], dict)]


class Fold:
    """A translator as a driver uses it: a result ends the turn. Every event has the line that it came in."""

    def __init__(self, tools: ToolMap | None = None) -> None:
        self.translator = FrameTranslator(tools)
        self.outcomes: list[ClaudeTurnOutcome] = []
        self._reader = FrameReader()

    def __call__(self, *frames: dict[str, Any]) -> list[Event]:
        return [event for frame in frames for event in self._one(frame)]

    def _one(self, value: dict[str, Any]) -> Iterable[Event]:
        [(frame, line)] = self._reader.read(msgspec.json.encode(value) + b"\n")
        found = self.translator.translate(frame, line)
        assert all(bytes(event.native) == line for event in found)
        assert all(json.loads(bytes(event.native)) == value for event in found)
        if isinstance(frame, Result):
            self.outcomes.append(read_outcome(frame, line))
            found += self.translator.end(self.outcomes[-1].interrupted)
        return map(strip_native, found)


def strip_native(event: Event) -> Event:
    return msgspec.structs.replace(event, native=None)


def fold_capture(name: str) -> tuple[list[Event], Fold]:
    fold = Fold()
    return fold(*read_capture(name)), fold


def kinds(found: Iterable[Event]) -> list[str]:
    return [events.event_kind(event) for event in found]


def texts(found: list[Event]) -> list[str]:
    return [event.text for event in found if isinstance(event, Text)]


def message_texts(found: list[Event]) -> list[str]:
    return [event.text for event in found if isinstance(event, Message)]


def tool_results(found: list[Event]) -> dict[str, ToolResult]:
    return {event.call.id: event.result for event in found if isinstance(event, ToolEnded)}


# -- frames


def stream_event(event: dict[str, Any], lane: str | None = None, message: str = "m1", **more: Any) -> dict[str, Any]:
    return {"type": "stream_event", "event": event, "parent_tool_use_id": lane, "api_message_id": message, "uuid": "s", **more}


def message_start(id: str = "m1", lane: str | None = None, **usage: int) -> dict[str, Any]:
    message: dict[str, Any] = {"id": id, "role": "assistant", "model": "opus", "content": [], "usage": usage or None}
    return stream_event({"type": "message_start", "message": message}, lane, id)


def block_start(index: int, block: dict[str, Any], lane: str | None = None, message: str = "m1") -> dict[str, Any]:
    return stream_event({"type": "content_block_start", "index": index, "content_block": block}, lane, message)


def text_start(index: int = 0, lane: str | None = None, message: str = "m1") -> dict[str, Any]:
    return block_start(index, {"type": "text", "text": ""}, lane, message)


def call_start(index: int, id: str, name: str) -> dict[str, Any]:
    return block_start(index, {"type": "tool_use", "id": id, "name": name, "input": {}})


def delta(index: int, lane: str | None = None, message: str = "m1", **said: str) -> dict[str, Any]:
    [(key, value)] = said.items()
    kind = {"text": "text_delta", "thinking": "thinking_delta", "partial_json": "input_json_delta"}[key]
    return stream_event({"type": "content_block_delta", "index": index, "delta": {"type": kind, key: value}}, lane, message)


def block_stop(index: int, lane: str | None = None, message: str = "m1") -> dict[str, Any]:
    return stream_event({"type": "content_block_stop", "index": index}, lane, message)


def message_delta(stop: str | None = "end_turn", lane: str | None = None, message: str = "m1", **usage: int) -> dict[str, Any]:
    return stream_event({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage or None}, lane, message)


def message_stop(lane: str | None = None, message: str = "m1", **more: Any) -> dict[str, Any]:
    return stream_event({"type": "message_stop"}, lane, message, **more)


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def use(id: str, name: str, **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def assistant(*blocks: dict[str, Any], id: str = "m1", lane: str | None = None, uuid: str = "", **more: Any) -> dict[str, Any]:
    usage = more.pop("usage", None)
    message = {"id": id, "role": "assistant", "model": "opus", "content": list(blocks), "stop_reason": None, "usage": usage}
    return {"type": "assistant", "message": message, "parent_tool_use_id": lane, "uuid": uuid, **more}


def result_of(id: str, content: Any = "ok", *, lane: str | None = None, error: bool = False, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": error}
    return user([block], lane=lane, **more)


def user(content: Any, *, lane: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": lane, **more}


def system(subtype: str, **more: Any) -> dict[str, Any]:
    return {"type": "system", "subtype": subtype, "session_id": "s1", **more}


def init(session: str = "s1", mode: str = "default", **more: Any) -> dict[str, Any]:
    return {
        **system("init"),
        "session_id": session,
        "permissionMode": mode,
        "model": "opus",
        "claude_code_version": "2.1.325",
        **more,
    }


def result(said: str = "done", **more: Any) -> dict[str, Any]:
    form = {"type": "result", "subtype": "success", "is_error": False, "result": said, "session_id": "s1", "num_turns": 1}
    return {**form, "total_cost_usd": 0.5, "usage": {"input_tokens": 3, "output_tokens": 4}, **more}


def task_start(id: str = "t1", call: str = "a1", *, background: bool = True) -> dict[str, Any]:
    return system("task_started", task_id=id, task_type="local_agent", tool_use_id=call, is_backgrounded=background)
