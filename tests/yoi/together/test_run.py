"""One `serai run` with guests of three dialects: a plugin's tool beside those of zot and piglet, under one zot guard."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from serai.agents.driven.tool_endpoint import ToolEndpoint
from serai.app.agent_tools import GuestTools
from serai.dialects.mcp.events import Done, Listed
from tests.app.houses import opened
from tests.cli import runs
from tests.cli.guests import EXAMPLES, Shell
from tests.mcp.parts import Talker

EVERY = EXAMPLES.parent
GUESTS = [EXAMPLES / "weather-python", EXAMPLES / "guard-python", EVERY / "piglet" / "by-hand"]
ALLOWED = ["--allow", "wat_count", "--allow", "weather", "--allow", "tide"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Somebody with the plugin among their guests, built and granted one folder."""
    shell = Shell(tmp_path)
    plugin, shelf = shell.home / "guests" / "notes", shell.cwd / "shelf"
    shutil.copytree(EVERY / "yoi" / "wat", plugin)
    shelf.mkdir()
    (shelf / "list.txt").write_text("one two\nthree\n")
    (shell.cwd / "secret.txt").write_text("nobody knows\n")
    assert shell("guest", "build", plugin).returncode == 0
    granted = shell("guest", "grant", "notes-wat", "--fs", f"{shelf}:read", "--yes")
    assert granted.returncode == 0, granted.stderr
    return shell


def ended(ran: Any) -> dict[str, dict[str, Any]]:
    """What became of each tool call, by the tool's name."""
    return {one["call"]["name"]: one["result"] for one in runs.lines(ran.stdout) if one["type"] == "tool_ended"}


def text(result: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"])


def run(shell: Shell, *calls: str) -> Any:
    words = [word for guest in GUESTS for word in ("--guest", str(guest))]
    return runs.run(shell, *words, *ALLOWED, "--json", runs.script(*(f"call {call}" for call in calls)))


@pytest.mark.timeout(120)
def test_a_plugins_tool_is_called_beside_those_of_zot_and_piglet(shell: Shell) -> None:
    ran = run(shell, 'wat_count {"path": "list.txt"}', 'weather {"city": "Bern"}', 'tide {"harbour": "Bergen"}')
    assert ran.returncode == 0, ran.stderr
    results = ended(ran)
    assert text(results["wat_count"]) == 'tool completed\n{"lines":2,"words":3}'
    assert "Bern" in text(results["weather"])
    assert "Bergen" in text(results["tide"])


@pytest.mark.timeout(120)
def test_a_zot_guard_blocks_a_plugins_tool_before_the_plugin_hears_of_it(shell: Shell) -> None:
    ran = run(shell, 'wat_count {"path": "rm -rf /"}')
    [result] = ended(ran).values()
    assert result["is_error"]
    assert result["code"] == "BLOCKED"
    # had the plugin been asked it would have failed in another way
    assert "failed closed" not in ran.stdout


@pytest.mark.timeout(120)
def test_a_plugin_is_refused_a_file_outside_of_its_grant_and_the_run_goes_on(shell: Shell) -> None:
    ran = run(shell, 'wat_count {"path": "../secret.txt"}', 'weather {"city": "Bern"}')
    results = ended(ran)
    assert results["wat_count"]["is_error"]
    assert "FS path traversal outside the grant root is denied" in text(results["wat_count"])
    assert "Bern" in text(results["weather"])
    assert "nobody knows" not in ran.stdout + ran.stderr


@pytest.mark.timeout(120)
@pytest.mark.req("yoi.rule.105")
async def test_a_plugins_tool_is_offered_through_mcp_under_the_same_grant(shell: Shell, tmp_path: Path) -> None:
    """To a driven agent it is a tool of the server `serai`, and what it may do does not grow by that."""
    async with opened(tmp_path, installed=True) as app:
        assert shell.home == tmp_path / "home"
        async with ToolEndpoint(GuestTools(app.runtime.tools, lambda: app.runtime.host), agent="claude") as endpoint:
            talker = await Talker.greeted(endpoint)
            listed = await talker.ask(*talker.client.list())
            assert isinstance(listed, Listed)
            assert "wat_count" in {tool.name for tool in listed.tools}
            assert await talker.text("wat_count", {"path": "list.txt"}) == 'tool completed\n{"lines":2,"words":3}'
            refused = await talker.ask(*talker.client.call("wat_count", {"path": "../secret.txt"}))
            assert isinstance(refused, Done)
            assert refused.result.is_error
            assert "FS path traversal outside the grant root is denied" in refused.result.text
            assert "nobody knows" not in refused.result.text
            talker.close()
