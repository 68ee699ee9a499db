"""Ingest without Serai, in a fresh process: `python -m bench.workers.ingest_json PATH SIZE EVENTS TEXT PIECES json|orjson|streams`.

`json` and `orjson` read the pipe with plain blocking reads, without a loop, and parse line by line into dictionaries; `streams` is
what people write: asyncio's own subprocess, a line at a time, `json`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from bench.stream import Stream
from bench.workers.ingest_meter import Meter

READ = 65536
LONGEST = 1 << 26


def text_of(event: dict[str, Any]) -> int:
    """The characters that count, by the same questions that the typed consumer asks."""
    if event["type"] == "stream_event":
        inner = event["event"]
        if inner["type"] == "content_block_delta" and inner["delta"]["type"] == "text_delta":
            return len(inner["delta"]["text"])
    elif event["type"] == "user":
        return sum(len(block["content"]) for block in event["message"]["content"] if block["type"] == "tool_result")
    return 0


def lines(path: str) -> Iterator[bytes]:
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        rest = b""
        while chunk := os.read(child.stdout.fileno(), READ):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole


def plain(stream: Stream, loads: Callable[[bytes], Any]) -> None:
    source = lines(stream.path)
    next(source)
    meter, events, text = Meter(stream), 1, 0
    for line in source:
        events += 1
        text += text_of(loads(line))
    meter.done(events, text)


async def streams(stream: Stream) -> None:
    child = await asyncio.create_subprocess_exec("cat", stream.path, stdout=subprocess.PIPE, limit=LONGEST)
    assert child.stdout is not None
    await child.stdout.readline()
    meter, events, text = Meter(stream), 1, 0
    async for line in child.stdout:
        events += 1
        text += text_of(json.loads(line))
    meter.done(events, text)
    await child.wait()


def run(stream: Stream, kind: str) -> None:
    if kind == "streams":
        asyncio.run(streams(stream))
    elif kind == "orjson":
        import orjson

        plain(stream, orjson.loads)
    else:
        plain(stream, json.loads)


if __name__ == "__main__":
    *arguments, kind_ = sys.argv[1:]
    run(Stream.of(arguments), kind_)
