"""Answers one more request after it has heard an event, and then it is gone."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    offers = (*Well.offers, {"type": "subscribe", "events": ["assistant_message"]})
    heard = False

    def take(self, frame: Frame) -> None:
        super().take(frame)
        if self.heard and frame.get("type") == "tool_call":
            os._exit(7)

    def hear(self, event: Frame) -> None:
        self.heard = self.heard or bool(event.get("text"))


Broken().run()
