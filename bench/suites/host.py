"""The host: a tool call through everything it does, beside the bare channel; and three hundred guests at once."""

from __future__ import annotations

from bench.harness import Host, Sample, interleaved, worker
from bench.native import build
from bench.report import Column, Floor, Section, Table

GUESTS, BROADCASTS = 300, 60

NOTE = f"""\
The same C program is a zot extension for the host and a bare child for the channel. The channel decodes to types, with a deadline
on every call and a tap on every frame; `host.call_tool` adds the table of names, the JSON Schema of the tool, the queue and
the adapter besides, and gives a neutral result. Both are driven by the same worker tasks. No interceptors: each adds a round trip
of its own.

{GUESTS} guests: found by their manifests, each with its log, its handshake and its place in the table; then, {BROADCASTS}
times, one event to all until each has answered with a notice. The bare children are what the section on idle children measures.
"""

CALLS = (
    Column("p50_us", "p50 us"),
    Column("p99_us", "p99 us"),
    Column("per_second", "calls/s", ",.0f"),
    Column("cpu_us", "CPU us/call", ",.2f"),
    Column("x", "x channel", ",.2f"),
    Column("cpu_x", "CPU x", ",.2f"),
)

CROWD = (
    Column("spawn_ms", "take in all ms", ",.0f"),
    Column("spawn_cpu_ms", "CPU ms", ",.0f"),
    Column("kb", "KB each", ",.2f"),
    Column("p50_ms", "event to all p50 ms", ",.2f"),
    Column("p95_ms", "p95 ms", ",.2f"),
    Column("cpu_ms", "CPU ms", ",.2f"),
    Column("x", "x bare", ",.2f"),
)

SHAPES = {"100 B, one by one": (100, 10_000, 1), "100 B, 64 in flight": (100, 64_000, 64)}


def run() -> Section:
    peer = build("echo")
    tables = [Table(name, CALLS, _calls(peer, shape)) for name, shape in SHAPES.items()]
    crowd = _crowd(peer)
    tables.append(Table(f"{GUESTS} guests", CROWD, crowd))
    alone, many = (table.rows["host.call_tool"] for table in tables[:2])
    floors = [
        Floor("host.call_tool one by one, next to the bare channel", alone["x"], "at most", 1.5),
        Floor("host.call_tool 64 in flight, CPU next to the bare channel", many["cpu_x"], "at most", 1.6),
        Floor(f"one event to {GUESTS} guests, next to bare children", crowd["serai host"]["x"], "at most", 2.0),
    ]
    return Section("The host", NOTE, tables, floors)


def _calls(peer: str, shape: tuple[int, int, int]) -> dict[str, Sample]:
    rows = interleaved(
        [
            Host("bare channel", worker("roundtrip", peer, *shape, "asyncio")),
            Host("host.call_tool", worker("host", peer, *shape, "asyncio")),
            Host("bare channel uvloop", worker("roundtrip", peer, *shape, "uvloop")),
            Host("host.call_tool uvloop", worker("host", peer, *shape, "uvloop")),
        ]
    )
    for name, sample in rows.items():
        bare = rows["bare channel uvloop" if name.endswith("uvloop") else "bare channel"]
        sample["x"] = sample["p50_us"] / bare["p50_us"] if "p50_us" in sample else bare["per_second"] / sample["per_second"]
        sample["cpu_x"] = sample["cpu_us"] / bare["cpu_us"]
    return rows


def _crowd(peer: str) -> dict[str, Sample]:
    rows = interleaved(
        [
            Host("serai, bare children", worker("crowd", "serai", peer, GUESTS, BROADCASTS)),
            Host("serai host", worker("guests", peer, GUESTS, BROADCASTS, "asyncio")),
            Host("serai host uvloop", worker("guests", peer, GUESTS, BROADCASTS, "uvloop")),
        ]
    )
    for sample in rows.values():
        sample["x"] = sample["p50_ms"] / rows["serai, bare children"]["p50_ms"]
    return rows
