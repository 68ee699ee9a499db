"""The real program at the endpoint: it starts `serai mcp-attach` as a server of its own and calls a tool through it."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from typing import Any

import pytest

from serai.agents.driven.tool_endpoint import TOKEN_VARIABLE
from serai.dialects.mcp.neutral import NameMap, measure_prefix
from serai.model.tools import ToolSpec
from tests.support.claude.real_claude import Real
from tests.support.mcp_endpoints import Box, open_endpoint

FAR = "far.off/weather " + "x" * 80


@pytest.mark.req("app.mcp.attach", "app.mcp.launch", "app.mcp.names")
async def test_a_tool_is_called_through_the_endpoint(real: Real) -> None:
    box = Box(ToolSpec(FAR))
    safe = NameMap([FAR], prefix=measure_prefix("serai")).get_safe_name(FAR)
    prompt = f'>> call mcp__serai__add {{"a": 40, "b": 2}}\n>> call mcp__serai__{safe} {{}}\n>> say $results'
    async with open_endpoint(box) as endpoint:
        arguments = ("--mcp-config", endpoint.config, "--strict-mcp-config", "--allowedTools", "mcp__serai")
        child = await asyncio.create_subprocess_exec(
            str(real.program), "-p", "--verbose", "--output-format", "stream-json", *arguments,
            env=real.environ, cwd=real.cwd, stdin=PIPE, stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(child.communicate(prompt.encode()), 50)
        assert child.returncode == 0, err
        assert endpoint.launch.env[TOKEN_VARIABLE].encode() not in out + err
    frames: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    [init] = [frame for frame in frames if frame.get("subtype") == "init"]
    assert [(one["name"], one["status"]) for one in init["mcp_servers"]] == [("serai", "connected")]
    assert frames[-1]["result"] == f"42\n{FAR} ran"
    called = [
        block["id"] for frame in frames if frame["type"] == "assistant" for block in frame["message"]["content"] if "id" in block
    ]
    assert [(call.name, call.id, call.asker) for call in box.calls] == [("add", called[0], "claude"), (FAR, called[1], "claude")]
    offered = {tool["name"]: tool for seen in real.models.requests for tool in seen.body.get("tools", ())}
    assert offered["mcp__serai__add"]["input_schema"]["required"] == ["a", "b"]  # told at once, not when it is searched for
