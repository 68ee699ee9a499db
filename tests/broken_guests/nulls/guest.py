"""Writes null for what is not set, and a field that the protocol does not have."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def tool(self, name: str, args: object) -> Frame:
        result = super().tool(name, args)
        return {"is_error": None, **result} if "is_error" not in result else {**result, "details": {"tool": name}, "is_error": True}

    def open(self) -> None:
        self.say({"type": "hello", "name": "nulls", "version": "1", "capabilities": None})
        for frame in (*self.offers, {"type": "ready"}):
            self.say(frame)


Broken().run()
