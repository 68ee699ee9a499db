"""Once it has been called, SIGTERM does not end it any more."""

from __future__ import annotations

import signal
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def tool(self, name: str, args: object) -> Frame:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return super().tool(name, args)


Broken().run()
