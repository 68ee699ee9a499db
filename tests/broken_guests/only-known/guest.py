"""Ends at a frame that it does not know."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    known = ("hello_ack", "tool_call", "event", "panel_key", None, 7)

    def take(self, frame: Frame) -> None:
        if frame.get("type") not in self.known:
            raise ValueError(f"unknown frame: {frame}")
        super().take(frame)


Broken().run()
