"""Ends at shutdown as if it had failed."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    def shut_down(self) -> None:
        sys.exit(3)


Broken().run()
