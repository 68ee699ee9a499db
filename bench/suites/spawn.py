"""A one-shot child, such as a box hook: from the decision to start it to its exit status in hand."""

from __future__ import annotations

from bench.harness import Host, Sample, interleaved, worker
from bench.native import build
from bench.report import Column, Floor, Section, Table

TIMES = 250
# The median of more repetitions where the memory need not be touched first, which takes longer than the measurement.
SMALL, LARGE = (0, 5), (2048, 3)

COLUMNS = (
    Column("p50_us", "p50 us", ",.0f"),
    Column("p99_us", "p99 us", ",.0f"),
    Column("cpu_us", "CPU us of the parent", ",.0f"),
    Column("close_us", "closing us", ",.0f"),
    Column("rate", "a second, 8 at once", ",.0f"),
    Column("x", "x C", ",.2f"),
)
HOSTS = {
    "serai": "serai",
    "serai uvloop": "serai-uvloop",
    "serai, over a channel": "serai-channel",
    "subprocess.run": "subprocess",
    "asyncio.create_subprocess_exec": "asyncio",
}

NOTE = f"""\
A program in C that reads its input to the end, writes one line and ends, {TIMES} times one after the other: start it, write and
close its input, read output and stderr to their ends, have its exit status. The limit is a C program that does just that, with
`posix_spawn` and reads that block. Serai's rows have what the others do without: a tag and a watchdog by which descendants are
found and killed, a pidfd, no wait that blocks (but no tap); over a channel the output is also framed as it comes, and the end is
an error that says why.
What follows, `close()` with its proof that nothing outlived the child, is a column of its own; the CPU has it all. Parent and child
share one core here, so whatever the parent computes adds up; with two it runs beside the start of the child. "Flat" compares
Serai's p50 with itself, from a parent with 2 GB of touched 4 KB pages and from a small one, and leaves room for the noise between
two runs: to copy such a parent takes a hundred times as long.
"""


def run() -> Section:
    small, large = (_rows(*size) for size in (SMALL, LARGE))
    flat = large["serai"]["p50_us"] / small["serai"]["p50_us"]
    floors = [
        Floor("spawn to exit, next to C", small["serai"]["x"], "at most", 1.3),
        Floor("spawn to exit from a 2 GB parent, next to a small one", flat, "at most", 1.3),
    ]
    tables = [Table("from a small parent", COLUMNS, small), Table("from a parent with 2 GB", COLUMNS, large)]
    return Section("Starting processes", NOTE, tables, floors)


def _rows(megabytes: int, repetitions: int) -> dict[str, Sample]:
    child = build("oneshot")
    hosts = [Host("C posix_spawn", [build("spawn"), child, str(TIMES), str(megabytes)])]
    hosts += [Host(name, worker("spawn", kind, child, TIMES, megabytes)) for name, kind in HOSTS.items()]
    rows = interleaved(hosts, repetitions)
    for sample in rows.values():
        sample["x"] = sample["p50_us"] / rows["C posix_spawn"]["p50_us"]
    return rows
