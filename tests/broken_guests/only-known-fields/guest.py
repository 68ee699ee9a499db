"""Ends at a field that it does not know."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    known = ("type", "id", "name", "args")

    def take(self, frame: Frame) -> None:
        if frame.get("type") == "tool_call" and (strange := frame.keys() - self.known):
            raise ValueError(f"unknown fields: {strange}")
        super().take(frame)


Broken().run()
