"""A Claude stream through a session, in a fresh process: `python -m bench.workers.claude PATH SIZE EVENTS TEXT PIECES LOOP`.

The real way: driver, process, channel, dialect, folding into neutral events, and a turn that somebody iterates. LOOP is asyncio or
uvloop.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile

import serai
from bench.stream import Stream
from bench.workers import fake_claude
from bench.workers.ingest_meter import Meter
from serai.agents.session import Session
from serai.model.events import Text, ToolEnded, ToolInput


def opened(stream: Stream, folder: str) -> Session:
    environ = os.environ | {fake_claude.STREAM: stream.path}
    return serai.agent("claude", path=fake_claude.write(folder), cwd=folder, environ=environ, settings={})


def written(event: Text | ToolInput) -> int:
    """How many bytes the lines of a piece had, with their ends; none when they are lost, as for a reader that is behind."""
    if event.native is None:
        return 0
    lines = memoryview(event.native)
    # Several lines are an array: a bracket more than line ends. One is as it came, without its end.
    return lines.nbytes - 1 if lines[0] == ord("[") else lines.nbytes + 1


async def main(stream: Stream, folder: str) -> None:
    async with opened(stream, folder) as session:
        turn = session.turn("go")
        async for first in turn:
            if first.native is not None:  # what the process says begins here
                break
        meter, pieces, text = Meter(stream), 0, 0
        tenth = stream.text // 10
        async for event in turn:
            if isinstance(event, Text):
                pieces += written(event)
                text += len(event.text)
            elif isinstance(event, ToolInput):
                pieces += written(event)
            elif isinstance(event, ToolEnded):
                text += len(event.result.text)
                if tenth and text >= tenth:
                    tenth = 0
                    meter.a_tenth()
        if pieces != stream.pieces:
            sys.exit(f"{pieces} bytes of pieces came; {stream.pieces} were sent")
        meter.done(stream.events, text)
        assert (await turn.result()).ok


if __name__ == "__main__":
    *arguments, loop = sys.argv[1:]
    factory = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with tempfile.TemporaryDirectory() as place, asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main(Stream.of(arguments), place))
