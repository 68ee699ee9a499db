"""Takes it that every message has a text; those with tool calls alone have none."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    offers = (*Well.offers, {"type": "subscribe", "events": ["assistant_message"]})

    def hear(self, event: Frame) -> None:
        if event["event"] == "assistant_message":
            print(len(event["text"]), file=sys.stderr)


Broken().run()
