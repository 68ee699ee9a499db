"""Takes it that every hello_ack names its folders."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    def take(self, frame: Frame) -> None:
        super().take(frame)
        if frame.get("type") == "hello_ack":
            print(frame["extension_dir"], frame["data_dir"], file=sys.stderr)


Broken().run()
