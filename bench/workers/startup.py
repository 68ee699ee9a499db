"""How long a command takes from start to end: `python -m bench.workers.startup COMMAND ARGUMENT…`. Its output goes nowhere."""

from __future__ import annotations

import json
import os
import sys
from time import perf_counter


def main(command: list[str]) -> dict[str, float]:
    null = os.open(os.devnull, os.O_RDWR)
    streams = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
    start = perf_counter()
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=streams)
    _, status, used = os.wait4(pid, 0)
    wall = perf_counter() - start
    if status:
        sys.exit(f"it ended with {os.waitstatus_to_exitcode(status)}")
    return {"ms": wall * 1e3, "cpu_ms": (used.ru_utime + used.ru_stime) * 1e3}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
