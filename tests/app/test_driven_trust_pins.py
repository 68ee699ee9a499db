"""What was trusted stays what it was: the folders around a project, the next start, another folder, the token of a run."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from serai.agents.drivers.claude.driver import Claude
from serai.cli.mcp_attach import mcp_attach
from serai.errors import PeerGone
from serai.host.trust import Trust
from serai.model.approvals import Approval, Deny
from tests.support.app.apps import Person
from tests.support.app.claude_apps import Harness, hello, list_results
from tests.support.claude.scripted_sessions import PROGRAM, poll

# -- the folders around it


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "person" / "work" / "project"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    """Of somebody whose HOME is not that of who runs this."""
    return Trust.usual({"SERAI_HOME": str(tmp_path / "home"), "HOME": str(tmp_path / "person")})


def write_empty(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")


@pytest.mark.req("app.driven.trust")
@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("work/.mcp.json", "../.mcp.json"),
        ("work/.claude/agents/a.md", "../.claude/agents/a.md"),
        ("work/.claude/commands/b.md", "../.claude/commands/b.md"),
        ("work/.claude/skills/c/SKILL.md", "../.claude/skills/c/SKILL.md"),
        (".mcp.json", "../../.mcp.json"),
        ("../.mcp.json", "../../../.mcp.json"),
        ("../.claude/skills/c/SKILL.md", "../../../.claude/skills/c/SKILL.md"),
    ],
)
def test_what_comes_to_lie_around_a_project_has_to_be_trusted(
    tmp_path: Path, project: Path, trust: Trust, name: str, named: str
) -> None:
    trust.allow(project)
    assert trust.check_agents(project) == ""
    write_empty(tmp_path / "person" / name)
    assert trust.check_agents(project).startswith(f"it has changed since it was trusted: {named};")
    trust.allow(project)
    assert trust.check_agents(project) == ""
    (tmp_path / "person" / name).write_text("[]")
    assert named in trust.check_agents(project)


@pytest.mark.req("app.driven.trust")
@pytest.mark.parametrize(
    "name", [".claude/skills/c/SKILL.md", ".claude/agents/a.md", ".claude/settings.json", "work/.claude/settings.json"]
)
def test_what_a_person_has_at_home_is_their_own(tmp_path: Path, project: Path, trust: Trust, name: str) -> None:
    """Nor is anything read of a folder around it that agents do not take from there."""
    trust.allow(project)
    write_empty(tmp_path / "person" / name)
    assert trust.check_agents(project) == ""


@pytest.mark.req("app.driven.trust")
def test_home_is_found_through_links_and_so_is_the_project(tmp_path: Path, project: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "person")
    (tmp_path / "way").symlink_to(project)
    trust = Trust(tmp_path / "trust.json", person=str(tmp_path / "link"))
    write_empty(tmp_path / "person" / "work" / ".mcp.json")
    trust.allow(tmp_path / "way")
    write_empty(tmp_path / "person" / ".claude" / "agents" / "a.md")
    assert trust.check_agents(tmp_path / "way") == ""
    assert trust.check_agents(project) == ""


# -- between two starts


def write_servers_above(harness: Harness) -> None:
    write_empty(harness.root / ".mcp.json")


def write_own_settings(harness: Harness) -> None:
    write_empty(harness.project / ".claude" / "settings.json")


@pytest.mark.req("app.driven.trust")
@pytest.mark.parametrize("change", [write_own_settings, write_servers_above])
async def test_what_changed_meanwhile_does_not_count_when_it_is_started_again(
    tmp_path: Path, change: Callable[[Harness], None]
) -> None:
    harness = Harness(tmp_path, hello(), hello("again"))
    Trust.usual(harness.environ).allow(harness.project)
    async with harness.opened(surface=Person()) as app:
        await app.submit("go")
        driver = app.session.driver
        assert isinstance(driver, Claude)
        change(harness)
        os.kill(harness.claude.given().pid, signal.SIGKILL)
        await poll(lambda: driver._over is not None)
        await app.submit("go on")
    assert harness.claude.given(0).option("--setting-sources") is None
    assert harness.claude.given(1).option("--setting-sources") == "user"


# -- in another folder

ELSEWHERE = """
greet()
init()
tool("t1", "Bash", command="ls", hook={hook!r})
result("done")
rest()
"""


@pytest.mark.req("app.driven.judged")
@pytest.mark.parametrize(("hook", "asked"), [({"cwd": "/"}, 1), ({"permission_mode": "plan"}, 1), ({}, 0)])
async def test_no_rule_waves_through_what_runs_in_another_folder(tmp_path: Path, hook: dict[str, str], asked: int) -> None:
    harness, person = Harness(tmp_path), Person(Deny("not there"))
    body = tmp_path / "program.py"
    body.write_text(PROGRAM + ELSEWHERE.format(hook=hook), "utf-8")
    harness.claude.path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "{body}" "$@"\n', "utf-8")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "policy.toml").write_text('rule = [{ id = "all", decide = "allow", tool = "bash" }]\n')
    async with harness.opened(surface=person) as app:
        await app.submit("go")
    assert len([one for one in person.asked if isinstance(one, Approval)]) == asked
    assert list_results(person) == ["did not" if asked else "ran"]


# -- the token


def test_the_token_goes_to_no_other_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever listens there is us: so we are somebody else."""
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    monkeypatch.setenv("SERAI_MCP_TOKEN", "secret")
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        server.listen()
        assert mcp_attach.callback is not None
        with pytest.raises(PeerGone, match="another user"):
            mcp_attach.callback("s")
        came, _ = server.accept()
        with came:
            assert came.recv(100) == b""
