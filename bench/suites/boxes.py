"""Hooks next to a bare spawn of the same program, and boxes next to runc."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from bench.harness import Host, Sample, interleaved, worker
from bench.native import BUILD, build
from bench.report import Column, Floor, Section, Table
from bench.suites.sdk import GUESTS, JSON, RUNS

TIMES = 250
# The median of more repetitions where the memory need not be touched first, which takes longer than the measurement.
SMALL, LARGE = (0, 5), (2048, 3)
BOXES, MANY = 11, 50

HOOKS = (
    Column("p50_us", "p50 us", ",.0f"),
    Column("p99_us", "p99 us", ",.0f"),
    Column("cpu_us", "CPU us of the parent", ",.0f"),
    Column("close_us", "closing us", ",.0f"),
    Column("rate", "a second, 8 at once", ",.0f"),
    Column("x", "x C", ",.2f"),
)
TURNS = (
    Column("create_ms", "create ms"),
    Column("first_ms", "to the first result ms"),
    Column("exec_ms", "a command ms", ",.2f"),
    Column("destroy_ms", "destroy ms"),
)
AUTHORS = (Column("ms", "ms"), Column("x", "x import json", ",.2f"))
TOGETHER = (Column("all_ms", "all there ms", ",.0f"), Column("each_ms", "each ms"), Column("end_ms", "all gone ms", ",.0f"))

C, RUNNER = "C posix_spawn", "serai, a hook"
NOTE = f"""\
Hooks: the program of the table of starting processes, {TIMES} times one after the other, through the runner as a create uses it:
its answer goes to a file that outlives us, is read and checked; the closing, with the proof that nothing of the hook's tree is
left, is a column of its own. The limit is C that only spawns, writes and reads. "Flat" compares a parent with 2 GB of touched
memory with a small one. A hook in Python: its whole run, beside one that only imports json.
The ratio next to C lies near its limit: what is left is Python that finds its caches cold behind each exec.
Boxes: {BOXES} one after the other in one process, on the machine's /usr, each from `create` to the result of a first `true`; then
more commands, then its end. All of it durable: record, answer and end are on disk before their effect. A kept box has a keeper
besides. runc, where it is installed, is its program run on a like bundle, without records, hooks or a porter. At once: {MANY} owned
boxes from one process on all cores, until each has answered.
"""


def run() -> Section:
    small, large = (_hooks(*size) for size in (SMALL, LARGE))
    turns = _turns()
    many = interleaved([Host(f"{MANY} owned boxes", worker("boxes", "parallel", MANY))], 3)
    [together] = many.values()
    floors = [
        Floor("a hook's spawn to its response, next to C", small[RUNNER]["x"], "at most", 1.3),
        Floor("a hook from a 2 GB parent, next to a small one", large[RUNNER]["p50_us"] / small[RUNNER]["p50_us"], "at most", 1.3),
        Floor("an owned box, create to first result", turns["owned"]["first_ms"], "at most", 60, " ms"),
        Floor("a kept box, create to first result", turns["kept"]["first_ms"], "at most", 120, " ms"),
        Floor("a command in a box", turns["owned"]["exec_ms"], "at most", 3, " ms"),
        Floor(f"{MANY} owned boxes at once", together["all_ms"], "at most", 1500, " ms"),
    ]
    authors = _authors()
    floors.append(Floor("a hook with the SDK, next to python -c 'import json'", authors["SDK"]["x"], "at most", 1.3))
    tables = [
        Table("a hook, from a small parent", HOOKS, small),
        Table("a hook, from a parent with 2 GB", HOOKS, large),
        Table("a hook in Python, start to end", AUTHORS, authors),
        Table("a box", TURNS, turns),
        Table("at once", TOGETHER, many),
    ]
    return Section("Hooks and boxes", NOTE, tables, floors)


def _hooks(megabytes: int, repetitions: int) -> dict[str, Sample]:
    hook = build("oneshot")
    hosts = [
        Host(C, [build("spawn"), hook, str(TIMES), str(megabytes)]),
        Host(RUNNER, worker("hooks", hook, TIMES, megabytes)),
    ]
    rows = interleaved(hosts, repetitions)
    for sample in rows.values():
        sample["x"] = sample["p50_us"] / rows[C]["p50_us"]
    return rows


def _authors() -> dict[str, Sample]:
    """A whole run, with a request from a file; `import json` likewise."""
    python = sys.executable
    request = Path(BUILD, "request.json")
    request.write_text('{"event":"box.create","box":{"box_id":"bench"}}')

    def command(*argv: str) -> list[str]:
        return worker("startup", "sh", "-c", 'exec "$@" < "$0"', request, *argv)

    hosts = [
        Host(JSON, command(python, "-c", "import json")),
        Host("by hand", command(python, str(GUESTS / "hook_by_hand.py"))),
        Host("SDK", command(python, str(GUESTS / "hook_sdk.py"))),
    ]
    interleaved(hosts, 1)  # the first run compiles what it imports
    rows = interleaved(hosts, RUNS)
    for sample in rows.values():
        sample["x"] = sample["ms"] / rows[JSON]["ms"]
    return rows


def _turns() -> dict[str, Sample]:
    hosts = [Host(name, worker("boxes", name, BOXES)) for name in ("owned", "kept", "process")]
    if shutil.which("runc") and os.geteuid() == 0:
        hosts.append(Host("runc", worker("runc", BOXES)))
    return interleaved(hosts, 3)
