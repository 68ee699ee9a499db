"""Its second request leaves a thread that never comes to its end, and the program waits for it."""

from __future__ import annotations

import sys
import threading

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    served = 0

    def take(self, frame: Frame) -> None:
        super().take(frame)
        self.served += frame.get("type") == "tool_call"
        if self.served == 2:
            threading.Thread(target=threading.Event().wait).start()


Broken().run()
