"""The round trip of the `agent-client-protocol` client: `python -m bench.workers.peer_acp PEER BYTES CALLS IN_FLIGHT`.

An extension method, which is ACP's way to send a request of one's own: JSON-RPC and correlation, but no pydantic models on the
way, so this is the library at its quickest. Run in the peers' Python. Its default limit of a line would end a call of 100 KB;
it gets the one the library has for its other side.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from acp import spawn_agent_process
from acp.core import DEFAULT_STDIO_BUFFER_LIMIT_BYTES

from bench.workers.timing import Shape, measure


class Client:
    """The side of a client that an echo never calls."""

    def on_connect(self, agent: Any) -> None:
        """Part of its interface."""


async def main(peer: str, shape: Shape) -> dict[str, float]:
    text = shape.text
    options = {"limit": DEFAULT_STDIO_BUFFER_LIMIT_BYTES}
    async with spawn_agent_process(Client(), peer, transport_kwargs=options) as (agent, _):
        answer = await agent.ext_method("echo", {"text": text})
        assert answer["content"][0]["text"] == text
        return await measure(lambda: agent.ext_method("echo", {"text": text}), shape)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], Shape.of(sys.argv[2:])))))
