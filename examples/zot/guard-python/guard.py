"""A guard: it is asked before every tool call, model call and message, and blocks or rewrites.

Each question is an `event_intercept` with an id; the answer blocks (with a reason), rewrites, or allows by saying
nothing more. The host waits five seconds at most, so a guard thinks fast: this one judges on the read loop, one
question after the other. It reads text and no minds: it stops accidents, a sandbox stops intent.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

Frame = dict[str, Any]

LAST_STEP = 50
SECRET, MASK = "password is hunter2", "password is *******"
RM = re.compile(r"(?<![\w-])rm((?:\s+-\S+)+)")  # rm and the options that follow it
OPEN = re.compile(r"\bchmod 777\b")

INTRODUCTION: list[Frame] = [
    {"type": "hello", "name": "guard", "version": "1.0.0", "capabilities": ["events"]},
    {"type": "subscribe", "intercept": ["tool_call", "turn_start", "assistant_message"]},
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


def texts(value: object) -> str:
    """All text in the arguments of a call, wherever it stands: tools name their arguments as they like."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    return " ".join(texts(item) for item in value) if isinstance(value, list) else ""


def deletes_trees(text: str) -> bool:
    """True for `rm -rf` in any of its spellings: -fr, -r -f, --recursive --force."""
    for match in RM.finditer(text):
        options = match[1].split()
        letters = "".join(option for option in options if not option.startswith("--")).lower()
        if ("r" in letters or "--recursive" in options) and ("f" in letters or "--force" in options):
            return True
    return False


def judge_tool_call(frame: Frame) -> Frame:
    tool, args = frame.get("tool_name"), frame.get("tool_args")
    if deletes_trees(texts(args)):
        return {"block": True, "reason": f"{tool}: rm -rf is not run here; delete files by name"}
    if tool == "weather" and isinstance(args, dict) and args.get("city") == "Paris":
        return {"modified_args": {**args, "city": "Bern"}}  # all arguments, not only the changed one
    if tool == "bash" and isinstance(args, dict) and OPEN.search(str(args.get("command"))):
        return {"modified_args": {**args, "command": OPEN.sub("chmod 755", str(args["command"]))}}
    return {}


def judge_turn_start(frame: Frame) -> Frame:
    if (frame.get("step") or 0) > LAST_STEP:
        return {"block": True, "reason": f"{LAST_STEP} steps are enough for one prompt; say what is still to do"}
    return {}


def judge_assistant_message(frame: Frame) -> Frame:
    text = frame.get("text") or ""
    return {"replace_text": text.replace(SECRET, MASK)} if SECRET in text else {}


JUDGES = {"tool_call": judge_tool_call, "turn_start": judge_turn_start, "assistant_message": judge_assistant_message}


def verdict(frame: Frame) -> Frame:
    """Judge one question. A guard that stumbles blocks; one that was not asked for by name allows."""
    judge = JUDGES.get(str(frame.get("event")))
    try:
        return judge(frame) if judge else {}
    except Exception as error:
        return {"block": True, "reason": f"the guard could not judge this: {error}"}


def read(line: bytes) -> Frame:
    """What is no frame is not for us. If it was meant as a question, silence is the one answer left."""
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return frame if isinstance(frame, dict) else {}


def refusal(frame: Frame) -> Frame | None:
    """The guard offers no tools and no commands; whoever asks all the same is told so."""
    text = f"there is no {frame.get('name')!r} here"
    if frame.get("type") == "tool_call":
        return {"type": "tool_result", "id": frame["id"], "content": [{"type": "text", "text": text}], "is_error": True}
    if frame.get("type") == "command_invoked":
        return {"type": "command_response", "id": frame["id"], "action": "noop", "error": text}
    return None


def main() -> None:
    for frame in INTRODUCTION:
        send(frame)
    for line in sys.stdin.buffer:  # its end means shutdown, too
        frame = read(line)
        if frame.get("type") == "shutdown":
            send({"type": "shutdown_ack"})
            break
        if not isinstance(frame.get("id"), str):
            continue
        if frame.get("type") == "event_intercept":
            send({"type": "event_intercept_response", "id": frame["id"], **verdict(frame)})
        elif answer := refusal(frame):
            send(answer)


if __name__ == "__main__":
    main()
