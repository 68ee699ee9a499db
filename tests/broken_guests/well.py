"""A guest that does everything right. The broken ones beside it each do one thing differently."""

from __future__ import annotations

import json
import sys
from typing import Any

Frame = dict[str, Any]


class Well:
    """Everything on the read loop: nothing here takes time."""

    offers: tuple[Frame, ...] = (
        {
            "type": "register_tool",
            "name": "shout",
            "description": "The text in capitals.",
            "schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        },
    )

    def run(self) -> None:
        self.open()
        for line in sys.stdin.buffer:
            frame = self.read(line)
            if frame.get("type") == "shutdown":
                self.shut_down()
                return
            self.take(frame)

    def open(self) -> None:
        for frame in ({"type": "hello", "name": "well", "version": "1.0.0"}, *self.offers, {"type": "ready"}):
            self.say(frame)

    def say(self, frame: Frame) -> None:
        sys.stdout.write(json.dumps(frame) + "\n")
        sys.stdout.flush()

    def read(self, line: bytes) -> Frame:
        try:
            frame = json.loads(line)
        except ValueError:
            return {}
        return frame if isinstance(frame, dict) else {}

    def take(self, frame: Frame) -> None:
        match frame.get("type"):
            case "tool_call":
                self.say({"type": "tool_result", "id": frame["id"], **self.tool(frame["name"], frame["args"])})
            case "command_invoked":
                self.say({"type": "command_response", "id": frame["id"], "action": "noop", "error": "there is no such command"})
            case "event_intercept":
                self.say({"type": "event_intercept_response", "id": frame["id"], **self.judge(frame)})
            case "event":
                self.hear(frame)

    def tool(self, name: str, args: object) -> Frame:
        if name != "shout" or not isinstance(args, dict) or not isinstance(args.get("text"), str):
            return {"content": [{"type": "text", "text": "there is nothing to shout"}], "is_error": True}
        return {"content": [{"type": "text", "text": args["text"].upper()}]}

    def judge(self, question: Frame) -> Frame:
        return {}

    def hear(self, event: Frame) -> None:
        pass

    def shut_down(self) -> None:
        self.say({"type": "shutdown_ack"})


if __name__ == "__main__":
    try:
        Well().run()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
