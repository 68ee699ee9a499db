"""Stops reading at shutdown, and stays."""

from __future__ import annotations

import signal
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    def shut_down(self) -> None:
        signal.pause()


Broken().run()
