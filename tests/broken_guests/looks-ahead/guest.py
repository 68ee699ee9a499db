"""Its schema is a good one, and has a pattern that only an engine that backtracks can match."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    offers = (
        {
            "type": "register_tool",
            "name": "run",
            "schema": {"type": "object", "properties": {"command": {"type": "string", "pattern": "^(?!rm )[a-z ]+$"}}},
        },
    )


Broken().run()
