"""Leaves its hello in a buffer, and waits for the host."""

from __future__ import annotations

import json
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well

buffered = open(1, "w", closefd=False)


class Broken(Well):
    def say(self, frame: Frame) -> None:
        buffered.write(json.dumps(frame) + "\n")


Broken().run()
