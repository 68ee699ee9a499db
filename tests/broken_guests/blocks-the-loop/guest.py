"""Works on its read loop: when the first thing that it hears is a call, it hears nothing else."""

from __future__ import annotations

import signal
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    warm = False

    def tool(self, name: str, args: object) -> Frame:
        if not self.warm and args == {"text": "good morning"}:
            signal.pause()
        self.warm = True
        return super().tool(name, args)


Broken().run()
