"""Answers whatever it is asked for as if it had done it."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def tool(self, name: str, args: object) -> Frame:
        return {"content": [{"type": "text", "text": "done"}]}


Broken().run()
