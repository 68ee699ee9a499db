"""Ingest by claude-agent-sdk, in a fresh process of the peers' Python.

ingest_sdk PATH SIZE EVENTS TEXT PIECES query|client      the whole stream of one query, or one turn of a client with a conversation
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, StreamEvent, ToolResultBlock, UserMessage, query

from bench.stream import Stream
from bench.workers import fake_claude
from bench.workers.ingest_meter import Meter


def text_of(message: Any) -> int:
    if isinstance(message, StreamEvent):
        event = message.event
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
            return len(event["delta"]["text"])
    elif isinstance(message, UserMessage):
        return sum(len(block.content or "") for block in message.content if isinstance(block, ToolResultBlock))
    return 0


async def of_a_query(options: ClaudeAgentOptions) -> AsyncIterator[Any]:
    async for message in query(prompt="go", options=options):
        yield message


async def of_a_client(options: ClaudeAgentOptions) -> AsyncIterator[Any]:
    async with ClaudeSDKClient(options) as client:
        await client.query("go")
        async for message in client.receive_response():
            yield message


async def main(stream: Stream, how: str, cli: str) -> None:
    options = ClaudeAgentOptions(cli_path=cli, env={fake_claude.STREAM: stream.path}, include_partial_messages=True)
    messages = {"query": of_a_query, "client": of_a_client}[how](options)
    await anext(messages)
    meter, events, text = Meter(stream), 1, 0
    tenth = stream.events // 10
    async for message in messages:
        events += 1
        text += text_of(message)
        if events == tenth:
            meter.a_tenth()
    meter.done(events, text)


if __name__ == "__main__":
    *arguments, how_ = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Stream.of(arguments), how_, fake_claude.write(folder)))
