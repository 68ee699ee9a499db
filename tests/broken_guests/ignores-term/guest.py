"""Does not let SIGTERM end it."""

from __future__ import annotations

import signal
import sys

sys.path.insert(0, "../../..")
from tests.broken_guests.well import Well

signal.signal(signal.SIGTERM, signal.SIG_IGN)
Well().run()
