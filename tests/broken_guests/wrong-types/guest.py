"""Sends a number where a text belongs, and content that is no list of blocks."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def tool(self, name: str, args: object) -> Frame:
        self.say({"type": "notify", "level": "info", "message": 7})
        return {"content": ["there is nothing to shout"], "is_error": True}


Broken().run()
