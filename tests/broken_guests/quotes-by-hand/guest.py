"""Writes its answers without a JSON writer: an id that has quotes in it breaks them."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def say(self, frame: Frame) -> None:
        if frame["type"] != "tool_result":
            super().say(frame)
            return
        result = '{"type":"tool_result","id":"%s","content":[{"type":"text","text":"there is nothing to shout"}],"is_error":true}'
        print(result % frame["id"], flush=True)


Broken().run()
