"""Which rules are in force, and what a project may say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serai.errors import BadSettings
from serai.host.trust import Trust
from serai.policy.rules import Rules, load_rules

ALLOW = '[[rule]]\nid = "project.allow"\ndecide = "allow"\ntool = "bash"\n'
NARROW = '[[rule]]\nid = "project.deny"\ndecide = "deny"\ntool = "a"\n[[rule]]\nid = "project.ask"\ndecide = "ask"\ntool = "b"\n'


@pytest.fixture
def harness(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".serai").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    return tmp_path


def rules_of(harness: Path) -> Path:
    return harness / "project" / ".serai" / "policy.toml"


def environ(harness: Path) -> dict[str, str]:
    return {"SERAI_HOME": str(harness / "home")}


def load(harness: Path, **keys: object) -> Rules:
    """As the command line does it."""
    trust = Trust.usual(environ(harness))
    project = str(harness / "project")
    return load_rules(project, untrusted=lambda content: trust.check_policy(project, content), environ=environ(harness), **keys)  # type: ignore[arg-type]


def ids(rules: Rules) -> list[str]:
    return [rule.id for rule in rules.rules]


def test_the_command_line_comes_first_then_files_then_the_project_then_the_person_then_what_is_shipped(harness: Path) -> None:
    (harness / "one.toml").write_text('[[rule]]\nid = "file"\ndecide = "ask"\n')
    rules_of(harness).write_text(NARROW)
    (harness / "home" / "policy.toml").write_text('mode = "auto"\n[[rule]]\nid = "person"\ndecide = "ask"\n')
    found = load(harness, files=[str(harness / "one.toml")], allow=["bash:ls"])
    assert ids(found) == ["--allow bash:ls", "file", "project.deny", "project.ask", "person", "default.look-around"]
    assert found.mode == "auto"
    assert load(harness, mode="skip").mode == "skip"
    assert [rule.source for rule in found.rules[1:3]] == [str(harness / "one.toml"), str(rules_of(harness))]


def test_without_any_file_there_is_what_is_shipped(harness: Path) -> None:
    assert (ids(load(harness)), load(harness).mode, load(harness).notes) == (["default.look-around"], "manual", ())


@pytest.mark.req("policy.rule.project")
def test_what_a_project_allows_counts_once_it_is_trusted_and_what_it_denies_or_asks_always(harness: Path) -> None:
    rules_of(harness).write_text(ALLOW + NARROW)
    narrow = ["project.deny", "project.ask", "default.look-around"]
    found = load(harness)
    assert ids(found) == narrow
    [note] = found.notes
    why = "they were never trusted; look at them, then `serai trust`"
    assert note == f"{rules_of(harness)}: 1 of its rules allow something and do not count: {why}"
    Trust.usual(environ(harness)).allow(harness / "project")
    assert ids(load(harness)) == ["project.allow", *narrow]
    assert load(harness).notes == ()

    rules_of(harness).write_text(ALLOW + NARROW + "# one more\n")
    assert ids(load(harness)) == narrow
    assert "they have changed since they were trusted" in load(harness).notes[0]
    assert (
        load_rules(str(harness / "project"), environ=environ(harness)).select("allow")[0].id == "default.look-around"
    )  # nobody was asked


@pytest.mark.req("policy.rule.project")
@pytest.mark.parametrize("said", ['mode = "auto"\n', 'mode = "skip"\n', 'profiles = { x = "auto" }\n', 'mode = "manual"\n'])
def test_a_project_never_chooses_a_mode_also_when_it_is_trusted(harness: Path, said: str) -> None:
    rules_of(harness).write_text(said)
    (harness / "home" / "policy.toml").write_text('mode = "auto"\nprofiles = { y = "skip" }\n')
    Trust.usual(environ(harness)).allow(harness / "project")
    found = load(harness)
    assert (found.mode, found.profiles) == ("auto", {"y": "skip"})
    assert bool(found.notes) is ("manual" not in said)


@pytest.mark.req("policy.rule.project")
def test_what_is_checked_is_what_was_read(harness: Path) -> None:
    """Whoever changes the file between the two is not trusted."""
    rules_of(harness).write_text(ALLOW)
    trust = Trust.usual(environ(harness))
    trust.allow(harness / "project")
    assert trust.check_policy(harness / "project", ALLOW.encode()) == ""
    assert trust.check_policy(harness / "project", b"other").startswith("they have changed")


@pytest.mark.req("policy.rule.flags")
def test_what_is_named_has_to_be_there_and_right(harness: Path) -> None:
    with pytest.raises(BadSettings, match="cannot be read"):
        load(harness, files=[str(harness / "gone.toml")])
    with pytest.raises(BadSettings, match="a mode is manual, auto, skip, not 'yolo'"):
        load(harness, mode="yolo")


def test_rules_that_cannot_be_looked_at_are_not_taken_for_none(harness: Path) -> None:
    """A rule against something must not go away with its file."""
    os.mkfifo(rules_of(harness))
    with pytest.raises(BadSettings, match="it is not a file"):
        load(harness)
    rules_of(harness).unlink()
    (harness / "project" / ".serai").rmdir()
    (harness / "project" / ".serai").write_text("a file where a folder should be")
    with pytest.raises(BadSettings, match="Not a directory"):
        load(harness)
    (harness / "project" / ".serai").unlink()
    (harness / "home" / "policy.toml").write_text("no toml")
    with pytest.raises(BadSettings, match="it is no TOML"):
        load(harness)
