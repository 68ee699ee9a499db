"""What a tool is called with is held to its schema before the plugin is entered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serai.plugins.manifest import TYPES
from tests.yoi import wat
from tests.yoi.guest.plugins import Plugin, harness

NODES: dict[str, Any] = {kind: {"type": kind} for kind in TYPES if kind != "object"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        **NODES,
        "mode": {"type": "string", "enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["mode"],
    "additionalProperties": False,
}


@pytest.mark.req("yoi.rule.012")
async def test_input_that_does_not_fit_the_schema_is_an_invalid_argument_and_the_plugin_is_not_run(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, wat.echo(), tools=({"name": "count", "description": "counts", "input_schema": SCHEMA},))
    async with harness(tmp_path, plugin) as host:
        bad: list[dict[str, Any]] = [
            {}, {"mode": "c"}, {"mode": 1}, {"mode": "a", "further": 1}, {"mode": "a", "list": [1, "2"]},
            {"mode": "a", "string": 1},
            {"mode": "a", "integer": 1.5}, {"mode": "a", "boolean": 0}, {"mode": "a", "null": 0}, {"mode": "a", "number": "1"},
            {"mode": "a", "array": {}},
        ]  # fmt: skip
        for arguments in bad:
            result = await host.call_tool("count", arguments)
            assert (result.is_error, result.code) == (True, "INVALID_ARGS"), arguments
        good = {"mode": "a", "list": [1], "string": "", "integer": 1, "number": 1.5, "boolean": True, "null": None, "array": [{}]}
        assert (await host.call_tool("count", good)).text == "count\n1"
