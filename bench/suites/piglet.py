"""Piglet: a tool call through the host, alone and between two interceptors, beside the bare wire; and three hundred extensions."""

from __future__ import annotations

from bench.harness import Host, Sample, interleaved, worker
from bench.native import build
from bench.report import Column, Floor, Section, Table

GUESTS, BROADCASTS = 300, 40
TRIPS = 5  # of a call between two interceptors: each sees it before and after

NOTE = f"""\
The same C program is a piglet extension for the host, on its descriptors 3 and 4, and a bare child, on its standard streams. The
bare channel decodes a whole answer to types at once, with a deadline on every call and a tap on every frame: what one would write
for this one method. `JsonRpcPeer` is what all JSON-RPC dialects share: requests both ways, cancelling, ids of any kind. The host
adds the table of names, the JSON Schema of the tool, the queue and the adapter, and gives a neutral result; keys in the case
of the Go SDK are read on a second way. With two interceptors on, each of another guest, a call makes {TRIPS} round trips to three
processes, one after the other. They say again what they were shown, as SDKs do, and the host looks whether that is a change. "x
channel" and "CPU x" are for each round trip.

{GUESTS} extensions: found by their manifests, each asked on both transports, with its log, its handshake and its place in the
table; then, {BROADCASTS} times, one event to all until each has answered its `event/dispatch` with a notice, which is shown. The
bare children are started one after the other and answer one line; then the same event goes to all of them, encoded once. C does
that with posix_spawn and epoll, without a look into the answers. "KB each" is what became private to the host, "descriptors" how
many it holds for each. All share one core, so most of a start is the children's.
"""

CALLS = (
    Column("p50_us", "p50 us"),
    Column("p99_us", "p99 us"),
    Column("per_second", "calls/s", ",.0f"),
    Column("cpu_us", "CPU us/call", ",.2f"),
    Column("trips", "trips", ".0f"),
    Column("x", "x channel", ",.2f"),
    Column("cpu_x", "CPU x", ",.2f"),
)

CROWD = (
    Column("ready_ms", "start all ms", ",.0f"),
    Column("ready_cpu_ms", "CPU ms", ",.0f"),
    Column("start_x", "x C", ",.2f"),
    Column("kb", "KB each", ",.2f"),
    Column("descriptors", "descriptors", ",.1f"),
    Column("p50_ms", "event to all p50 ms", ",.2f"),
    Column("p95_ms", "p95 ms", ",.2f"),
    Column("cpu_ms", "CPU ms", ",.2f"),
    Column("x", "x bare", ",.2f"),
    Column("stop_ms", "stop all ms", ",.0f"),
)

SHAPES = {"100 B, one by one": (100, 5_000, 1), "100 B, 64 in flight": (100, 19_200, 64)}
CHANNEL, RPC, HOST = "bare channel", "JsonRpcPeer", "host.call_tool"
GO, GUARDED = "host.call_tool, keys of the Go SDK", "host.call_tool, two interceptors"
C, BARE, SERAI = "C posix_spawn, epoll", "serai, bare children", "serai host"


def run() -> Section:
    peer = build("piglet")
    tables = [Table(name, CALLS, _calls(peer, shape)) for name, shape in SHAPES.items()]
    crowd = _crowd(peer)
    tables.append(Table(f"{GUESTS} extensions", CROWD, crowd))
    return Section("Piglet", NOTE, tables, _floors(*(table.rows for table in tables)))


def _floors(alone: dict[str, Sample], many: dict[str, Sample], crowd: dict[str, Sample]) -> list[Floor]:
    """By CPU where a run takes longer than a turn of the scheduler: the wall then also shows what else the machine does.

    Each limit is about 1.3 times the worst that was seen, which was on a machine with seven others at work for each core.
    """

    def cpu(row: Sample, other: Sample) -> float:
        return row["cpu_us"] / other["cpu_us"]

    alone_trip = _slower(alone[GUARDED], alone[HOST]) / TRIPS
    many_trip = cpu(many[GUARDED], many[HOST]) / TRIPS
    events = crowd[SERAI]["cpu_ms"] / crowd[BARE]["cpu_ms"]
    return [
        Floor("host.call_tool one by one, next to the bare channel", alone[HOST]["x"], "at most", 1.8),
        Floor("host.call_tool 64 in flight, CPU next to the bare channel", many[HOST]["cpu_x"], "at most", 3.0),
        # It has one thing more to do than a call: to look whether what came back is a change.
        Floor("a round trip with two interceptors on, one by one, next to one without", alone_trip, "at most", 1.8),
        Floor("a round trip with two interceptors on, 64 in flight, CPU next to one without", many_trip, "at most", 2.0),
        # Read, folded, written and read again: twice the work of a call, and no more.
        Floor("host.call_tool 64 in flight, keys of the Go SDK, CPU next to exact ones", cpu(many[GO], many[HOST]), "at most", 2.6),
        # To find, to read YAML, to log and to greet each on two transports; C only starts them.
        Floor(f"taking in {GUESTS} extensions, next to {GUESTS} processes in C", crowd[SERAI]["start_x"], "at most", 8.0),
        Floor("memory of the host for each extension", crowd[SERAI]["kb"], "at most", 32, " KB"),
        # An order of events for each guest, its own frame, and what it answers is done and shown; the bare wire has none of it.
        Floor(f"one event to {GUESTS} extensions, CPU next to bare children", events, "at most", 6.5),
    ]


def _calls(peer: str, shape: tuple[int, int, int]) -> dict[str, Sample]:
    whos = {CHANNEL: "channel", RPC: "rpc", HOST: "host", GO: "go", GUARDED: "guarded"}
    rows = interleaved([Host(name, worker("piglet", who, peer, *shape, "asyncio")) for name, who in whos.items()])
    for name, sample in rows.items():
        sample["trips"] = TRIPS if name == GUARDED else 1
        sample["x"] = _slower(sample, rows[CHANNEL]) / sample["trips"]
        sample["cpu_x"] = sample["cpu_us"] / rows[CHANNEL]["cpu_us"] / sample["trips"]
    return rows


def _slower(sample: Sample, bare: Sample) -> float:
    return sample["p50_us"] / bare["p50_us"] if "p50_us" in sample else bare["per_second"] / sample["per_second"]


def _crowd(peer: str) -> dict[str, Sample]:
    rows = interleaved(
        [
            Host(C, [build("crowd"), peer, str(GUESTS), str(BROADCASTS), "piglet"]),
            Host(BARE, worker("piglet_crowd", "channel", peer, GUESTS, BROADCASTS, "asyncio")),
            Host(SERAI, worker("piglet_crowd", "host", peer, GUESTS, BROADCASTS, "asyncio")),
        ]
    )
    for sample in rows.values():
        sample["x"] = sample["p50_ms"] / rows[BARE]["p50_ms"]
        sample["start_x"] = sample["ready_ms"] / rows[C]["ready_ms"]
    return rows
