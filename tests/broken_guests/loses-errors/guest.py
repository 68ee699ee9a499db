"""Catches what goes wrong in a tool, and forgets to answer."""

from __future__ import annotations

import sys
from typing import Any

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def take(self, frame: Frame) -> None:
        try:
            super().take(frame)
        except Exception as error:
            print(error, file=sys.stderr)

    def tool(self, name: str, args: Any) -> Frame:
        if name != "shout":
            return super().tool(name, args)
        return {"content": [{"type": "text", "text": args["text"].upper()}]}


Broken().run()
