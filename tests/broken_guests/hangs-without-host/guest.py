"""Stays when there is nobody to take its answer."""

from __future__ import annotations

import signal
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def say(self, frame: Frame) -> None:
        try:
            super().say(frame)
        except BrokenPipeError:
            signal.pause()


Broken().run()
