"""For tests, ours and yours: peers that misbehave (`faults`), stand-in hosts (`zot_host`, `piglet_host`) and guests
(`piglet_guests`), conformance for authors (`conformance`), fakes of the model APIs (`models`).

Only the command line and tests import this package.
"""

from __future__ import annotations
