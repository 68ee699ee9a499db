"""Starts a helper in a session of its own, and forgets it."""

from __future__ import annotations

import subprocess
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well

subprocess.Popen(["tail", "-f", "/dev/null"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
Well().run()
