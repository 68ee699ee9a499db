"""How everything here is measured: fresh processes, one core, repetitions interleaved, medians."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

__all__ = ["PEERS", "REPETITIONS", "Host", "Sample", "interleaved", "peer_has", "pin", "worker"]

REPETITIONS = 5
ROOT = Path(__file__).parents[1]
# The peers' own environment (`make bench-peers`): what they bring along must not come near ours.
PEERS = ROOT / ".venv-peers" / "bin"

Sample = dict[str, float]


class Host(NamedTuple):
    """Who is measured: a command that prints one JSON object of numbers."""

    name: str
    command: list[str]
    env: Mapping[str, str] = {}


def worker(name: str, *arguments: object) -> list[str]:
    """A program of `bench/workers`, run by our Python."""
    return [sys.executable, "-m", f"bench.workers.{name}", *map(str, arguments)]


def peer_has(module: str) -> bool:
    """Whether the peers' environment has this package (or, for a program, this executable)."""
    return (PEERS / module).exists() or any((PEERS.parent / "lib").glob(f"python*/site-packages/{module}/__init__.py"))


def pin() -> None:
    """Stay on one core, and so will everybody started from here: what is measured is software, not the waking of a core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def interleaved(hosts: list[Host], repetitions: int = REPETITIONS) -> dict[str, Sample]:
    """The medians by host. One repetition of each in turn, so that a noisy moment hits all alike."""
    samples: dict[str, list[Sample]] = {host.name: [] for host in hosts}
    for _ in range(repetitions):
        for host in hosts:
            samples[host.name].append(_run(host))
    return {name: {key: median(sample[key] for sample in taken) for key in taken[0]} for name, taken in samples.items()}


def _run(host: Host) -> Sample:
    ran = subprocess.run(
        host.command, capture_output=True, text=True, check=False, timeout=300, cwd=ROOT, env=os.environ | host.env
    )
    if ran.returncode:
        sys.exit(f"{host.name} failed: {' '.join(host.command)}\n{ran.stderr}")
    sample: Sample = json.loads(ran.stdout)
    return sample
