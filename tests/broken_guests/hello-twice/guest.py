"""Says hello once more when it is ready."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    def open(self) -> None:
        super().open()
        self.say({"type": "hello", "name": "hello-twice", "version": "1"})


Broken().run()
