"""Every request leaves a thread that never comes to its end, and the program waits for them."""

from __future__ import annotations

import sys
import threading

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def take(self, frame: Frame) -> None:
        if frame.get("type") == "tool_call":
            threading.Thread(target=threading.Event().wait).start()
        super().take(frame)


Broken().run()
