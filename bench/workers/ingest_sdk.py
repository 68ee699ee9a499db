"""Ingest by claude-agent-sdk, in a fresh process of the peers' Python: `python -m bench.workers.ingest_sdk PATH SIZE EVENTS TEXT PIECES`.

The SDK starts a CLI that is a shell script: it answers the SDK's one question and then is `cat` of the stream.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, StreamEvent, ToolResultBlock, UserMessage, query

from bench.stream import Stream
from bench.workers.ingest_meter import Meter

# The request's id is made up by the SDK; the answer must carry it.
CLI = """\
#!/bin/sh
read -r line
id=${line#*'"request_id": "'}
printf '{"type":"control_response","response":{"subtype":"success","request_id":"%s","response":{}}}\\n' "${id%%'"'*}"
exec cat "$BENCH_STREAM"
"""


def text_of(message: Any) -> int:
    if isinstance(message, StreamEvent):
        event = message.event
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
            return len(event["delta"]["text"])
    elif isinstance(message, UserMessage):
        return sum(len(block.content or "") for block in message.content if isinstance(block, ToolResultBlock))
    return 0


async def main(stream: Stream, cli: str) -> None:
    options = ClaudeAgentOptions(cli_path=cli, env={"BENCH_STREAM": stream.path}, include_partial_messages=True)
    messages = query(prompt="go", options=options)
    await anext(messages)
    meter, events, text = Meter(stream), 1, 0
    async for message in messages:
        events += 1
        text += text_of(message)
    meter.done(events, text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "cli"
        script.write_text(CLI)
        script.chmod(0o755)
        asyncio.run(main(Stream.of(sys.argv[1:]), str(script)))
