"""SIGTERM does not end it while it works: when the first thing that it hears is a call, that takes for ever."""

from __future__ import annotations

import signal
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    warm = False

    def take(self, frame: Frame) -> None:
        if not self.warm and frame.get("args") == {"text": "good morning"}:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            return
        self.warm = self.warm or frame.get("type") == "tool_call"
        super().take(frame)


Broken().run()
