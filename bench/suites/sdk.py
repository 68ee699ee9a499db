"""The author's side: how soon an extension says hello, and what a call of its tool costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.harness import PEERS, Host, Sample, interleaved, peer_has, worker
from bench.report import Column, Floor, Section, Table

GUESTS = Path(__file__).parents[1] / "guests"
RUNS, PEER_RUNS = 21, 5
CALLS = 3000

HELLO = (Column("ms", "ms"), Column("x", "x import json", ",.2f"))
TRIPS = (Column("us", "one by one, us"), Column("x", "x by hand", ",.2f"), Column("us_64", "64 in flight, us"))

NOTE = """\
Hello: from the start of the process to the first bytes on its standard output, the median of {runs} runs in turn, with compiled
files in place; `import json` is a whole `python -c`. The bundle runs with `-S -E`, so it does not look for installed packages.
Round trips: {calls} calls of a tool that gives its text back, from a driver that only writes and counts. By hand is a loop over
lines that does one thing at a time and checks nothing; the SDK reads, checks and coerces arguments, and serves calls side by side.
The peer is a server of the official `mcp` package, from its start to its answer to `initialize`.
"""

JSON = "python -c 'import json'"
SDK, BY_HAND = "SDK", "by hand"


def run() -> Section:
    python = sys.executable
    with TemporaryDirectory() as folder:
        bundle = Path(folder) / "echo.pyz"
        making = [python, "-m", "serai", "guest", "bundle", str(GUESTS / "with_sdk.py"), "-o", str(bundle)]
        subprocess.run(making, check=True, capture_output=True)
        hello = first_word(
            {
                BY_HAND: [python, str(GUESTS / "by_hand.py")],
                SDK: [python, str(GUESTS / "with_sdk.py")],
                "SDK, a bundle": [python, "-S", "-E", str(bundle)],
            }
        )
        trips = round_trips(
            {
                BY_HAND: ("echo", [python, str(GUESTS / "by_hand.py")]),
                "SDK, sync": ("echo", [python, str(GUESTS / "sync_sdk.py")]),
                "SDK, async": ("later", [python, str(GUESTS / "with_sdk.py")]),
            }
        )
    tables = [Table("Hello", HELLO, hello), Table("A call", TRIPS, trips)]
    floors = [Floor("hello, next to python -c 'import json'", hello[SDK]["x"], "at most", 3.0)]
    return Section("An author's extension", NOTE.format(runs=RUNS, calls=CALLS), tables, floors)


def first_word(commands: dict[str, list[str]]) -> dict[str, Sample]:
    hosts = [Host(JSON, worker("startup", sys.executable, "-c", "import json"))]
    hosts += [Host(name, worker("guest_calls", "zot", "echo", 0, 1, *command)) for name, command in commands.items()]
    if peer_has("mcp"):
        peer = worker("guest_calls", "mcp", "echo", 0, 1, PEERS / "python", GUESTS / "peer_mcp.py")
        hosts.append(Host("mcp server", peer))
    interleaved(hosts, 1)  # the first run compiles what it imports, and reads it from the disk
    rows = interleaved(hosts, RUNS)
    for sample in rows.values():
        sample["x"] = sample["ms"] / rows[JSON]["ms"]
    return rows


def round_trips(guests: dict[str, tuple[str, list[str]]]) -> dict[str, Sample]:
    def hosts(calls: int, in_flight: int) -> list[Host]:
        made = []
        for name, (tool, command) in guests.items():
            made.append(Host(name, worker("guest_calls", "zot", tool, calls, in_flight, *command)))
        if peer_has("mcp"):
            for tool in ("echo", "later"):
                peer = worker("guest_calls", "mcp", tool, calls, in_flight, PEERS / "python", GUESTS / "peer_mcp.py")
                made.append(Host(f"mcp server, {'sync' if tool == 'echo' else 'async'}", peer))
        return made

    rows, many = interleaved(hosts(CALLS, 1), PEER_RUNS), interleaved(hosts(CALLS, 64), PEER_RUNS)
    for name, sample in rows.items():
        sample["x"] = sample["us"] / rows[BY_HAND]["us"]
        sample["us_64"] = many[name]["us"]
    return rows
