"""Offers nothing before the host has answered its hello."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    def open(self) -> None:
        self.say({"type": "hello", "name": "waits-for-ack", "version": "1"})
        sys.stdin.buffer.readline()
        for frame in (*self.offers, {"type": "ready"}):
            self.say(frame)


Broken().run()
