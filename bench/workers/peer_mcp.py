"""The round trip of the official `mcp` client: `python -m bench.workers.peer_mcp PEER BYTES CALLS IN_FLIGHT`, in the peers' Python.

A `ClientSession` over `stdio_client`, as its own documentation starts one; no time-outs, no callbacks. The tool declares no
output schema, so nothing is validated beyond the message itself.
"""

from __future__ import annotations

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters, stdio_client

from bench.workers.timing import Shape, measure


async def main(peer: str, shape: Shape) -> dict[str, float]:
    text = shape.text
    async with stdio_client(StdioServerParameters(command=peer)) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        answer = await session.call_tool("echo", {"text": text})
        assert answer.content[0].text == text
        return await measure(lambda: session.call_tool("echo", {"text": text}), shape)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], Shape.of(sys.argv[2:])))))
