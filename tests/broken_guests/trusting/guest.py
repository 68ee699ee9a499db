"""Takes the arguments for what its schema says."""

from __future__ import annotations

import sys
from typing import Any

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def tool(self, name: str, args: Any) -> Frame:
        if name != "shout":
            return super().tool(name, args)
        return {"content": [{"type": "text", "text": args["text"].upper()}]}


Broken().run()
