"""Greets before it says hello: no host takes it in."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    def open(self) -> None:
        print("banner extension, version 1.0")
        super().open()


Broken().run()
