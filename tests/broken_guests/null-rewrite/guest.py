"""A guard that rewrites the arguments to null when it means to leave them."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    offers = ({"type": "subscribe", "intercept": ["tool_call"]},)

    def judge(self, question: Frame) -> Frame:
        return {"block": False, "modified_args": None}


Broken().run()
