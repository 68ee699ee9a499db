"""The app: what the whole app adds to a session, its tool calls while a session is busy, and `serai run` from start to result."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.harness import Host, Sample, interleaved, worker
from bench.report import Column, Floor, Section, Table

PIECES, STEPS, CALLS, RUNS = 100_000, 200, 2_000, 15
BUSY = {
    "still": "nothing runs",
    "parrot": "parrot streams",
    "pieces": "a model streams that has it all at hand",
    "steps": "a turn makes steps of 100 pieces and a tool call",
}

NOTE = f"""\
The app has everything it usually has: the conversation is kept on disk, every wire is recorded, rules judge every call. "three
guests" are processes that hear of every event for which zot has a word: steps, messages and tool calls, never pieces of text.

Events: a turn of {PIECES:,} pieces of text, and one of {STEPS} steps of ten pieces and five calls of the built-in `read`, from a
model in the process that has it all at hand. "the resident alone" is the same session without the app: it is kept on disk too, and
a callable allows every call. With guests the turn is over when each has said that it has heard all of it.

Calls: `app.call_tool`, {CALLS:,} times one after the other, of a guest's tool through the deny rules, the interceptor of another
guest, a rule that allows, and the owner, while a turn of the same app runs at full speed. The guests have the machine's other
cores, as the one of the app is never idle.

`serai run`: a whole process in an empty home and an empty project, from its start to its end, with parrot: settings, rules, a
session, a recording and an answer. The median of {RUNS} runs in turn with the others.
"""

EVENTS = (
    Column("rate", "events/s", ",.0f"),
    Column("us", "us/event", ",.2f"),
    Column("cpu", "CPU us/event", ",.2f"),
    Column("x", "CPU x"),
)
CALL = (
    Column("p50_us", "p50 us", ",.0f"),
    Column("p99_us", "p99 us", ",.0f"),
    Column("per_second", "calls/s", ",.0f"),
    Column("rate", "events/s meanwhile", ",.0f"),
)
RUN = (Column("ms", "ms"), Column("cpu_ms", "CPU ms"), Column("x", "x import serai", ",.2f"))
WHO = {"alone": "the resident alone", "app": "the app", "guests": "the app, three guests"}


def run() -> Section:
    pieces, steps = _events("pieces", PIECES), _events("steps", STEPS)
    none, three = _calls("none"), _calls("three")
    tables = [
        Table("A turn of many pieces", EVENTS, pieces),
        Table("A turn of many steps and tool calls", EVENTS, steps),
        Table("A tool call, nobody subscribed", CALL, none),
        Table("A tool call, three guests subscribed", CALL, three),
        Table("serai run", RUN, _run()),
    ]
    floors = [
        Floor(f"tool call p99 while {BUSY[what]}, {who}", rows[BUSY[what]]["p99_us"] / 1e3, "at most", limit, " ms")
        for who, rows, limit, busy in (
            ("nobody subscribed", none, 1.0, ("parrot", "pieces")),
            ("three guests subscribed", three, 2.0, ("parrot", "pieces", "steps")),
        )
        for what in busy
    ]
    return Section("The app", NOTE, tables, floors)


def _events(what: str, size: int) -> dict[str, Sample]:
    rows = interleaved([Host(name, worker("app", "events", what, who, size)) for who, name in WHO.items()])
    for sample in rows.values():
        sample["x"] = sample["cpu"] / rows[WHO["alone"]]["cpu"]
    return rows


def _calls(who: str) -> dict[str, Sample]:
    return interleaved([Host(name, worker("app", "calls", what, who, CALLS)) for what, name in BUSY.items()])


def _run() -> dict[str, Sample]:
    python, serai = sys.executable, str(Path(sys.executable).with_name("serai"))
    commands = {
        "import serai": [python, "-c", "import serai"],
        "import serai.app.app": [python, "-c", "import serai.app.app"],
        "serai run, parrot": [serai, "run", "--model", "parrot", "hello"],
    }
    hosts = [Host(name, worker("app_run", *command)) for name, command in commands.items()]
    interleaved(hosts, 1)  # the first run compiles what it imports, and reads it from the disk
    rows = interleaved(hosts, RUNS)
    for sample in rows.values():
        sample["x"] = sample["ms"] / rows["import serai"]["ms"]
    return rows
