"""For tests, ours and yours: peers that misbehave (`faults`), stand-in hosts (`zot_host`, `piglet_host`, `yoi_host`), conformance
checks for authors (`conformance`), a scripted Claude Code (`claude`), fakes of the model APIs (`models`).

Only the command line and tests import this package.
"""

from __future__ import annotations
