"""`serai agent list`: what agents there are, and what each can do."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai.agents.factory import ABOUT, AGENTS
from tests.support.claude.programs import count_runs, program
from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import parse_objects, write_package

COLUMNS = ["agent", "version", "guards", "rewrite", "from", "can"]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InProcessShell:
    """One whose machine has no other Claude Code than a test says."""
    monkeypatch.delenv("CLAUDE_CLI_PATH", raising=False)
    shell = InProcessShell(tmp_path)
    shell.home.mkdir()
    return shell


def write_settings(shell: InProcessShell, path: Path | str, more: str = "") -> None:
    (shell.home / "config.toml").write_text(f'{more}\n[agents.claude]\npath = "{path}"\n')


def test_everybody_in_the_table_of_agents_can_be_told_about() -> None:
    assert set(ABOUT) == set(AGENTS)


def test_a_line_for_each_with_what_is_asked_and_whether_it_can_be_changed(shell: InProcessShell, tmp_path: Path) -> None:
    file = program(tmp_path / "claude", "2.1.325")
    write_settings(shell, file)
    ran = shell("agent", "list")
    assert (ran.returncode, ran.stderr) == (0, "")
    head, *rows = [line.split() for line in ran.stdout.splitlines()]
    assert head == COLUMNS
    assert [row[0] for row in rows] == ["*", "claude", "mock"]
    assert rows[0][1:6] == ["resident", "-", "every-call", "yes", "serai"]
    assert rows[1][:6] == ["claude", "2.1.325", "every-call", "yes", "settings:", str(file)]
    assert rows[2][:5] == ["mock", "-", "asked-calls", "yes", "serai"]
    assert all("deltas," in row and "approvals," in row for row in rows)
    assert count_runs(file) == 1


def test_as_json_there_is_all_that_is_known(shell: InProcessShell, tmp_path: Path) -> None:
    file = program(tmp_path / "claude", "2.1.325")
    write_settings(shell, file, more='agent = "claude"')
    found = {one["name"]: one for one in parse_objects(shell("agent", "list", "--json"))}
    assert list(found) == ["resident", "claude", "mock"]
    claude = found["claude"]
    assert {key: claude[key] for key in ("available", "used", "path", "version", "source")} == {
        "available": True,
        "used": True,
        "path": str(file),
        "version": "2.1.325",
        "source": "settings",
    }
    assert (claude["capabilities"]["guards"], claude["capabilities"]["rewrite"]) == ("every-call", True)
    assert claude["capabilities"]["questions"] is True
    assert found["resident"]["available"] is True
    assert found["resident"]["used"] is False
    assert "path" not in found["mock"]


def test_one_that_is_missing_says_why_and_how_to_have_it(shell: InProcessShell, tmp_path: Path) -> None:
    write_settings(shell, tmp_path / "none")
    ran = shell("agent", "list")
    assert ran.returncode == 0
    [row] = [line.split() for line in ran.stdout.splitlines() if " claude " in line]
    assert row[:6] == ["claude", "-", "every-call", "yes", "not", "here"]
    assert f"claude: `path` under [agents.claude] is {tmp_path / 'none'}: it does not exist" in ran.stderr
    assert "install the package claude-agent-sdk" in ran.stderr
    [claude] = [one for one in parse_objects(shell("agent", "list", "--json")) if one["name"] == "claude"]
    assert claude["available"] is False
    assert "does not exist" in claude["why"]
    assert "@anthropic-ai/claude-code" in claude["hint"]
    assert "path" not in claude


def test_agents_of_other_packages_are_listed_and_not_run(
    shell: InProcessShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(shell, tmp_path / "none")
    for name, module in (("rover", "acme_rover"), ("ghost", "acme_ghost.deep"), ("resident", "acme_rover")):
        write_package(tmp_path / "site", name, module)
    (tmp_path / "site" / "acme_rover.py").write_text("raise SystemExit('it was run')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    found = {one["name"]: one for one in parse_objects(shell("agent", "list", "--json"))}
    assert list(found) == ["resident", "claude", "mock", "ghost", "rover"]
    assert found["rover"] == {"name": "rover", "available": True, "used": False, "version": "1.5", "source": "acme"}
    assert found["ghost"]["why"] == "its module acme_ghost.deep is missing"
    assert "ghost: its module acme_ghost.deep is missing" in shell("agent", "list").stderr


def test_an_agent_that_is_chosen_and_not_there_is_told(shell: InProcessShell, tmp_path: Path) -> None:
    write_settings(shell, tmp_path / "none", more='agent = "rover"')
    ran = shell("agent", "list")
    assert "the settings name the agent rover, and there is none of that name" in ran.stderr
    assert "*" not in ran.stdout


def test_settings_that_cannot_be_are_an_error(shell: InProcessShell) -> None:
    write_settings(shell, "bin/claude")
    ran = shell("agent", "list")
    assert ran.returncode == 1
    assert "agents.claude.path: it is not an absolute path" in ran.stderr
