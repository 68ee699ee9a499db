"""What every ingest worker says, whoever runs it: the time from its first event to its last, and that none was lost on the way.

Nothing here needs Serai: the peers' Python imports it too.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter

from bench.stream import Stream
from bench.workers.timing import cpu

__all__ = ["Meter"]


class Meter:
    """Made when the first event is there, so that starting the child and imports do not count."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._early = 0
        self._cpu, self._start = cpu(), perf_counter()

    def a_tenth(self) -> None:
        """A tenth of the events is there: what the memory grows from now on is told as well."""
        self._early = _peak_kb()

    def done(self, events: int, text: int) -> None:
        """The last event is there: print the sample. Fails when something was dropped or cut; nobody wins by that."""
        wall, used = perf_counter() - self._start, cpu() - self._cpu
        sent = self._stream
        if (events, text) != (sent.events, sent.text):
            sys.exit(f"{events} events with {text} characters came; {sent.events} with {sent.text} were sent")
        sample = {
            "per_second": events / wall,
            "mb_s": sent.size / wall / 1e6,
            "cpu_us": used / events * 1e6,
            "peak_mb": _peak_kb() / 1e3,
        }
        if self._early:
            sample["grown_mb"] = (_peak_kb() - self._early) / 1e3
        print(json.dumps(sample))


def _peak_kb() -> int:
    """Of this program alone: `ru_maxrss` would also tell that of whoever started it."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
