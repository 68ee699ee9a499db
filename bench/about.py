"""On what this was measured."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime

__all__ = ["machine"]


def machine() -> dict[str, str | int]:
    """What a reader must know to judge the numbers; nothing that tells whose machine it is."""
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
