"""Takes the end of its input for an error."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well


class Broken(Well):
    asked = False

    def run(self) -> None:
        super().run()
        if not self.asked:
            sys.exit("the host is lost")

    def shut_down(self) -> None:
        self.asked = True


Broken().run()
