"""Answers when it begins and when it is done."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def take(self, frame: Frame) -> None:
        if frame.get("type") == "tool_call":
            self.say({"type": "tool_result", "id": frame["id"], "content": [{"type": "text", "text": "working"}], "is_error": True})
        super().take(frame)


Broken().run()
