"""Takes it that every turn ends with an error."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def hear(self, event: Frame) -> None:
        if event["event"] == "turn_end":
            print(len(event["error"]), file=sys.stderr)


Broken().run()
