"""Start-up: what a person waits for before `serai` says a word, and what `import serai` costs a program."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.harness import PEERS, Host, Sample, interleaved, peer_has, worker
from bench.report import Column, Floor, Section, Table

COLUMNS = (
    Column("ms", "ms"),
    Column("cpu_ms", "CPU ms"),
    Column("x", "x python -c pass", ",.2f"),
)
RUNS, PEER_RUNS = 31, 7

NOTE = """\
Each number is the median of {runs} runs ({peer_runs} for the peers, which take long) of a whole process, from its start to its
end, in turn with the others and with compiled files in place. `serai` is the script that pip installs. `import click` and `import
asyncio` are there for scale: `serai --help` must import click, and everything else waits until a command needs it. The peers are in
an environment of their own, next to its own `python -c pass`; a library's import is not a command, and who imports one gets all of
it.
"""

BARE = "python -c pass"


def run() -> Section:
    python = sys.executable
    ours = measure(
        {
            BARE: [python, "-c", "pass"],
            "import serai": [python, "-c", "import serai"],
            "serai --help": [str(Path(python).with_name("serai")), "--help"],
            "python -m serai --help": [python, "-m", "serai", "--help"],
            "import click": [python, "-c", "import click"],
            "import asyncio": [python, "-c", "import asyncio"],
        },
        RUNS,
    )
    tables = [Table("Serai", COLUMNS, ours)]
    if peers := [name for name in ("acp", "mcp", "claude_agent_sdk") if peer_has(name)]:
        python = str(PEERS / "python")
        commands = {BARE: [python, "-c", "pass"], **{f"import {name}": [python, "-c", f"import {name}"] for name in peers}}
        tables.append(Table("Peers", COLUMNS, measure(commands, PEER_RUNS)))
    floors = [
        Floor("serai --help, next to python -c pass", ours["serai --help"]["x"], "at most", 9.0),
        Floor("import serai, next to python -c pass", ours["import serai"]["x"], "at most", 1.2),
    ]
    return Section("Start-up", NOTE.format(runs=RUNS, peer_runs=PEER_RUNS), tables, floors)


def measure(commands: dict[str, list[str]], runs: int) -> dict[str, Sample]:
    hosts = [Host(name, worker("startup", *command)) for name, command in commands.items()]
    interleaved(hosts, 1)  # the first run compiles what it imports, and reads it from the disk
    rows = interleaved(hosts, runs)
    for sample in rows.values():
        sample["x"] = sample["ms"] / rows[BARE]["ms"]
    return rows
