"""Driven agents: what a session adds to the agent's own program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench import stream
from bench.harness import PEERS, Host, Sample, interleaved, peer_has, worker
from bench.report import Column, Floor, Section, Table
from bench.suites.resident import fakes

PAIRS, SESSIONS, APPROVALS = 20, 50, 200
SDK, JSON = "claude-agent-sdk", "json per line"
GROWS = 32  # MB

NOTE = """\
Streams: what Claude Code prints for one prompt of {steps} steps, {events:,} lines of which 95 % are small deltas, comes from a
program that answers the host's first question, waits for the prompt and then splices a file into its output, on the same core: it
must cost next to nothing itself. In the first table the results of tools are as long as in our recordings of the real program: a
few lines, and one in forty of 50 KB ({talk:.0f} MB in all). In the second each has about 50 KB ({turn:.0f} MB). The time is from
the first event to the last, per line; an event here is a line of the program, for all of them. Serai's way is all of a session:
process, channel, dialect, folding into neutral events, each with the line it came in, and a turn that somebody iterates; deltas
of one block that come in one read are one neutral event, which has all their lines. Every reader must show the right number of
characters, and a session every byte of the deltas' lines. {sdk}'s client gives its own messages, which are the lines as
dictionaries. "{json}" has plain blocking reads and no types: it is for scale. "grown" is how much higher the process's peak of
memory was at the end than after a tenth of the stream.

First event: the real Claude Code against a fake of its API on the same core. From the start of a session to the first event of the
program's own, and from a bare start of the same command line, with the same two lines written at once, to the same line. Medians
of {pairs} alternating pairs; "more" is the median of the differences. The program is the one that {sdk} brings along, or
$SERAI_BENCH_CLAUDE.

Approvals: mock sessions in one process, each of which asks for {approvals} approvals one after the other; a surface allows each. No
program is started, so this is what sessions themselves take.
"""

STREAM = (
    Column("per_second", "events/s", ",.0f"),
    Column("mb_s", "MB/s", ",.0f"),
    Column("cpu_us", "CPU us/event", ",.2f"),
    Column("x", "CPU x json", ",.2f"),
    Column("peak_mb", "peak MB", ",.0f"),
    Column("grown_mb", "grown MB"),
)
FIRST = (Column("ms", "ms", ",.0f"), Column("more", "more ms"))
APPROVAL = (Column("per_second", "approvals/s", ",.0f"), Column("cpu_us", "CPU us/approval"), Column("x", "CPU x one", ",.2f"))
ONE, MANY = "one session", f"{SESSIONS} sessions at once"


def run() -> Section:
    talk, turn = stream.build("talk"), stream.build("turn")
    short, long, first, approvals = _ingest(talk), _ingest(turn), _first(), _approvals()
    ours, theirs = short["serai"], short.get(SDK)
    more = first["serai"]["more"] if first else None
    floors = [
        Floor(f"events a second through a session, next to {SDK}", _times(ours, theirs, "per_second"), "at least", 10.0),
        Floor(f"CPU of {SDK} for an event, next to a session's", _times(theirs, ours, "cpu_us"), "at least", 10.0),
        Floor("memory that a turn of 100 MB takes beyond its first 10", long["serai"]["grown_mb"], "at most", GROWS, " MB"),
        Floor("a session to its first event, more than the bare program", more, "at most", 20, " ms"),
        Floor(f"CPU of an approval in {SESSIONS} sessions, next to one", approvals[MANY]["x"], "at most", 1.5),
    ]
    tables = [
        Table("A stream of Claude Code through a session, results as recorded", STREAM, short),
        Table("The same, each result of 50 KB", STREAM, long),
        *([Table("The real program to its first event", FIRST, first)] if first else []),
        Table("Approvals of mock sessions", APPROVAL, approvals),
    ]
    sizes = {"talk": talk.size / 1e6, "turn": turn.size / 1e6, "events": talk.events}
    note = NOTE.format(steps=stream.TURNS, sdk=SDK, json=JSON, pairs=PAIRS, approvals=APPROVALS, **sizes)
    return Section("Driven agents", note, tables, floors)


def _ingest(source: stream.Stream) -> dict[str, Sample]:
    hosts = [
        Host(JSON, worker("ingest_json", *source, "json")),
        Host("serai", worker("claude", *source, "asyncio")),
        Host("serai uvloop", worker("claude", *source, "uvloop")),
    ]
    if peer_has("claude_agent_sdk"):
        hosts.append(Host(SDK, [str(PEERS / "python"), *worker("ingest_sdk", *source, "client")[1:]]))
    rows = interleaved(hosts)
    for sample in rows.values():
        sample["x"] = sample["cpu_us"] / rows[JSON]["cpu_us"]
    return rows


def _first() -> dict[str, Sample]:
    """Nothing without the real program."""
    program = real()
    if program is None:
        return {}
    with fakes() as url:
        api = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "fake-key"}
        [sample] = interleaved([Host("pairs", worker("claude_first", program, PAIRS), api)], 1).values()
    return {"the bare program": {"ms": sample["bare"]}, "serai": {"ms": sample["serai"], "more": sample["more"]}}


def real() -> Path | None:
    """The real Claude Code: the one that somebody names, or the peers'."""
    if named := os.environ.get("SERAI_BENCH_CLAUDE"):
        if not os.access(named, os.X_OK):
            sys.exit(f"SERAI_BENCH_CLAUDE is {named}, which is no program")
        return Path(named)
    found = (PEERS.parent / "lib").glob("python*/site-packages/claude_agent_sdk/_bundled/claude")
    return next((path for path in found if os.access(path, os.X_OK)), None)


def _approvals() -> dict[str, Sample]:
    counts = {ONE: 1, MANY: SESSIONS}
    rows = interleaved([Host(name, worker("agents", "mock", count, APPROVALS)) for name, count in counts.items()])
    for sample in rows.values():
        sample["x"] = sample["cpu_us"] / rows[ONE]["cpu_us"]
    return rows


def _times(one: Sample | None, other: Sample | None, key: str) -> float | None:
    return one[key] / other[key] if one and other else None
