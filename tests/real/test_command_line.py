"""The real program takes our command lines, whatever is on them."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from serai.agents.drivers.claude import installation
from serai.agents.drivers.claude.installation import VersionCache, find_claude
from serai.agents.drivers.claude.launch import build_command_line, check_launch
from serai.agents.drivers.claude.options import ClaudeOptions, build_environment
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch
from tests.support.claude.real_claude import Real

MODEL = "claude-sonnet-4-5"


async def run_text_mode(real: Real, options: ClaudeOptions, prompt: str) -> str:
    """What it prints in text format, its errors before it."""
    env = build_environment(real.environ, options, real.cwd)
    check_launch(options, env, real.cwd)
    argv = build_command_line(str(real.program), options, fmt="text", prompt=prompt, cwd=real.cwd)
    async with PlainSpawner() as spawner:
        child = await spawner.spawn(Launch(argv=argv, env=env, cwd=str(real.cwd), stdin="null", who="claude"))
        out = child.drain_noise(child.stdout)
        status = await child.exited
        out.drain()
    assert status.ok, child.stderr.text()
    return out.text().strip()


async def test_a_prompt_that_looks_like_a_flag_is_a_prompt(real: Real) -> None:
    options = ClaudeOptions(model=MODEL, allowed_tools=("Bash", "Read"), add_dirs=(str(real.home), str(real.root / "tmp")))
    assert await run_text_mode(real, options, "--version\n>> say here") == "here"


async def test_every_option_is_known_to_it(real: Real) -> None:
    """One that is not would end it at once with an error."""
    first = str(uuid4())
    begun = ClaudeOptions(model=MODEL, session_id=first, system_prompt="-be brief", append_system_prompt="--be kind")
    assert await run_text_mode(real, begun, ">> say first") == "first"  # these two count for as long as the conversation lasts
    options = ClaudeOptions(
        model=MODEL, fallback_model="-odd", effort="low", max_turns=3, max_budget=5.0, session_id=first, resume=True,
        fork=True, fork_id=str(uuid4()), permission_mode="default",
        permission_prompts="none", tools=("Bash", "Read"), allowed_tools=("Bash(git log:*)",), disallowed_tools=("WebFetch",),
        add_dirs=(str(real.home), str(real.root)), mcp_servers={"none": {"command": "true"}}, strict_mcp=True,
        settings='{"env":{"A":"1"}}', setting_sources=(), extra={"betas": "a"},
    )  # fmt: skip
    assert await run_text_mode(real, options, "- >> no\n>> say second") == "second"
    asked = [request.body for request in real.models.requests if request.path == "/v1/messages"][-1]
    assert "first" in json.dumps(asked["messages"])
    assert "-be brief" in json.dumps(asked["system"])
    assert {tool["name"] for tool in asked["tools"]} >= {"Bash", "Read"}


async def test_it_tells_the_version_that_is_written_beside_it(real: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = await find_claude(ClaudeOptions(), real.environ, versions=VersionCache())
    assert beside.source == "CLAUDE_CLI_PATH"
    monkeypatch.setattr(installation, "read_recorded_version", lambda _path: "")
    alone = await find_claude(ClaudeOptions(), real.environ, versions=VersionCache())
    assert alone.version == beside.version
    assert beside.version.startswith("2.")
