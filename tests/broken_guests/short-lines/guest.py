"""Its line buffer has 64 KiB, and it ends at a longer line."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def read(self, line: bytes) -> Frame:
        if len(line) > 1 << 16:
            raise ValueError("line too long")
        return super().read(line)


Broken().run()
