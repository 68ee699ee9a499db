"""The resident's loop: what it adds to a model and to a tool."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness import ROOT, Host, Sample, interleaved, worker
from bench.report import Column, Floor, Section, Table

PIECES, STREAMED, CALLS, RUNS = 100_000, 5_000, 1_000, 50
APIS = {"anthropic": "Anthropic Messages", "openai": "OpenAI Chat", "openai-responses": "OpenAI Responses"}

NOTE = f"""\
Pieces: {PIECES:,} pieces of text from a provider in the process that has them all at hand, each an event of its own for whoever
reads the turn. "bare" iterates the provider and does nothing; "kept" also writes the conversation to a session on disk.
Streams: {STREAMED:,} pieces over a socket from the fake of each API, which is a process of its own on the same core, so the time
of both is in "us"; "CPU" is the reader's alone. "SDK" is the official one with its own typed events; the resident is on top of it.
Tools: {CALLS:,} calls in one answer, of a tool that does nothing. "bare" awaits the tool; "decided" has a callable that allows
each; "asked" has whoever reads the turn approve each.
First piece: from the prompt to the first text, the median of {RUNS} prompts over a connection that has been used.
"""

PIECE = (Column("rate", "pieces/s", ",.0f"), Column("cpu", "CPU us/piece", ",.2f"))
STREAM = (Column("rate", "pieces/s", ",.0f"), Column("us", "us/piece", ",.1f"), Column("cpu", "CPU us/piece", ",.1f"))
TOOL = (Column("us", "us/call", ",.1f"), Column("cpu", "CPU us/call", ",.1f"))
FIRST = (Column("ms", "ms", ",.2f"), Column("x", "x SDK", ",.2f"))


@contextmanager
def fakes() -> Iterator[str]:
    """The address of the fakes, which run until the block is left."""
    command = [sys.executable, "-m", "serai.testing.models"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield str(json.loads(process.stdout.readline())["url"])
        process.stdin.close()


def run() -> Section:
    pieces = interleaved([Host(how, worker("resident", "pieces", how, PIECES)) for how in ("bare", "loop", "kept")])
    tools = interleaved([Host(how, worker("resident", "tools", how, CALLS)) for how in ("bare", "decided", "asked")])
    with fakes() as url:
        streams = _streams(url)
        first = _first(url)
    tables = [
        Table("Pieces of text through the loop", PIECE, pieces),
        Table("Streams over a socket", STREAM, streams),
        Table("A tool call", TOOL, tools),
        Table("Time to the first piece", FIRST, first),
    ]
    floors = [
        Floor(
            f"pieces/s of the resident over the SDK, next to the SDK alone, {name}",
            streams[f"{name}, resident"]["rate"] / streams[f"{name}, SDK"]["rate"],
            "at least",
            1.0,
        )
        for name in APIS.values()
    ]
    floors += [
        Floor(f"time to the first piece, next to the SDK alone, {name}", first[f"{name}, resident"]["x"], "at most", 1.2)
        for name in APIS.values()
    ]
    return Section("The resident", NOTE, tables, floors)


def _streams(url: str) -> dict[str, Sample]:
    hosts = []
    for api, name in APIS.items():
        for how, who in (("sdk", "SDK"), ("serai", "resident")):
            hosts.append(Host(f"{name}, {who}", worker("resident", "stream", api, how, STREAMED, url)))
    return interleaved(hosts, 3)


def _first(url: str) -> dict[str, Sample]:
    hosts = []
    for api, name in APIS.items():
        for how, who in (("sdk", "SDK"), ("serai", "resident")):
            hosts.append(Host(f"{name}, {who}", worker("resident", "first", api, how, RUNS, url)))
    rows = interleaved(hosts, 3)
    for name in APIS.values():
        sdk = rows[f"{name}, SDK"]["ms"]
        for who in ("SDK", "resident"):
            rows[f"{name}, {who}"]["x"] = rows[f"{name}, {who}"]["ms"] / sdk
    return rows
