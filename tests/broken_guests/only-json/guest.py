"""Ends at a line that is no JSON."""

from __future__ import annotations

import json
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def read(self, line: bytes) -> Frame:
        frame = json.loads(line)
        return frame if isinstance(frame, dict) else {}


Broken().run()
