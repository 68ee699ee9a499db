"""Answers, and a moment later answers again."""

from __future__ import annotations

import sys
import threading

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def take(self, frame: Frame) -> None:
        super().take(frame)
        if frame.get("type") == "tool_call":
            again = threading.Timer(0.3, super().take, [frame])
            again.daemon = True
            again.start()


Broken().run()
