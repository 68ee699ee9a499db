"""The many things that Claude Code tells besides the conversation: system frames in neutral words (spec agents 2.5, 2.11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Raw

from serai.dialects.claude.frame_reader import read_retry
from serai.dialects.claude.messages import System
from serai.dialects.claude.tools import ASKER, decode_json, extract_first_line
from serai.model import events
from serai.model.actions import Level, Notice
from serai.model.events import Event, PlanEntry
from serai.plain_text import strip_text

_OVER = frozenset({"completed", "failed", "killed", "stopped", "cancelled"})
_Status = Literal["pending", "in_progress", "completed"]


class BackgroundTasks:
    """What works beside the conversation: agents, workflows, shells.

    A turn may follow when one of them is done (spec agents 2.11).
    """

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self._lanes: dict[str, str] = {}  # the call that each was started with
        self._part_of_turn: set[str] = set()  # those that are not in the background

    @property
    def lanes(self) -> frozenset[str]:
        """Of those that are at work."""
        return frozenset(lane for id, lane in self._lanes.items() if id in self.types)

    def end_turn(self, *, gone: bool) -> None:
        """What was part of the turn is over with it; when the program is gone, everything is."""
        for id in list(self.types) if gone else list(self._part_of_turn):
            self._remove(id)

    def end_call(self, call: str) -> None:
        """The call has its result: what was started with it is over, unless that is in the background."""
        for id in [id for id in self._part_of_turn if self._lanes.get(id) == call]:
            self._remove(id)

    def update(self, frame: System) -> str:
        """Keep count. The lane that is over with this frame, if one is."""
        id = frame.task_id
        match frame.subtype:
            case "task_started" if id:
                self.types[id] = frame.task_type or ""
                if frame.tool_use_id:
                    self._lanes[id] = frame.tool_use_id
                self._set_background(id, frame.is_backgrounded)
            case "task_notification":
                return self._remove(id)
            case "task_updated":
                patch = frame.patch or {}
                if patch.get("status") in _OVER:
                    return self._remove(id)
                self._set_background(id, patch.get("is_backgrounded"))
            case "background_tasks_changed":
                self._replace(frame.tasks or [])
        return ""

    def _set_background(self, id: str, background: Any) -> None:
        if background is False and id in self.types:
            self._part_of_turn.add(id)
        elif background is True:
            self._part_of_turn.discard(id)

    def _remove(self, id: str) -> str:
        self._part_of_turn.discard(id)
        self.types.pop(id, None)
        return self._lanes.pop(id, "")

    def _replace(self, tasks: list[Any]) -> None:
        """The whole set of those in the background, which may be told before each of them is."""
        now = {
            id: str(task.get("task_type") or self.types.get(id) or "")
            for task in tasks
            if isinstance(task, dict) and isinstance(id := task.get("task_id"), str)
        }
        for id in self.types.keys() - now.keys() - self._part_of_turn:
            self._remove(id)
        self._part_of_turn -= now.keys()
        self.types.update(now)


def translate_system_frame(frame: System, native: Raw) -> list[Event]:
    """The event that a frame is; an `OtherEvent` where no word fits."""
    make = _TOLD.get(frame.subtype)
    found = make(frame, native) if make is not None else None
    return [events.OtherEvent(kind=f"system/{frame.subtype}", native=native)] if found is None else found


def _translate_retry(frame: System, native: Raw) -> list[Event]:  # noqa: ARG001  (its words have had several spellings)
    retry = read_retry(bytes(native))
    error = retry.error if retry.status is None else f"{retry.error} ({retry.status})".lstrip()
    wait = retry.delay_ms / 1000
    return [events.Retrying(attempt=retry.attempt, most=retry.most, wait=wait, error=error, native=native)]


def _translate_status(frame: System, native: Raw) -> list[Event]:
    found: list[Event] = []
    if frame.permissionMode:
        found.append(events.StateChanged(state=f"mode:{frame.permissionMode}", native=native))
    if frame.status:
        found.append(events.StateChanged(state=frame.status, native=native))
    if frame.compact_error:
        text = f"the conversation could not be shortened: {extract_first_line(frame.compact_error)}"
        found.append(_build_notice(text, native, "warn"))
    return found


def _translate_state(frame: System, native: Raw) -> list[Event] | None:
    return [events.StateChanged(state=frame.state, native=native)] if frame.state else None


def _translate_thinking(frame: System, native: Raw) -> list[Event]:  # noqa: ARG001  (how many tokens it is so far is in the line)
    return [events.StateChanged(state="thinking", native=native)]


def _translate_compaction(frame: System, native: Raw) -> list[Event]:
    """It does not tell how many messages there were."""
    tokens = (frame.compact_metadata or {}).get("pre_tokens")
    return [events.Compacted(before=0, after=0, tokens=tokens if isinstance(tokens, int) else 0, native=native)]


def _translate_denial(frame: System, native: Raw) -> list[Event]:
    why = extract_first_line(frame.decision_reason or (frame.message if isinstance(frame.message, str) else ""))
    return [_build_notice(f"{frame.tool_name or 'a tool'} was not allowed" + (f": {why}" if why else ""), native, "warn")]


def _translate_info(frame: System, native: Raw) -> list[Event] | None:
    level: Level = "warn" if frame.level == "warning" else "info"
    return _build_text_notice(frame.content, native, level)


def _translate_notification(frame: System, native: Raw) -> list[Event] | None:
    return _build_text_notice(frame.text, native)


def _translate_output(frame: System, native: Raw) -> list[Event] | None:
    return _build_text_notice(frame.content, native)


def _translate_refusal(frame: System, native: Raw) -> list[Event]:
    models = f"{frame.original_model or 'the model'} would not answer"
    if frame.fallback_model:
        models += f"; {frame.fallback_model} is asked instead"
    said = extract_first_line(frame.content) if isinstance(frame.content, str) else ""
    return [_build_notice(said or models, native, "warn")]


def _translate_hook(frame: System, native: Raw) -> list[Event] | None:
    if frame.outcome != "error":
        return None
    output = frame.output if isinstance(frame.output, str) else ""
    why = extract_first_line(frame.stderr or "") or extract_first_line(output) or f"exit status {frame.exit_code}"
    return [_build_notice(f"the hook {frame.hook_name or frame.hook_event or ''} failed: {why}", native, "warn")]


_TOLD: dict[str, Callable[[System, Raw], list[Event] | None]] = {
    "api_retry": _translate_retry,
    "compact_boundary": _translate_compaction,
    "hook_response": _translate_hook,
    "informational": _translate_info,
    "local_command_output": _translate_output,
    "model_refusal_fallback": _translate_refusal,
    "model_refusal_no_fallback": _translate_refusal,
    "notification": _translate_notification,
    "permission_denied": _translate_denial,
    "session_state_changed": _translate_state,
    "status": _translate_status,
    "thinking_tokens": _translate_thinking,
}


def _build_text_notice(text: Any, native: Raw, level: Level = "info") -> list[Event] | None:
    return [_build_notice(strip_text(text), native, level)] if isinstance(text, str) and text.strip() else None


def _build_notice(text: str, native: Raw, level: Level = "info") -> Event:
    return events.NoticeEvent(notice=Notice(text, level, ASKER), native=native)


def read_limit_notice(line: Raw) -> Notice | None:
    """What a person should know of a rate limit: that it is near, or reached."""
    frame = decode_json(line)
    info = frame.get("rate_limit_info") if isinstance(frame, dict) else None
    if not isinstance(info, dict):
        return None
    what = f"the rate limit ({info['rateLimitType']})" if isinstance(info.get("rateLimitType"), str) else "the rate limit"
    match info.get("status"):
        case "rejected":
            return Notice(f"{what} is reached", "error", ASKER)
        case "allowed_warning":
            used = info.get("utilization")
            share = f": {used:.0%} of it is used" if isinstance(used, int | float) and not isinstance(used, bool) else ""
            return Notice(f"{what} is near{share}", "warn", ASKER)
    return None


def read_plan(input: Any) -> tuple[PlanEntry, ...] | None:
    """The entries of a to-do list; None when it is none."""
    todos = input.get("todos") if isinstance(input, dict) else None
    if not isinstance(todos, list):
        return None
    return tuple(
        PlanEntry(text, _parse_status(todo.get("status")))
        for todo in todos
        if isinstance(todo, dict) and isinstance(text := todo.get("content"), str)
    )


def _parse_status(word: Any) -> _Status:
    match word:
        case "in_progress" | "completed":
            return word  # type: ignore[no-any-return]
        case _:
            return "pending"
