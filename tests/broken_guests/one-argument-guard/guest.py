"""A guard that takes the arguments of every tool for an object."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    offers = ({"type": "subscribe", "intercept": ["tool_call"]},)

    def judge(self, question: Frame) -> Frame:
        return {"block": True} if "rm" in question["tool_args"].get("command", "") else {}


Broken().run()
