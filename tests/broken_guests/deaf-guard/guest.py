"""A guard that answers only what it wants to block."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    offers = ({"type": "subscribe", "intercept": ["turn_start"]},)

    def take(self, frame: Frame) -> None:
        if frame.get("type") != "event_intercept" or frame["step"] > 50:
            super().take(frame)


Broken().run()
