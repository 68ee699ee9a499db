"""One measurement of Serai's ingest in a fresh process: `… ingest PATH SIZE EVENTS TEXT PIECES LOOP TYPES BOUND`.

A child's output becomes typed values that a consumer takes from an async iterator; when BOUND of them wait for it, the child waits
too. LOOP is asyncio or uvloop. TYPES is all, or some: then one kind of line is unknown to the types and comes as `Unknown`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Raw

from bench.stream import Stream
from bench.workers.ingest_meter import Meter
from serai.errors import SeraiError
from serai.wire.channel import Channel
from serai.wire.codec import Codec, Noise, Unknown
from serai.wire.event_loop import Deadlines
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch
from serai.wire.stream import Oversize

NOTHING = Raw(b"null")


class Part(msgspec.Struct, tag_field="type", gc=False):
    """What has a `type`."""


class TextDelta(Part, tag="text_delta"):
    text: str


class InputDelta(Part, tag="input_json_delta"):
    partial_json: str


class MessageStart(Part, tag="message_start"):
    message: Raw


class BlockStart(Part, tag="content_block_start"):
    index: int
    content_block: Raw


class BlockDelta(Part, tag="content_block_delta"):
    index: int
    delta: TextDelta | InputDelta


class BlockStop(Part, tag="content_block_stop"):
    index: int


class MessageDelta(Part, tag="message_delta"):
    delta: Raw
    usage: Raw = NOTHING


class MessageStop(Part, tag="message_stop"):
    pass


class Text(Part, tag="text"):
    text: str


class ToolUse(Part, tag="tool_use"):
    id: str
    name: str
    input: Raw


class ToolResult(Part, tag="tool_result"):
    tool_use_id: str
    content: str
    is_error: bool = False


class AnswerMessage(msgspec.Struct, gc=False):
    id: str
    model: str
    content: list[Text | ToolUse]
    stop_reason: str | None = None
    usage: Raw = NOTHING


class UserMessage(msgspec.Struct, gc=False):
    content: list[Text | ToolResult]


class StreamEvent(Part, tag="stream_event"):
    event: BlockDelta | BlockStart | BlockStop | MessageStart | MessageDelta | MessageStop
    session_id: str
    parent_tool_use_id: str | None
    uuid: str


class Assistant(Part, tag="assistant"):
    message: AnswerMessage
    parent_tool_use_id: str | None
    session_id: str
    uuid: str


class User(Part, tag="user"):
    message: UserMessage
    parent_tool_use_id: str | None
    session_id: str
    uuid: str
    tool_use_result: Raw = NOTHING


class System(Part, tag="system"):
    subtype: str
    session_id: str
    uuid: str


class Result(Part, tag="result"):
    session_id: str
    uuid: str
    subtype: str
    is_error: bool
    num_turns: int
    duration_ms: int
    duration_api_ms: int
    result: str | None = None
    total_cost_usd: float | None = None
    usage: Raw = NOTHING


CODECS: dict[str, Codec[Any]] = {
    "all": Codec(StreamEvent | Assistant | User | System | Result),
    "some": Codec(StreamEvent | Assistant | User | Result),
}
Item = StreamEvent | Assistant | User | System | Result | Unknown | Noise


class Events:
    """A receiver whose messages are taken from an async iterator."""

    def __init__(self, codec: Codec[Any], bound: int) -> None:
        self.channel: Channel
        self._bound = bound
        self._reader = codec.create_reader()
        self._waiting: list[Item] = []
        self._news: asyncio.Future[None] | None = None
        self._over = False

    async def __aiter__(self) -> AsyncIterator[Item]:
        while True:
            batch, self._waiting = self._waiting, []
            self.channel.resume()
            for item in batch:
                yield item
            if not self._waiting:
                if self._over:
                    return
                self._news = asyncio.get_running_loop().create_future()
                await self._news

    def handle_run(self, run: bytes) -> None:
        self._waiting += self._reader.read(run)
        if len(self._waiting) >= self._bound:
            self.channel.pause()
        self._tell()

    def handle_oversize(self, frame: Oversize) -> None:
        raise AssertionError(frame)

    def tick(self, now: float) -> float | None:
        return None

    def handle_loss(self, cause: SeraiError) -> None:
        self._over = True
        self._tell()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


async def main(stream: Stream, codec: Codec[Any], bound: int) -> None:
    async with PlainSpawner() as spawner:
        # The watchdog starts with the first child, on the same core; a host has had it long before an agent begins to talk.
        await (await spawner.spawn(Launch(argv=["sleep", "0.3"], env=dict(os.environ)))).exited
        child = await spawner.spawn(Launch(argv=["cat", stream.path], env=dict(os.environ)))
        events = Events(codec, bound)
        events.channel = Channel(child, events, deadlines=Deadlines())
        items = aiter(events)
        await anext(items)
        meter, count, text = Meter(stream), 1, 0
        async for item in items:
            count += 1
            if isinstance(item, StreamEvent):
                event = item.event
                if isinstance(event, BlockDelta) and isinstance(event.delta, TextDelta):
                    text += len(event.delta.text)
            elif isinstance(item, User):
                text += sum(len(block.content) for block in item.message.content if isinstance(block, ToolResult))
        meter.done(count, text)


if __name__ == "__main__":
    *arguments, loop, types, bound_ = sys.argv[1:]
    factory = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main(Stream.of(arguments), CODECS[types], int(bound_)))
