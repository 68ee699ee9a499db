"""Keeps ids in 64 characters."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def say(self, frame: Frame) -> None:
        super().say({**frame, "id": frame["id"][:64]} if "id" in frame else frame)


Broken().run()
