"""Cuts its input wherever a line of a text may end, and not at the end of frames alone."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    def run(self) -> None:
        self.open()
        for raw in sys.stdin.buffer:
            for line in raw.decode("utf-8", "replace").splitlines():
                frame = self.read(line.encode())
                if frame.get("type") == "shutdown":
                    return
                self.take(frame)


Broken().run()
