"""Five hundred guests that do nothing most of the time: what they cost, and an event for all of them."""

from __future__ import annotations

from bench.harness import Host, interleaved, worker
from bench.native import build
from bench.report import Column, Floor, Section, Table

CHILDREN, BROADCASTS = 500, 60

COLUMNS = (
    Column("spawn_ms", "start all ms", ",.0f"),
    Column("spawn_cpu_ms", "CPU ms", ",.0f"),
    Column("kb", "KB each", ",.2f"),
    Column("p50_ms", "broadcast p50 ms", ",.2f"),
    Column("p95_ms", "p95 ms", ",.2f"),
    Column("cpu_ms", "CPU ms", ",.2f"),
    Column("x", "x C", ",.2f"),
)

NOTE = f"""\
{CHILDREN} children in C, started one after the other; then, {BROADCASTS} times, one event of 100 bytes to all of them until all
have answered. C writes to each and reads with epoll, without a look into the answers. Serai does it as a guest's adapter would: a
channel, a deadline and a typed answer for each, the watchdog on, no tap; asyncio with its subprocess streams, `readline` and
`json`. CPU
and memory are the host's alone. "KB each" is what became private to the host between the first child and the last; the kernel's
own (pipes, descriptors) is not in it and the same for all. All share one core, so most of a broadcast's time is the children's.
"""


def run() -> Section:
    peer, shape = build("echo"), (CHILDREN, BROADCASTS)
    rows = interleaved(
        [
            Host("C posix_spawn, epoll", [build("crowd"), peer, *map(str, shape)]),
            Host("serai", worker("crowd", "serai", peer, *shape)),
            Host("serai uvloop", worker("crowd", "serai-uvloop", peer, *shape)),
            Host("asyncio streams", worker("crowd", "asyncio", peer, *shape)),
        ]
    )
    for sample in rows.values():
        sample["x"] = sample["p50_ms"] / rows["C posix_spawn, epoll"]["p50_ms"]
    floors = [
        Floor("memory of the host for each child", rows["serai"]["kb"], "at most", 8, " KB"),
        Floor("broadcast to all, next to C", rows["serai"]["x"], "at most", 3),
    ]
    return Section("Five hundred idle children", NOTE, [Table("500 children", COLUMNS, rows)], floors)
