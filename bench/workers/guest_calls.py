"""A guest from outside: `python -m bench.workers.guest_calls zot|mcp TOOL CALLS IN_FLIGHT COMMAND…`.

From its start to its first word, then round trips by a driver that does as little as possible: blocking pipes, lines that are made
beforehand, and answers that are only counted. No calls means the first word alone.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from time import perf_counter

TEXT = "x" * 100
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}


def frames(dialect: str, tool: str, calls: int) -> list[bytes]:
    if dialect == "mcp":
        made = [
            {"jsonrpc": "2.0", "id": n + 1, "method": "tools/call", "params": {"name": tool, "arguments": {"text": TEXT}}}
            for n in range(calls)
        ]
    else:
        made = [{"type": "tool_call", "id": str(n), "name": tool, "args": {"text": TEXT}} for n in range(calls)]
    return [json.dumps(frame).encode() + b"\n" for frame in made]


def main(dialect: str, tool: str, calls: int, in_flight: int, command: list[str]) -> dict[str, float]:
    lines = frames(dialect, tool, calls)
    start = perf_counter()
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdin is not None
    assert child.stdout is not None
    write, read = child.stdin.fileno(), child.stdout.fileno()
    if dialect == "mcp":
        os.write(write, json.dumps(INITIALIZE).encode() + b"\n")
    heard = os.read(read, 1 << 16)
    hello = perf_counter() - start
    result = {"ms": hello * 1e3}
    if calls:
        while dialect == "zot" and b'"ready"' not in heard:
            heard += os.read(read, 1 << 16)
        if dialect == "mcp":
            os.write(write, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        exchange(write, read, lines[:100], 1)
        start = perf_counter()
        exchange(write, read, lines, in_flight)
        result["us"] = (perf_counter() - start) / calls * 1e6
    child.stdin.close()
    while os.read(read, 1 << 16):
        pass
    if child.wait():
        sys.exit(f"it ended with {child.returncode}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return result | {"cpu_ms": (used.ru_utime + used.ru_stime) * 1e3}


def exchange(write: int, read: int, lines: list[bytes], in_flight: int) -> None:
    sent = answered = 0
    while answered < len(lines):
        batch = lines[sent : answered + in_flight]
        if batch:
            os.write(write, b"".join(batch))
            sent += len(batch)
        answered += os.read(read, 1 << 16).count(b"\n")


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])))
