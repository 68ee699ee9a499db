"""What a project has for Claude Code counts only once it is trusted, and only as it was then (design rule 12)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from serai.host import trust as trusting
from serai.host.trust import TOO_MUCH, Trust
from serai.model.actions import Notice
from tests.support.app.apps import Person
from tests.support.app.claude_apps import Harness, hello
from tests.support.host import unprivileged_user

NEVER = "it was never trusted; look at it, then `serai trust`"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """With something of everything that Claude Code would take."""
    folder = tmp_path / "project"
    (folder / ".claude" / "skills" / "worktrees").mkdir(parents=True)
    (folder / ".claude" / "settings.json").write_text('{"hooks": {}}')
    (folder / ".claude" / "skills" / "worktrees" / "SKILL.md").write_text("how to")
    (folder / ".mcp.json").write_text("{}")
    return folder


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path / "config" / "trust.json")


async def find_sources(harness: Harness, *, start: int = 0, person: Person | None = None) -> str | None:
    """Where the agent was told to take its settings from; None: from wherever it likes."""
    async with harness.opened(surface=person or Person()) as app:
        await app.submit("go")
    return harness.claude.given(start).option("--setting-sources")


def notices(person: Person) -> list[str]:
    return [action.text for action in person.actions if isinstance(action, Notice) and action.level == "warn"]


@pytest.mark.req("app.driven.trust")
async def test_only_what_was_trusted_is_loaded_and_a_person_knows(tmp_path: Path, project: Path) -> None:
    harness, person = Harness(tmp_path, hello()), Person()
    assert await find_sources(harness, person=person) == "user"
    assert notices(person) == [f"claude starts without what this project has for it: {NEVER}"]
    Trust.usual(harness.environ).allow(project)
    person = Person()
    assert await find_sources(harness, start=1, person=person) is None
    assert notices(person) == []
    (project / ".claude" / "settings.json").write_text('{"hooks": {"Stop": []}}')
    person = Person()
    assert await find_sources(harness, start=2, person=person) == "user"
    [notice] = notices(person)
    assert "it has changed since it was trusted: .claude/settings.json" in notice


@pytest.mark.req("app.driven.trust")
async def test_whoever_chooses_where_settings_come_from_gets_no_more_than_that(tmp_path: Path, project: Path) -> None:
    harness = Harness(tmp_path, hello())
    async with harness.opened(options={"setting_sources": ("project", "local")}) as app:
        await app.submit("go")
    assert harness.claude.given().option("--setting-sources") == ""
    Trust.usual(harness.environ).allow(project)
    async with harness.opened(options={"setting_sources": ("project",)}) as app:
        await app.submit("go")
    assert harness.claude.given(1).option("--setting-sources") == "project"


async def test_where_there_is_nothing_to_load_nobody_is_told(tmp_path: Path) -> None:
    harness, person = Harness(tmp_path, hello()), Person()
    assert await find_sources(harness, person=person) == "user"
    assert notices(person) == []
    (harness.project / "CLAUDE.md").write_text("be nice")
    assert await find_sources(harness, start=1, person=person) == "user"
    assert notices(person) == [f"claude starts without what this project has for it: {NEVER}"]


# -- what is pinned


def write_settings(project: Path) -> None:
    (project / ".claude" / "settings.json").write_text("{}")


def add_agent(project: Path) -> None:
    (project / ".claude" / "agents").mkdir()
    (project / ".claude" / "agents" / "new.md").write_text("x")


def write_servers(project: Path) -> None:
    (project / ".mcp.json").write_text('{"mcpServers": {}}')


def remove_servers(project: Path) -> None:
    (project / ".mcp.json").unlink()


def write_skill(project: Path) -> None:
    """A skill may be called as the folder of copies is."""
    (project / ".claude" / "skills" / "worktrees" / "SKILL.md").write_text("how not to")


@pytest.mark.req("app.driven.trust")
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (write_settings, ".claude/settings.json"),
        (add_agent, ".claude/agents/new.md"),
        (write_servers, ".mcp.json"),
        (remove_servers, ".mcp.json"),
        (write_skill, ".claude/skills/worktrees/SKILL.md"),
    ],
)
def test_a_change_has_to_be_trusted_again(project: Path, trust: Trust, change: Callable[[Path], None], named: str) -> None:
    assert trust.check_agents(project) == NEVER
    trust.allow(project)
    assert trust.check_agents(project) == ""
    change(project)
    assert trust.check_agents(project) == f"it has changed since it was trusted: {named}; look at it, then `serai trust`"
    trust.allow(project)
    assert trust.check_agents(project) == ""
    assert trust.withdraw(project)
    assert trust.check_agents(project) == NEVER


@pytest.mark.req("app.driven.trust")
def test_copies_of_the_project_are_no_part_of_it(project: Path, trust: Trust) -> None:
    trust.allow(project)
    (project / ".claude" / "worktrees" / "feature").mkdir(parents=True)
    (project / ".claude" / "worktrees" / "feature" / "x.py").write_text("x")
    assert trust.check_agents(project) == ""


@pytest.mark.req("app.driven.trust")
def test_what_links_lead_to_is_pinned_too(tmp_path: Path, project: Path, trust: Trust) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "hooks").mkdir(parents=True)
    (elsewhere / "hooks" / "run.sh").write_text("true")
    (elsewhere / "one.json").write_text("1")
    (elsewhere / "other").mkdir()
    (project / ".claude" / "hooks").symlink_to(elsewhere / "hooks")
    (project / ".claude" / "one.json").symlink_to(elsewhere / "one.json")
    (project / ".claude" / "missing").symlink_to(elsewhere / "missing")
    (project / ".claude" / "circle").symlink_to(project / ".claude")
    trust.allow(project)
    assert trust.check_agents(project) == ""
    (elsewhere / "hooks" / "run.sh").write_text("false")
    assert ".claude/hooks/run.sh" in trust.check_agents(project)
    (elsewhere / "hooks" / "run.sh").write_text("true")
    assert trust.check_agents(project) == ""
    (elsewhere / "one.json").write_text("2")
    assert ".claude/one.json" in trust.check_agents(project)
    (elsewhere / "one.json").write_text("1")
    (elsewhere / "missing").write_text("here I am")
    assert ".claude/missing" in trust.check_agents(project)
    (elsewhere / "missing").unlink()
    (project / ".claude" / "hooks").unlink()
    (project / ".claude" / "hooks").symlink_to(elsewhere / "other")
    assert ".claude/hooks" in trust.check_agents(project)


@pytest.mark.req("app.driven.trust")
def test_a_folder_that_is_a_link_itself_is_looked_into(tmp_path: Path, trust: Trust) -> None:
    project, dotfiles = tmp_path / "linked", tmp_path / "dotfiles"
    project.mkdir()
    dotfiles.mkdir()
    (dotfiles / "settings.json").write_text("{}")
    (project / ".claude").symlink_to(dotfiles)
    trust.allow(project)
    assert trust.check_agents(project) == ""
    (dotfiles / "settings.json").write_text('{"hooks": {}}')
    assert ".claude/settings.json" in trust.check_agents(project)


def write_many_files(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusting, "_MOST_FILES", 10)
    for number in range(20):
        (project / ".claude" / f"{number}.md").write_text("")


def write_long_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusting, "_MOST", 1000)
    (project / ".claude" / "long").write_bytes(bytes(2000))


def nest_folders(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusting, "_MOST_FILES", 10)
    (project / ".claude" / "/".join(map(str, range(20)))).mkdir(parents=True)


def make_pipe(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(project / ".claude" / "pipe")


@pytest.mark.req("app.driven.trust")
@pytest.mark.parametrize("what", [write_many_files, write_long_file, nest_folders, make_pipe])
def test_what_cannot_be_looked_at_whole_is_never_trusted(
    project: Path, trust: Trust, what: Callable[[Path, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    trust.allow(project)
    what(project, monkeypatch)
    assert trust.check_agents(project) == TOO_MUCH
    trust.allow(project)
    assert trust.check_agents(project) == TOO_MUCH
    assert trust.for_agents(project) is None


@pytest.mark.req("app.driven.trust")
@pytest.mark.parametrize("name", [".mcp.json", ".claude", ".claude/skills"])
def test_what_cannot_be_read_is_never_trusted(name: str) -> None:
    with unprivileged_user.make_folder() as folder:
        (folder / "project" / ".claude" / "skills").mkdir(parents=True)
        (folder / "project" / ".mcp.json").write_text("{}")
        (folder / "project" / name).chmod(0)
        script = "t = trust.Trust.usual(environ); t.allow('project'); print(t.check_agents('project'))"
        assert unprivileged_user.run(folder, script) == f"{TOO_MUCH}\n"


@pytest.mark.req("app.driven.trust")
def test_just_what_a_person_has_seen_is_trusted(project: Path, trust: Trust) -> None:
    seen = trust.for_agents(project)
    (project / ".claude" / "late.json").write_text("{}")
    trust.allow(project, agents=seen)
    assert ".claude/late.json" in trust.check_agents(project)
