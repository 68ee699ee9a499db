"""The many things that Claude Code tells besides the conversation: system frames in neutral words (spec agents 2.5, 2.11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Raw

from serai.dialects.claude.frame_reader import retry_of
from serai.dialects.claude.messages import System
from serai.dialects.claude.tools import ASKER, first_line, json_value
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

    def turn_over(self, *, gone: bool) -> None:
        """What was part of the turn is over with it; when the program is gone, everything is."""
        for id in list(self.types) if gone else list(self._part_of_turn):
            self._over(id)

    def called_off(self, call: str) -> None:
        """The call has its result: what was started with it is over, unless that is in the background."""
        for id in [id for id in self._part_of_turn if self._lanes.get(id) == call]:
            self._over(id)

    def take(self, frame: System) -> str:
        """Keep count. The lane that is over with this frame, if one is."""
        id = frame.task_id
        match frame.subtype:
            case "task_started" if id:
                self.types[id] = frame.task_type or ""
                if frame.tool_use_id:
                    self._lanes[id] = frame.tool_use_id
                self._place(id, frame.is_backgrounded)
            case "task_notification":
                return self._over(id)
            case "task_updated":
                patch = frame.patch or {}
                if patch.get("status") in _OVER:
                    return self._over(id)
                self._place(id, patch.get("is_backgrounded"))
            case "background_tasks_changed":
                self._replace(frame.tasks or [])
        return ""

    def _place(self, id: str, background: Any) -> None:
        if background is False and id in self.types:
            self._part_of_turn.add(id)
        elif background is True:
            self._part_of_turn.discard(id)

    def _over(self, id: str) -> str:
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
            self._over(id)
        self._part_of_turn -= now.keys()
        self.types.update(now)


def system_event(frame: System, native: Raw) -> list[Event]:
    """The event that a frame is; an `OtherEvent` where no word fits."""
    make = _TOLD.get(frame.subtype)
    found = make(frame, native) if make is not None else None
    return [events.OtherEvent(kind=f"system/{frame.subtype}", native=native)] if found is None else found


def _retrying(frame: System, native: Raw) -> list[Event]:  # noqa: ARG001  (its words have had several spellings)
    retry = retry_of(bytes(native))
    error = retry.error if retry.status is None else f"{retry.error} ({retry.status})".lstrip()
    wait = retry.delay_ms / 1000
    return [events.Retrying(attempt=retry.attempt, most=retry.most, wait=wait, error=error, native=native)]


def _status(frame: System, native: Raw) -> list[Event]:
    found: list[Event] = []
    if frame.permissionMode:
        found.append(events.StateChanged(state=f"mode:{frame.permissionMode}", native=native))
    if frame.status:
        found.append(events.StateChanged(state=frame.status, native=native))
    if frame.compact_error:
        text = f"the conversation could not be shortened: {first_line(frame.compact_error)}"
        found.append(_noticed(text, native, "warn"))
    return found


def _state(frame: System, native: Raw) -> list[Event] | None:
    return [events.StateChanged(state=frame.state, native=native)] if frame.state else None


def _thinking(frame: System, native: Raw) -> list[Event]:  # noqa: ARG001  (how many tokens it is so far is in the line)
    return [events.StateChanged(state="thinking", native=native)]


def _compacted(frame: System, native: Raw) -> list[Event]:
    """It does not tell how many messages there were."""
    tokens = (frame.compact_metadata or {}).get("pre_tokens")
    return [events.Compacted(before=0, after=0, tokens=tokens if isinstance(tokens, int) else 0, native=native)]


def _denied(frame: System, native: Raw) -> list[Event]:
    why = first_line(frame.decision_reason or (frame.message if isinstance(frame.message, str) else ""))
    return [_noticed(f"{frame.tool_name or 'a tool'} was not allowed" + (f": {why}" if why else ""), native, "warn")]


def _informed(frame: System, native: Raw) -> list[Event] | None:
    level: Level = "warn" if frame.level == "warning" else "info"
    return _notice(frame.content, native, level)


def _notified(frame: System, native: Raw) -> list[Event] | None:
    return _notice(frame.text, native)


def _answered(frame: System, native: Raw) -> list[Event] | None:
    return _notice(frame.content, native)


def _refusal(frame: System, native: Raw) -> list[Event]:
    models = f"{frame.original_model or 'the model'} would not answer"
    if frame.fallback_model:
        models += f"; {frame.fallback_model} is asked instead"
    said = first_line(frame.content) if isinstance(frame.content, str) else ""
    return [_noticed(said or models, native, "warn")]


def _hook(frame: System, native: Raw) -> list[Event] | None:
    if frame.outcome != "error":
        return None
    output = frame.output if isinstance(frame.output, str) else ""
    why = first_line(frame.stderr or "") or first_line(output) or f"exit status {frame.exit_code}"
    return [_noticed(f"the hook {frame.hook_name or frame.hook_event or ''} failed: {why}", native, "warn")]


_TOLD: dict[str, Callable[[System, Raw], list[Event] | None]] = {
    "api_retry": _retrying,
    "compact_boundary": _compacted,
    "hook_response": _hook,
    "informational": _informed,
    "local_command_output": _answered,
    "model_refusal_fallback": _refusal,
    "model_refusal_no_fallback": _refusal,
    "notification": _notified,
    "permission_denied": _denied,
    "session_state_changed": _state,
    "status": _status,
    "thinking_tokens": _thinking,
}


def _notice(text: Any, native: Raw, level: Level = "info") -> list[Event] | None:
    return [_noticed(strip_text(text), native, level)] if isinstance(text, str) and text.strip() else None


def _noticed(text: str, native: Raw, level: Level = "info") -> Event:
    return events.NoticeEvent(notice=Notice(text, level, ASKER), native=native)


def notice_of_limit(line: Raw) -> Notice | None:
    """What a person should know of a rate limit: that it is near, or reached."""
    frame = json_value(line)
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


def plan_of(input: Any) -> tuple[PlanEntry, ...] | None:
    """The entries of a to-do list; None when it is none."""
    todos = input.get("todos") if isinstance(input, dict) else None
    if not isinstance(todos, list):
        return None
    return tuple(
        PlanEntry(text, _status_of(todo.get("status")))
        for todo in todos
        if isinstance(todo, dict) and isinstance(text := todo.get("content"), str)
    )


def _status_of(word: Any) -> _Status:
    match word:
        case "in_progress" | "completed":
            return word  # type: ignore[no-any-return]
        case _:
            return "pending"
