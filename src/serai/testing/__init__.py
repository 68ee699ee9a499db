"""For tests, ours and yours: peers that misbehave (`faults`), a stand-in zot host (`zot_host`), conformance for authors
(`conformance`), fakes of the model APIs (`models`).

Only the command line and tests import this package.
"""

from __future__ import annotations
