"""The round trip of one call: raw C, Serai, Serai on uvloop; one after the other and 64 in flight; the same C peer for all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from bench.native import build

REPETITIONS = 5
Sample = dict[str, float]


class Case(NamedTuple):
    """One payload and one way of calling; `calls` per repetition."""

    name: str
    size: int
    in_flight: int
    calls: int


class Floor(NamedTuple):
    """The worst ratio to raw C that ships (issue 2; the performance map says why)."""

    case: str
    host: str
    limit: float


CASES = (
    Case("100 B, one by one", 100, 1, 20_000),
    Case("100 B, 64 in flight", 100, 64, 128_000),
    Case("1 KB, one by one", 1_000, 1, 20_000),
    Case("100 KB, one by one", 100_000, 1, 1_500),
)
FLOORS = (
    Floor("100 B, one by one", "serai", 4.0),
    Floor("100 B, one by one", "serai uvloop", 3.0),
)


def commands(case: Case) -> Mapping[str, list[str]]:
    """The hosts, each as a fresh process."""
    peer, shape = build("echo"), [str(case.size), str(case.calls), str(case.in_flight)]
    worker = [sys.executable, "-m", "bench.worker", peer, *shape]
    return {"raw C": [build("host"), peer, *shape], "serai": [*worker, "asyncio"], "serai uvloop": [*worker, "uvloop"]}


def measure() -> dict[str, dict[str, Sample]]:
    """Medians by case and host. Repetitions are interleaved, so that a noisy moment hits all hosts alike."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # inherited: software cost, not the cost of waking another core
    results: dict[str, dict[str, Sample]] = {}
    for case in CASES:
        hosts = commands(case)
        samples: dict[str, list[Sample]] = {host: [] for host in hosts}
        for _ in range(REPETITIONS):
            for host, command in hosts.items():
                ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
                samples[host].append(json.loads(ran.stdout))
        results[case.name] = {host: _medians(taken) for host, taken in samples.items()}
    return results


def _medians(samples: list[Sample]) -> Sample:
    return {key: median(sample[key] for sample in samples) for key in samples[0]}


def ratio(results: dict[str, dict[str, Sample]], case: str, host: str) -> float:
    """How many times raw C: in time for one by one, in calls a second for many in flight."""
    mine, limit = results[case][host], results[case]["raw C"]
    return mine["p50_us"] / limit["p50_us"] if limit["p50_us"] else limit["per_second"] / mine["per_second"]
