"""The round trip of one call: the same C peer for all; one after the other and 64 in flight."""

from __future__ import annotations

from typing import NamedTuple

from bench.harness import PEERS, Host, Sample, interleaved, peer_has, worker
from bench.native import build, build_go
from bench.report import Column, Floor, Section, Table

NOTE = """\
Every host starts the same child, a C program that answers each call with the text it was sent (lines as a tool prints them,
each with an escape), and shares one core with it: this is the cost of software, not of waking a core. Raw C only writes frames
and counts newlines; Serai decodes to types, with a deadline on every call and a tap on every frame. `mallopt` raises the
allocator's thresholds, and `fast` is the extra of that name: uvloop and `mallopt`. Serai's pipes grow when frames are long, so
for 100 KB raw C is also shown with large ones; floors are against the usual ones. The peers speak their own protocol, which
makes their frames some 30 bytes longer, and the `mcp` client does more per call: it validates every message and can report
progress; for `agent-client-protocol` the call is an extension method, the quickest it has. The Go stand-in is part of this
bench, written as such hosts usually are (a scanner goroutine, a map by id, `encoding/json`, one write per call); one core
handicaps its runtime. Slow peers make fewer calls per repetition, `mcp` a twentieth, so their p99 says less.

"x raw C" is in time for calls one by one, with the child's share in both, and in calls a second for many in flight; "CPU x" is the
host's own. The tap of these rows keeps what it sees until a batch is full and writes nothing: the recorder is a section of its own.
"""

COLUMNS = (
    Column("p50_us", "p50 us"),
    Column("p99_us", "p99 us"),
    Column("per_second", "calls/s", ",.0f"),
    Column("cpu_us", "CPU us/call", ",.2f"),
    Column("x", "x raw C", ",.2f"),
    Column("cpu_x", "CPU x", ",.2f"),
)


class Case(NamedTuple):
    """One payload and one way of calling; `calls` per repetition."""

    name: str
    size: int
    in_flight: int
    calls: int


CASES = (
    Case("100 B, one by one", 100, 1, 10_000),
    Case("100 B, 64 in flight", 100, 64, 64_000),
    Case("1 KB, one by one", 1_000, 1, 10_000),
    Case("1 KB, 64 in flight", 1_000, 64, 32_000),
    Case("100 KB, one by one", 100_000, 1, 1_000),
    Case("100 KB, 64 in flight", 100_000, 64, 1_920),
)


def hosts(case: Case) -> list[Host]:
    long = case.size >= 65_536
    return [
        _raw("raw C", case),
        *([_raw("raw C, 1 MB pipes", case, 1 << 20)] if long else []),
        _serai("serai", case, "asyncio"),
        _serai("serai uvloop", case, "uvloop"),
        *([_serai("serai mallopt", case, "mallopt")] if long else []),
        _serai("serai fast", case, "fast"),
        *_peers(case),
    ]


def _raw(name: str, case: Case, *pipe: int) -> Host:
    return Host(name, [build("host"), build("echo"), *_shape(case, 5), *map(str, pipe)])


def _serai(name: str, case: Case, how: str) -> Host:
    return Host(name, worker("roundtrip", build("echo"), *_shape(case), how))


def _peers(case: Case) -> list[Host]:
    """Those that are installed."""
    found: list[Host] = []
    if peer_has("mcp"):
        found.append(_peer("mcp", "peer_mcp", case, 0.05))
    if peer_has("acp"):
        found.append(_peer("agent-client-protocol", "peer_acp", case, 0.25))
    if go := build_go("host"):
        found.append(Host("Go stand-in", [go, build("echo"), *_shape(case)]))
    return found


def _peer(name: str, module: str, case: Case, part: float) -> Host:
    return Host(name, [str(PEERS / "python"), "-m", f"bench.workers.{module}", build("echo"), *_shape(case, part)])


def _shape(case: Case, part: float = 1) -> list[str]:
    """The arguments of a host. Who is quick makes more of the calls and who is slow fewer, but enough to have a p99."""
    return [str(case.size), str(max(int(case.calls * part), 300, 10 * case.in_flight)), str(case.in_flight)]


def run() -> Section:
    measured = {case.name: interleaved(hosts(case)) for case in CASES}
    for rows in measured.values():
        for sample in rows.values():
            sample["x"] = times(sample, rows["raw C"])
            sample["cpu_x"] = sample["cpu_us"] / rows["raw C"]["cpu_us"]
    tables = [Table(name, COLUMNS, rows) for name, rows in measured.items()]
    return Section("Round trip", NOTE, tables, floors(measured))


def floors(measured: dict[str, dict[str, Sample]]) -> list[Floor]:
    small, many, large = (measured[name] for name in ("100 B, one by one", "100 B, 64 in flight", "100 KB, one by one"))

    def faster(rows: dict[str, Sample], than: str) -> float | None:
        return times(rows[than], rows["serai"]) if than in rows else None

    return [
        Floor("100 B one by one, next to raw C", small["serai"]["x"], "at most", 4.0),
        Floor("100 B one by one on uvloop, next to raw C", small["serai uvloop"]["x"], "at most", 3.0),
        Floor("100 B one by one, faster than the mcp client", faster(small, "mcp"), "at least", 8.0),
        Floor("100 B 64 in flight, faster than the mcp client", faster(many, "mcp"), "at least", 40.0),
        Floor("100 B 64 in flight, faster than the Go stand-in", faster(many, "Go stand-in"), "at least", 1.5),
        Floor("100 KB one by one, next to raw C", large["serai"]["x"], "at most", 4.5),
        Floor("100 KB one by one with the extra fast, next to raw C", large["serai fast"]["x"], "at most", 3.0),
    ]


def times(slow: Sample, quick: Sample) -> float:
    """How many times `quick` is as fast as `slow`: by the time of a call for one by one, by calls a second for many in flight."""
    return slow["p50_us"] / quick["p50_us"] if "p50_us" in slow else quick["per_second"] / slow["per_second"]
