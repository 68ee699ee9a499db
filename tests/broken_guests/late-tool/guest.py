"""Registers a tool when it is asked for the first time, long after its ready."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def tool(self, name: str, args: object) -> Frame:
        self.say({"type": "register_tool", "name": "whisper", "schema": {"type": "object"}})
        return super().tool(name, args)


Broken().run()
