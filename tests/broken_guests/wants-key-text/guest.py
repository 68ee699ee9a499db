"""Takes it that every key has a text; only `rune` has one."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def take(self, frame: Frame) -> None:
        super().take(frame)
        if frame.get("type") == "panel_key":
            print(len(frame["text"]), file=sys.stderr)


Broken().run()
