"""Never says that it is ready."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    def open(self) -> None:
        for frame in ({"type": "hello", "name": "no-ready", "version": "1"}, *self.offers):
            self.say(frame)


Broken().run()
