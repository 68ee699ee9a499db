"""Takes the id for a number, and answers without its leading zeros."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def say(self, frame: Frame) -> None:
        super().say({**frame, "id": str(int(frame["id"]))} if frame.get("id", "").isdecimal() else frame)


Broken().run()
