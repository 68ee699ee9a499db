"""Says nothing when it is asked for a tool that it does not have."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def take(self, frame: Frame) -> None:
        if frame.get("type") != "tool_call" or frame["name"] == "shout":
            super().take(frame)


Broken().run()
