"""Ends at shutdown, and stays when its input ends without one."""

from __future__ import annotations

import signal
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def run(self) -> None:
        self.stays = True
        super().run()
        if self.stays:
            signal.pause()

    def say(self, frame: Frame) -> None:
        try:
            super().say(frame)
        except BrokenPipeError:
            pass

    def shut_down(self) -> None:
        self.stays = False


Broken().run()
