"""Counts its answers instead of echoing the id."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    count = 0

    def say(self, frame: Frame) -> None:
        if "id" in frame:
            self.count += 1
            frame = {**frame, "id": f"answer-{self.count}"}
        super().say(frame)


Broken().run()
