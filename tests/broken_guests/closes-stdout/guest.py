"""Closes its stdout when it has said what it offers."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def open(self) -> None:
        super().open()
        os.close(1)

    def say(self, frame: Frame) -> None:
        try:
            super().say(frame)
        except OSError:
            pass


Broken().run()
