"""Names an action, and not with what."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    offers = tuple({"type": "register_command", "name": name} for name in ("open_panel", "display", "prompt", "insert"))

    def take(self, frame: Frame) -> None:
        names = [offer["name"] for offer in self.offers]
        if frame.get("type") == "command_invoked" and frame["name"] in names:
            self.say({"type": "command_response", "id": frame["id"], "action": frame["name"]})
        else:
            super().take(frame)


Broken().run()
