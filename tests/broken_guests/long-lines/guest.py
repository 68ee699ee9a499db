"""Its tool has a description that makes the frame a byte too long."""

from __future__ import annotations

import json
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well

MOST = 4 * 1024 * 1024


class Broken(Well):
    def say(self, frame: Frame) -> None:
        if frame["type"] == "register_tool":
            frame = {**frame, "description": ""}
            frame["description"] = "x" * (MOST - len(json.dumps(frame)))  # and its end
        super().say(frame)


Broken().run()
