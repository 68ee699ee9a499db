"""A guard that rewrites what cannot be rewritten there."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    offers = ({"type": "subscribe", "intercept": ["tool_call", "turn_start", "assistant_message"]},)

    def judge(self, question: Frame) -> Frame:
        rewrites: dict[str, Frame] = {"tool_call": {"replace_text": "ls"}, "turn_start": {"modified_args": {"step": 1}}}
        return rewrites.get(question["event"], {"modified_args": {"text": "hush"}})


Broken().run()
