"""A stand-in host for piglet extensions, for tests: ours and yours.

    with PigletHost("my-extension", answers={"host/askUser": {"selected": "yes", "cancelled": False}}) as host:
        assert host.tool_text("weather", {"city": "Bern"}) == "Bern: 16 degrees, fog"
        host.execute_command("forecast", "Bern 3")
        assert host.hear("showMessage") == {"text": "3 stations"}
        assert host.shutdown() == 0

It is written from the specification alone, and nothing in this folder imports anything of Serai but what it shares with the
stand-in zot host, so that it and Serai's own host check each other. It is strict where a real host is tolerant: every line must
be a message of spec piglet 4 to 7, and every request is answered exactly once. What is wrong is a `Misbehaved`, with the last
messages and the end of stderr.
"""

from __future__ import annotations

from serai.testing.guest_process import Misbehaved
from serai.testing.piglet_host.host import PigletHost
from serai.testing.piglet_host.messages import LATER, HostError, Message

__all__ = ["LATER", "HostError", "Message", "Misbehaved", "PigletHost"]
