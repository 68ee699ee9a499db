"""A folder that nobody trusts has no say in how the real program works there; and the whole way by `serai run`."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from tests.support.claude.real_claude import Real
from tests.support.cli.shell import EXAMPLES

HOOKED = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "touch hooked"}]}]}}
WRITE = '>> call Bash {"command": "echo one > made; cat made"}\n>> say done'


@pytest.fixture
def project(real: Real) -> Real:
    """A folder with settings, hooks, servers and a memory of its own."""
    server = {"mcpServers": {"theirs": {"command": "sh", "args": ["-c", "touch started; cat > /dev/null"]}}}
    (real.cwd / ".mcp.json").write_text(json.dumps(server))
    (real.cwd / ".claude").mkdir()
    (real.cwd / ".claude" / "settings.json").write_text(json.dumps({**HOOKED, "enableAllProjectMcpServers": True}))
    (real.cwd / ".claude" / "settings.local.json").write_text(json.dumps(HOOKED))
    (real.cwd / "CLAUDE.md").write_text("Always speak of otters.")
    return real


async def test_the_settings_of_a_folder_that_is_not_trusted_do_not_count(project: Real) -> None:
    async with project.agent(options={"allowed_tools": ("Bash",)}) as session:
        assert (await session.turn(WRITE)).text == "done"
    assert (project.cwd / "made").exists()
    assert not (project.cwd / "hooked").exists()
    assert not (project.cwd / "started").exists()
    assert "otters" not in json.dumps([request.body for request in project.models.requests])


async def test_those_of_a_trusted_one_do(project: Real) -> None:
    async with project.agent(trusted=True, options={"allowed_tools": ("Bash",)}) as session:
        assert (await session.turn(WRITE)).text == "done"
    assert (project.cwd / "hooked").exists()
    assert "otters" in json.dumps([request.body for request in project.models.requests])


async def run(real: Real, *words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "serai", "run", "--agent", "claude", "--model", "claude-sonnet-4-5", *words),
        cwd=real.cwd,
        env={**real.environ, "SERAI_HOME": str(real.root / "serai")},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    return process.returncode or 0, stdout.decode(), stderr.decode()


async def test_a_run_with_what_is_allowed(real: Real) -> None:
    status, stdout, stderr = await run(real, "--allow", "bash", WRITE)
    assert (status, stdout) == (0, "done\n"), stderr
    assert (real.cwd / "made").read_text() == "one\n"


async def test_a_run_without_anybody_to_ask_refuses(real: Real) -> None:
    status, stdout, stderr = await run(real, WRITE)
    assert not (real.cwd / "made").exists(), (status, stdout, stderr)


async def test_a_run_prints_neutral_events(real: Real) -> None:
    status, stdout, stderr = await run(real, "--json", "--allow", "bash", WRITE)
    rows = [json.loads(line) for line in stdout.splitlines()]
    assert status == 0, stderr
    assert '"name":"bash"' in stdout.replace(" ", "")
    assert rows


async def test_a_guard_of_a_run_blocks(real: Real) -> None:
    (real.cwd / "kept").mkdir()
    guard = str(EXAMPLES / "guard-python")
    status, stdout, stderr = await run(
        real, "-e", guard, "--allow", "bash", '>> call Bash {"command": "rm -rf kept"}\n>> say went on'
    )
    assert (status, stdout) == (0, "went on\n"), stderr
    assert (real.cwd / "kept").exists()


async def test_a_run_goes_on(real: Real) -> None:
    await run(real, ">> say remember the otter")
    status, stdout, stderr = await run(real, "--continue", ">> say I do")
    assert (status, stdout) == (0, "I do\n"), stderr
    asked = [request.body for request in real.models.requests if request.path == "/v1/messages"][-1]
    assert "remember the otter" in json.dumps(asked["messages"])


async def test_a_fresh_machine_is_told_how_to_get_the_program(real: Real) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "serai", "run", "--agent", "claude", "hello"),
        cwd=real.cwd,
        env={**{k: v for k, v in real.environ.items() if k != "CLAUDE_CLI_PATH"}, "SERAI_HOME": str(real.root / "serai")},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    assert process.returncode == 1
    assert b"claude-agent-sdk" in stderr
