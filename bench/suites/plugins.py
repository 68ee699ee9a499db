"""WASM plugins: what a worker process costs next to wasmtime in one's own process, and how many go side by side."""

from __future__ import annotations

from bench.harness import PEERS, Host, Sample, interleaved, peer_has, worker
from bench.native import build_plugin
from bench.report import Column, Floor, Section, Table
from bench.workers.plugins import CALLS, CROWD, STARTS

TOOLS = ("echo", "call", "look")
INSIDE, OURS, FAST, EXTISM = "wasmtime in one's own process", "serai", "serai uvloop", "extism"

NOTE = """\
A plugin in C, compiled by zig, with the five exports of the world `instance`. `echo` takes 1 KB of JSON, parses it and gives
the text back; `call` asks the host for next to nothing, to close a websocket that is not open; `look` has the host read a small
file within its grant. Medians of {calls:,} calls, one after the other. The first row is wasmtime's own Python API: no process,
no limits but an epoch that never comes, no checks, and a host function that answers at once. Serai's rows are a tool call as
the host makes it: authorised, its arguments as JSON, over a pipe to a worker on the same core that can do nothing but run the
plugin, and what comes back checked and neutral; `look` has the whole way to the file and back in it, in a thread, since a disk
may hang. "whole" is `Host.call_tool`, with the schema, the table of names and the load order. extism has its own ABI and cannot
host such a component: it gives the bytes of an echo back without looking at them.

Start: from the wish to have the plugin to its `start` answered, with a new process each time, {starts} times; "first" is the
first time, when it is compiled too. Crowd: {crowd} plugins, each in a process of its own, start side by side; then all are
called at once. "MB a worker" is all its resident memory, "MB each" has what many share divided among them.
"""

CALL = (
    Column("p50", "us p50"),
    Column("p95", "us p95"),
    Column("x", "x wasmtime", ",.2f"),
    Column("cpu", "parent's CPU us"),
    Column("whole", "whole us"),
)
START = (Column("first", "first ms", ",.0f"), Column("ms", "ms", ",.0f"), Column("mb", "MB a worker"))
MANY = (Column("up_ms", "all up ms", ",.0f"), Column("per_call", "us/call"), Column("mb", "MB each"))


def run() -> Section:
    plugin = build_plugin("plugin")
    if plugin is None:
        floors = [Floor("a tool call through the worker, next to wasmtime in one's own process", None, "at most", 3.0)]
        return Section("Plugins", "Not measured: without zig there is no plugin (`make bench-peers` installs it).\n", [], floors)
    rows = interleaved(
        [
            Host(INSIDE, worker("plugins", "inprocess", plugin)),
            *(Host(f"{name} {mode}", worker("plugins", mode, plugin, loop)) for name, loop in _LOOPS for mode in TOOLS),
            *([Host(EXTISM, [str(PEERS / "python"), *worker("extism_echo")[1:]])] if peer_has("extism") else []),
        ]
    )
    starts = interleaved([Host(OURS, worker("plugins", "spawn", plugin))])
    crowd = interleaved([Host(f"{CROWD} plugins", worker("plugins", "crowd", plugin))], 3)
    echo, call, look = (_calls(rows, tool) for tool in TOOLS)
    if EXTISM in rows:
        echo[EXTISM] = rows[EXTISM]
    starts[OURS]["mb"] = rows[f"{OURS} echo"]["mb"]
    floors = [
        Floor("a tool call of 1 KB through the worker, next to wasmtime in one's own process", echo[OURS]["x"], "at most", 3.0),
        Floor("a tool call with one call of the host in it", call[OURS]["p50"], "at most", 300, " us"),
        Floor("a plugin from nothing to ready, compiled before", starts[OURS]["ms"], "at most", 100, " ms"),
    ]
    tables = [
        Table("A tool of 1 KB", CALL, echo),
        Table("A tool that asks the host once", CALL, call),
        Table("A tool that reads a file through the host", CALL, look),
        Table("Start", START, starts),
        Table("Side by side", MANY, crowd),
    ]
    return Section("Plugins", NOTE.format(calls=CALLS, starts=STARTS, crowd=CROWD), tables, floors)


_LOOPS = ((OURS, "asyncio"), (FAST, "uvloop"))


def _calls(rows: dict[str, Sample], tool: str) -> dict[str, Sample]:
    inside = rows[INSIDE]
    found = {INSIDE: {"p50": inside[f"{tool}_p50"], "p95": inside[f"{tool}_p95"], "x": 1.0}}
    for name, _ in _LOOPS:
        sample = rows[f"{name} {tool}"]
        found[name] = sample | {"x": sample["p50"] / inside[f"{tool}_p50"]}
    return found
