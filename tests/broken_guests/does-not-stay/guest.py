"""Says all it has to say, and ends."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    offers = ({"type": "subscribe", "events": ["turn_end"]},)

    def run(self) -> None:
        self.open()


Broken().run()
