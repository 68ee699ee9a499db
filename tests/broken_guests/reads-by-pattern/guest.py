"""Has no JSON parser: it knows how its host writes a request."""

from __future__ import annotations

import re
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well

REQUEST = re.compile(rb'\{"type":"(\w+)","id":"([^"]+)","name":"(\w+)"')


class Broken(Well):
    def read(self, line: bytes) -> Frame:
        if line.startswith(b'{"type":"shutdown"}'):
            return {"type": "shutdown"}
        if not (found := REQUEST.match(line)):
            return {}
        type, id, name = (part.decode() for part in found.groups())
        return {"type": type, "id": id, "name": name, "args": None}


Broken().run()
