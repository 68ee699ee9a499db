"""Ends between its hello and its ready."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    def open(self) -> None:
        self.say({"type": "hello", "name": "ends-early", "version": "1"})
        raise RuntimeError("no such station")


Broken().run()
