"""Takes one read for one request: of what comes together, it answers the last."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    def run(self) -> None:
        self.open()
        rest = b""
        while chunk := os.read(0, 1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            frames = [self.read(line) for line in lines]
            if any(frame.get("type") == "shutdown" for frame in frames):
                return
            for frame in [frame for frame in frames if "id" in frame][-1:]:
                self.take(frame)


Broken().run()
