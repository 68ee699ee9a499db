"""The round trip of one call: the same C peer for all; one after the other and 64 in flight."""

from __future__ import annotations

from typing import NamedTuple

from bench.harness import Host, interleaved, worker
from bench.native import build
from bench.report import Column, Floor, Section, Table

COLUMNS = (
    Column("p50_us", "p50 us"),
    Column("p99_us", "p99 us"),
    Column("per_second", "calls/s", ",.0f"),
    Column("cpu_us", "CPU us/call", ",.2f"),
    Column("x", "x raw C", ",.2f"),
)


class Case(NamedTuple):
    """One payload and one way of calling; `calls` per repetition."""

    name: str
    size: int
    in_flight: int
    calls: int


CASES = (
    Case("100 B, one by one", 100, 1, 20_000),
    Case("100 B, 64 in flight", 100, 64, 128_000),
    Case("1 KB, one by one", 1_000, 1, 20_000),
    Case("1 KB, 64 in flight", 1_000, 64, 64_000),
    Case("100 KB, one by one", 100_000, 1, 1_500),
)


def hosts(case: Case) -> list[Host]:
    peer, shape = build("echo"), (str(case.size), str(case.calls), str(case.in_flight))
    return [
        Host("raw C", [build("host"), peer, *shape]),
        Host("serai", worker("roundtrip", peer, *shape, "asyncio")),
        Host("serai uvloop", worker("roundtrip", peer, *shape, "uvloop")),
    ]


def run() -> Section:
    tables = {}
    for case in CASES:
        rows = interleaved(hosts(case))
        for sample in rows.values():
            sample["x"] = _ratio(sample, rows["raw C"])
        tables[case.name] = Table(case.name, COLUMNS, rows)
    small = tables["100 B, one by one"].rows
    floors = [
        Floor("100 B one by one, next to raw C", small["serai"]["x"], "at most", 4.0),
        Floor("100 B one by one on uvloop, next to raw C", small["serai uvloop"]["x"], "at most", 3.0),
    ]
    return Section("Round trip", "", list(tables.values()), floors)


def _ratio(mine: dict[str, float], limit: dict[str, float]) -> float:
    """How many times raw C: in time for one by one, in calls a second for many in flight."""
    return mine["p50_us"] / limit["p50_us"] if limit.get("p50_us") else limit["per_second"] / mine["per_second"]
