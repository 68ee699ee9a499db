"""A panel: /pick opens a list of harbours; keys move, filter and pick.

The host draws the lines it is given and passes every key on. Esc is the host's: it closes the panel and tells us.
Keys must take effect in the order in which they were typed, so this extension does everything on its read loop.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

Frame = dict[str, Any]

PANEL = "harbours"
HARBOURS = ["Antwerp", "Bergen", "Cuxhaven", "Gdańsk", "Husum", "Rotterdam", "Tallinn", "Valparaíso"]

INTRODUCTION: list[Frame] = [
    {"type": "hello", "name": "harbours", "version": "1.0.0", "capabilities": ["commands", "tools", "panels"]},
    {"type": "register_command", "name": "pick", "description": "pick a harbour from a list"},
    {
        "type": "register_tool",
        "name": "picked",
        "description": "The harbour that the person picked last.",
        "schema": {"type": "object", "properties": {}},
    },
    {"type": "ready"},
]

# Frames have stdout for themselves: a stray print goes to the log instead.
frames = os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(2, 1)


def send(frame: Frame) -> None:
    try:
        frames.write(json.dumps(frame).encode() + b"\n")
    except BrokenPipeError:
        pass  # the host is gone, and so is our input: the read loop ends by itself


class Picker:
    """The list as it stands: what is typed, where the cursor is, what was picked last."""

    def __init__(self) -> None:
        self.open = False
        self.filter = ""
        self.cursor = 0
        self.width = 80
        self.choice = ""

    def show(self, filter: str) -> Frame:
        """Open anew; the answer to /pick carries the first picture."""
        self.open, self.filter, self.cursor = True, filter, 0
        return {"id": PANEL, "title": "Harbours", **self.picture()}

    def matches(self) -> list[str]:
        return [name for name in HARBOURS if self.filter.casefold() in name.casefold()]

    def picture(self) -> Frame:
        """Always lines and footer both: a render without them would clear them. Without a title it keeps the old one."""
        found = self.matches()
        rows = [f"{'>' if row == self.cursor else ' '} {name}" for row, name in enumerate(found)]
        footer = f"filter: {self.filter}_  enter pick  esc close"
        return {"lines": [row[: self.width] for row in rows or ["  no harbour has this name"]], "footer": footer}

    def press(self, key: object, text: object) -> None:
        """Do what a key means here; those that mean nothing change nothing."""
        last = len(self.matches()) - 1
        if key == "enter" and last >= 0:
            self.pick(self.matches()[self.cursor])
            return
        if key == "rune" and isinstance(text, str):
            self.filter, self.cursor = self.filter + text, 0
        elif key == "backspace":
            self.filter, self.cursor = self.filter[:-1], 0
        else:
            moves = {"up": self.cursor - 1, "down": self.cursor + 1, "home": 0, "end": last}
            self.cursor = max(0, min(moves.get(str(key), self.cursor), last))
        self.draw()

    def resize(self, width: object) -> None:
        """Few hosts tell the size, and lines are not wrapped by any: cut what would stick out."""
        if isinstance(width, int) and width > 0:
            self.width = width
        self.draw()

    def pick(self, name: str) -> None:
        """Close our own panel: the host does so silently, no frame comes back."""
        self.open, self.choice = False, name
        send({"type": "panel_close", "panel_id": PANEL})
        send({"type": "notify", "level": "success", "message": f"picked {name}"})

    def draw(self) -> None:
        send({"type": "panel_render", "panel_id": PANEL, **self.picture()})


def answer_command(picker: Picker, frame: Frame) -> Frame:
    answer = {"type": "command_response", "id": frame["id"]}
    if frame.get("name") != "pick":
        return {**answer, "action": "noop", "error": f"there is no command /{frame.get('name')} here"}
    args = frame.get("args", "")
    return {**answer, "action": "open_panel", "open_panel": picker.show(args if isinstance(args, str) else "")}


def answer_tool(picker: Picker, frame: Frame) -> Frame:
    answer = {"type": "tool_result", "id": frame["id"]}
    if frame.get("name") != "picked":
        text = f"there is no tool {frame.get('name')!r} here"
        return {**answer, "content": [{"type": "text", "text": text}], "is_error": True}
    return {**answer, "content": [{"type": "text", "text": picker.choice or "nothing was picked yet"}]}


def serve(picker: Picker, frame: Frame) -> None:
    kind = frame.get("type")
    if isinstance(frame.get("id"), str) and kind in ("command_invoked", "tool_call"):
        send(answer_command(picker, frame) if kind == "command_invoked" else answer_tool(picker, frame))
    elif picker.open and frame.get("panel_id") == PANEL:  # a key may still be on its way when the panel has closed
        if kind == "panel_key":
            picker.press(frame.get("key"), frame.get("text"))
        elif kind == "panel_resize":
            picker.resize(frame.get("width"))
        elif kind == "panel_close":
            picker.open = False


def read(line: bytes) -> Frame:
    """What is no frame is not for us: an empty one, which nothing answers."""
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return frame if isinstance(frame, dict) else {}


def main() -> None:
    for frame in INTRODUCTION:
        send(frame)
    picker = Picker()
    for line in sys.stdin.buffer:  # its end means shutdown, too
        frame = read(line)
        if frame.get("type") == "shutdown":
            send({"type": "shutdown_ack"})
            break
        serve(picker, frame)


if __name__ == "__main__":
    main()
