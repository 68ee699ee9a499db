"""What it costs to have every wire on record."""

from __future__ import annotations

from bench.harness import Host, interleaved, worker
from bench.native import build
from bench.report import Column, Floor, Section, Table

NOTE = """\
The same round trip with no tap, and with the real recorder writing every frame of both directions to a file, with none and with ten
secrets to be found in every byte (some 60 forms of them). CPU is that of the whole host process, the recorder's thread included.
Nothing was dropped: each worker opens its recording afterwards and counts. "x off" is the CPU per call next to no tap. What the
recorder does per run (a head, a search, a place in a list) counts most when each frame is a run of its own, as one by one; what it
does per byte (the kernel's copy to the page cache, most of all) counts most for longer frames.
"""

COLUMNS = (
    Column("p50_us", "p50 us"),
    Column("p99_us", "p99 us"),
    Column("per_second", "calls/s", ",.0f"),
    Column("cpu_us", "CPU us/call", ",.2f"),
    Column("x", "x off", ",.2f"),
    Column("mb", "MB written", ",.0f"),
)
CASES = {
    "100 B, one by one": (100, 20_000, 1),
    "100 B, 64 in flight": (100, 128_000, 64),
    "1 KB, 64 in flight": (1_000, 64_000, 64),
}


def run() -> Section:
    tables = {}
    for case, shape in CASES.items():
        call = (build("echo"), *shape)
        rows = interleaved(
            [
                Host("off", worker("roundtrip", *call, "asyncio", "none")),
                Host("on", worker("recorder", *call, "asyncio", 0)),
                Host("on, ten secrets", worker("recorder", *call, "asyncio", 10)),
                Host("off, uvloop", worker("roundtrip", *call, "uvloop", "none")),
                Host("on, ten secrets, uvloop", worker("recorder", *call, "uvloop", 10)),
            ]
        )
        for host, sample in rows.items():
            sample["x"] = sample["cpu_us"] / rows["off, uvloop" if "uvloop" in host else "off"]["cpu_us"]
        tables[case] = Table(case, COLUMNS, rows)
    busy = tables["100 B, 64 in flight"].rows
    floors = [
        Floor("CPU for 100 B at 64 in flight, recorder on", busy["on"]["x"], "at most", 1.25),
        Floor("CPU for 100 B at 64 in flight, recorder on, ten secrets", busy["on, ten secrets"]["x"], "at most", 1.25),
    ]
    return Section("Recorder", NOTE, list(tables.values()), floors)
