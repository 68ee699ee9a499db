"""Ends at a key in the panel that it has opened."""

from __future__ import annotations

import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Frame, Well


class Broken(Well):
    offers = ({"type": "register_command", "name": "pick"},)

    def take(self, frame: Frame) -> None:
        if frame.get("type") == "command_invoked" and frame["name"] == "pick":
            panel = {"id": "harbours", "lines": ["Husum"]}
            self.say({"type": "command_response", "id": frame["id"], "action": "open_panel", "open_panel": panel})
        elif frame.get("type") == "panel_key" and frame["panel_id"] == "harbours":
            raise NotImplementedError
        else:
            super().take(frame)


Broken().run()
