"""For tests, ours and yours: peers that misbehave (`faults`); later fakes, scripted models and conformance kits.

Only the command line and tests import this package.
"""

from __future__ import annotations
