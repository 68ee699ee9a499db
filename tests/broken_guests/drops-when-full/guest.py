"""Drops an answer when its host does not read at once."""

from __future__ import annotations

import select
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def say(self, frame: Frame) -> None:
        if "id" not in frame or select.select([], [1], [], 0.02)[1]:
            super().say(frame)


Broken().run()
