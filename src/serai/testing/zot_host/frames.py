"""The frames that an extension may send, as spec zot 3.2 has them, and what can be wrong with one."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = [
    "ACTIONS",
    "ANSWERS",
    "EVENTS",
    "FRAMES",
    "INTERCEPTABLE",
    "LONGEST",
    "Flaws",
    "Frame",
    "is_base64",
    "misplaced",
    "no_json",
    "parsed",
]

Frame = dict[str, Any]
Texts = list[str]  # a list of strings, as a type of a field
LONGEST = 4 * 1024 * 1024  # bytes of a line, with its end (spec zot 3.1)

# Spec zot 3.2: the required and the optional fields of each frame that an extension may send.
FRAMES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "hello": ({"name": str, "version": str}, {"capabilities": Texts}),
    "register_command": ({"name": str}, {"description": str}),
    "register_tool": ({"name": str}, {"description": str, "schema": object}),
    "subscribe": ({}, {"events": Texts, "intercept": Texts}),
    "ready": ({}, {}),
    "command_response": (
        {"id": str, "action": str},
        {"prompt": str, "insert": str, "display": str, "open_panel": dict, "error": str},
    ),
    "tool_result": ({"id": str, "content": list}, {"is_error": bool}),
    "event_intercept_response": ({"id": str}, {"block": bool, "reason": str, "modified_args": dict, "replace_text": str}),
    "panel_render": ({"panel_id": str}, {"title": str, "lines": Texts, "footer": str}),
    "panel_close": ({"panel_id": str}, {}),
    "notify": ({"level": str, "message": str}, {}),
    "shutdown_ack": ({}, {}),
}
BLOCKS: dict[str, dict[str, object]] = {"text": {"text": str}, "image": {"mime_type": str, "data": str}}
PANEL: dict[str, object] = {"title": str, "lines": Texts, "footer": str}
ANSWERS = {"tool_call": "tool_result", "command_invoked": "command_response", "event_intercept": "event_intercept_response"}
ACTIONS = ("prompt", "insert", "display", "open_panel", "noop", "")
LEVELS = ("info", "success", "warn", "error")
EVENTS = ("session_start", "turn_start", "turn_end", "tool_call", "assistant_message")
INTERCEPTABLE = ("tool_call", "turn_start", "assistant_message")
_REWRITES = {"modified_args": "tool_call", "replace_text": "assistant_message"}  # what may be rewritten, and where
# Required, and yet every host does without them (spec zot 2.2, 3.2, 7.10).
FORGIVEN = {("hello", "version"), ("command_response", "action"), ("tool_result", "content")}

_WORDS: dict[object, str] = {str: "a string", bool: "true or false", list: "a list", dict: "an object", Texts: "a list of strings"}


class Flaws(NamedTuple):
    """What is `wrong` with a frame, so that a host cannot use it, and what is `odd`, so that a host reads over it."""

    wrong: list[str]
    odd: list[str]

    @classmethod
    def of(cls, frame: Frame) -> Flaws:
        """Those of a frame that has a type of the protocol."""
        flaws, kind = cls([], []), frame["type"]
        flaws._fields_of(kind, frame, *FRAMES[kind])
        for number, block in enumerate(frame["content"] if isinstance(frame.get("content"), list) else ()):
            if not isinstance(block, dict) or not isinstance(block.get("type"), str) or block["type"] not in BLOCKS:
                flaws.wrong.append(f"content[{number}] is no block of the type text or image")
            else:
                flaws._fields_of(f"content[{number}]", block, BLOCKS[block["type"]], {})
                if isinstance(data := block.get("data"), str) and not is_base64(data):
                    flaws.wrong.append(f"content[{number}].data is not base64 in the standard alphabet with padding")
        if isinstance(panel := frame.get("open_panel"), dict):
            flaws._fields_of("open_panel", panel, {"id": str}, PANEL)
        if kind == "command_response" and isinstance(action := frame.get("action"), str) and action not in ACTIONS:
            flaws.wrong.append(f"there is no action {action!r}")
        if kind == "command_response" and _is_idle(frame):
            flaws.odd.append(f"the action {frame['action']} does nothing without {frame['action']}")
        if kind == "notify" and isinstance(level := frame.get("level"), str) and level not in LEVELS:
            flaws.odd.append(f"there is no level {level!r}")
        return flaws

    def _fields_of(self, what: str, value: Frame, required: Mapping[str, object], optional: Mapping[str, object]) -> None:
        for key, kind in required.items():
            if value.get(key) is None:
                (self.odd if (what, key) in FORGIVEN else self.wrong).append(f"{what} needs {key} ({_WORDS[kind]})")
            elif not _fits(value[key], kind):
                self.wrong.append(f"{key} is of a wrong type: {_WORDS[kind]} is wanted")
        for key, kind in optional.items():
            if key in value and value[key] is None:
                # Some hosts rewrite the arguments to null for a literal null (spec zot 4.4); else it is absence (spec zot 3.1).
                (self.wrong if key == "modified_args" else self.odd).append(f"{key} is null: leave out what is not set")
            elif key in value and not _fits(value[key], kind):
                self.wrong.append(f"{key} is of a wrong type: {_WORDS[kind]} is wanted")
        self.odd.extend(f"{what} has no field {key}" for key in sorted(value.keys() - required.keys() - optional.keys() - {"type"}))


def _fits(value: object, kind: object) -> bool:
    if kind is Texts:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(kind, type) and isinstance(value, kind)


def _is_idle(response: Frame) -> bool:
    """Whether it names an action and not with what; an error comes before every action (spec zot 4.2)."""
    action = response.get("action")
    return (
        action in ("prompt", "insert", "display", "open_panel") and not response.get("error") and response.get(action) in (None, "")
    )


def misplaced(event: object, answer: Frame) -> list[str]:
    """What an answer rewrites that cannot be rewritten at that event (spec zot 4.4)."""
    rewritten = [field for field in _REWRITES if answer.get(field) not in (None, "")]
    return [f"{field} does nothing at {event}: it is for {_REWRITES[field]}" for field in rewritten if _REWRITES[field] != event]


def is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def parsed(line: bytes) -> Frame | None:
    """A line as an object with a type; None when it is no frame at all."""
    try:
        frame = json.loads(line.decode(), parse_constant=no_json)
    except (ValueError, RecursionError):
        return None
    return frame if isinstance(frame, dict) and isinstance(frame.get("type"), str) else None


def no_json(word: str) -> None:
    """`NaN` and its like, which Python would read."""
    raise ValueError(word)
