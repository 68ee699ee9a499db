"""What it registers is there already, or will never be used."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    offers = (
        *Well.offers,
        *Well.offers,
        {"type": "register_tool", "name": "bash", "schema": {"type": "object"}},
        {"type": "register_command", "name": "help"},
        {"type": "subscribe", "events": ["turn_over"]},
    )


Broken().run()
