"""The (made-up) weather of every city: a tool, two commands, and many requests at a time.

A zot extension is a program that the host starts in this folder, as `extension.json` says. Frames, one JSON object per
line, go over stdin and stdout; stderr is for the log. This one answers each request on a thread of its own, so a slow
answer holds up nothing: neither the other requests nor the end.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import zlib
from typing import Any

Frame = dict[str, Any]

SKIES = ["sun", "clouds", "rain", "fog", "wind", "snow"]
CITY = {"type": "string", "description": "name of the city"}
DELAY = {"type": "number", "minimum": 0, "maximum": 50, "description": "seconds the weather station takes to answer"}

# All of this is said at once, without waiting for the host: hello comes first, ready comes last.
INTRODUCTION: list[Frame] = [
    {"type": "hello", "name": "weather", "version": "1.0.0", "capabilities": ["commands", "tools"]},
    {"type": "notify", "level": "info", "message": "the weather station is open"},
    {"type": "register_command", "name": "weather", "description": "show the weather in a city"},
    {"type": "register_command", "name": "forecast", "description": "ask the model what to wear in a city"},
    {
        "type": "register_tool",
        "name": "weather",
        "description": "The current weather in a city.",
        "schema": {"type": "object", "properties": {"city": CITY, "delay": DELAY}, "required": ["city"]},
    },
    {"type": "ready"},
]

# Frames have stdout for themselves: a stray print, also that of a library, goes to the log instead.
frames = os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(2, 1)
writing = threading.Lock()
leaving = threading.Event()


def send(frame: Frame) -> None:
    """Write one frame, whole: several threads answer."""
    line = json.dumps(frame).encode() + b"\n"
    with writing:
        try:
            frames.write(line)
        except BrokenPipeError:
            pass  # the host is gone, and so is our input: the read loop ends by itself


def weather(city: str) -> str:
    """Make the weather up from the name: the same city always has the same."""
    chance = zlib.crc32(city.casefold().encode("utf-8", "replace"))  # not hash(): that differs from run to run
    return f"{city}: {chance % 36 - 8} degrees, {SKIES[chance // 36 % len(SKIES)]}"


def use_tool(name: object, args: object) -> str:
    """Arguments are whatever the model made of the schema, so they are looked at before they are used."""
    if name != "weather":
        raise ValueError(f"there is no tool {name!r} here")
    if not isinstance(args, dict) or not isinstance(args.get("city"), str) or not args["city"].strip():
        raise ValueError('weather needs a city, as in {"city": "Bern"}')
    delay = args.get("delay", 0)
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay <= 50:
        raise ValueError("delay is a number of seconds from 0 to 50")
    if leaving.wait(delay):
        raise ValueError("the weather station has closed")
    return weather(args["city"].strip())


def answer_tool(frame: Frame) -> None:
    """Exactly one tool_result for each tool_call, whatever happens."""
    answer: Frame = {"type": "tool_result", "id": frame["id"]}
    try:
        text = use_tool(frame.get("name"), frame.get("args"))
    except Exception as error:
        text = str(error)
        answer["is_error"] = True
    answer["content"] = [{"type": "text", "text": text}]
    send(answer)


def answer_command(frame: Frame) -> None:
    """The action says what the host does with the text: display shows it, prompt hands it to the model."""
    name, args = frame.get("name"), frame.get("args", "")
    city = args.strip() if isinstance(args, str) else ""
    answer: Frame = {"type": "command_response", "id": frame["id"]}
    if name not in ("weather", "forecast"):
        answer |= {"action": "noop", "error": f"there is no command /{name} here"}
    elif not city:
        answer |= {"action": "noop", "error": f"which city? As in: /{name} Bern"}
    elif name == "weather":
        answer |= {"action": "display", "display": weather(city)}
    else:
        answer |= {"action": "prompt", "prompt": f"What should I wear today? The weather in {weather(city)}."}
    send(answer)


ANSWERS = {"tool_call": answer_tool, "command_invoked": answer_command}


def read(line: bytes) -> Frame:
    """What is no frame is not for us: an empty one, which the read loop passes over."""
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return frame if isinstance(frame, dict) else {}


def main() -> None:
    for frame in INTRODUCTION:
        send(frame)
    for line in sys.stdin.buffer:
        frame = read(line)
        kind = frame.get("type")
        if kind == "shutdown":
            send({"type": "shutdown_ack"})
            break
        # Other frames (hello_ack, events, what later hosts may send) need no answer here.
        if isinstance(kind, str) and kind in ANSWERS and isinstance(frame.get("id"), str):
            threading.Thread(target=ANSWERS[kind], args=(frame,)).start()
    # The end of input means shutdown too: a host that was killed sends no frame. Threads that still wait
    # answer now, and Python ends when they have.
    leaving.set()


if __name__ == "__main__":
    main()
