"""Ends when it has heard nothing for a while."""

from __future__ import annotations

import os
import signal
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def run(self) -> None:
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        super().run()

    def take(self, frame: Frame) -> None:
        super().take(frame)
        signal.setitimer(signal.ITIMER_REAL, 1.0)


Broken().run()
