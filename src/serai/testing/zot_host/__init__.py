"""A stand-in host for zot extensions, for tests: ours and yours.

    with ZotHost("my-extension") as host:
        assert host.call_text("weather", {"city": "Bern"}) == "Bern: 16 degrees, fog"
        assert host.shutdown() == 0

It is written from the specification alone, and nothing in this folder imports anything else of Serai, so that it and Serai's own
host check each other. It is strict where a real host is tolerant: every line that an extension writes must be a frame of spec zot
3.2, and every request is answered exactly once, by the right kind of answer. What is wrong is a `Misbehaved`, with the last frames
and the end of stderr.
"""

from __future__ import annotations

from serai.testing.zot_host.frames import Frame
from serai.testing.zot_host.host import ZotHost
from serai.testing.zot_host.process import Misbehaved

__all__ = ["Frame", "Misbehaved", "ZotHost"]
