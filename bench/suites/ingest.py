"""The events of a busy agent: a child's 100 MB of lines into typed values that a consumer takes one by one."""

from __future__ import annotations

from bench import stream
from bench.harness import PEERS, Host, Sample, interleaved, peer_has, worker
from bench.native import build
from bench.report import Column, Floor, Section, Table

BOUND = 1000  # events that may wait for the consumer before the child must
COLUMNS = (
    Column("per_second", "events/s", ",.0f"),
    Column("mb_s", "MB/s", ",.0f"),
    Column("cpu_us", "CPU us/event", ",.2f"),
    Column("x", "CPU x raw C"),
    Column("peak_mb", "peak MB", ",.0f"),
)

NOTE = """\
A generated stream of {events:,} events ({megabytes:.0f} MB: 95 % small deltas, {turns} tool results of about 50 KB) in the shape
that Claude Code prints comes through a pipe from `cat`; the time is from the first event to the last, and every reader must show
the right number of events and of characters. Serai's way is the real one: process, channel, codec, tagged unions, and an async
iterator that makes the child wait while {bound:,} events are not yet taken; "a kind unknown" reads the same stream with types that
lack one kind of line, which then arrives with its bytes. The two rows "per line" have plain blocking reads, no loop and no
back-pressure, and make dictionaries: they are for scale. claude-agent-sdk's `query()` runs a CLI that is a shell script around
`cat`; it keeps each event's whole dictionary, where Serai's types keep what they name, so part of the distance is less work done.
"""


def hosts(source: stream.Stream) -> list[Host]:
    """The physical limit, ours, then others by what they do for the reader."""
    peer = str(PEERS / "python")
    found = [
        Host("raw C, newlines counted", [build("ingest"), source.path, str(source.events)]),
        Host("serai", worker("ingest", *source, "asyncio", "all", BOUND)),
        Host("serai uvloop", worker("ingest", *source, "uvloop", "all", BOUND)),
        Host("serai, a kind unknown", worker("ingest", *source, "asyncio", "some", BOUND)),
    ]
    if peer_has("orjson"):
        found.append(Host("orjson per line", [peer, *worker("ingest_json", *source, "orjson")[1:]]))
    found += [
        Host("json per line", worker("ingest_json", *source, "json")),
        Host("asyncio streams, json", worker("ingest_json", *source, "streams")),
    ]
    if peer_has("claude_agent_sdk"):
        found.append(Host("claude-agent-sdk", [peer, *worker("ingest_sdk", *source, "query")[1:]]))
    return found


def run() -> Section:
    source = stream.build()
    rows = interleaved(hosts(source))
    for sample in rows.values():
        sample["x"] = sample["cpu_us"] / rows["raw C, newlines counted"]["cpu_us"]
    ours, theirs = rows["serai"], rows.get("claude-agent-sdk")
    floors = [
        Floor("events a second, next to claude-agent-sdk", _times(ours, theirs, "per_second"), "at least", 10.0),
        Floor("CPU of claude-agent-sdk for an event, next to ours", _times(theirs, ours, "cpu_us"), "at least", 10.0),
    ]
    note = NOTE.format(events=source.events, megabytes=source.size / 1e6, turns=stream.TURNS, bound=BOUND)
    return Section("Ingest", note, [Table("An agent's stream into values", COLUMNS, rows)], floors)


def _times(one: Sample | None, other: Sample | None, key: str) -> float | None:
    return one[key] / other[key] if one and other else None
