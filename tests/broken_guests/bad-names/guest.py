"""A model cannot call its tool, nobody can type its command, and what it wants to guard cannot be guarded."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    offers = (
        {"type": "register_tool", "name": "get weather", "schema": {"type": "object"}},
        {"type": "register_command", "name": "/tide"},
        {"type": "subscribe", "intercept": ["turn_end"]},
    )


Broken().run()
