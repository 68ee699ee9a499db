"""One schema is no JSON Schema, another is a list of names."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    offers = (
        {"type": "register_tool", "name": "misspelt", "schema": {"type": "objekt"}},
        {"type": "register_tool", "name": "listed", "schema": ["city", "days"]},
        {"type": "register_tool", "name": "fetched", "schema": {"$ref": "https://schemas.invalid/city.json"}},
    )


Broken().run()
