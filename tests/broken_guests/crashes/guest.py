"""Ends before it has said a word."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    def open(self) -> None:
        raise RuntimeError("no configuration found")


Broken().run()
