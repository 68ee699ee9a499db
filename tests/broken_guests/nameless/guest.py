"""Its hello has no name."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    def open(self) -> None:
        self.say({"type": "hello", "name": "", "version": "1"})
        self.say({"type": "ready"})


Broken().run()
