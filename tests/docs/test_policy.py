"""docs/policy.md is executed, by `tests.support.doc_pages`: every recipe of its cookbook says what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from serai.limits import Limits
from serai.model.tools import ToolCall
from serai.policy import CallContext, Policy
from serai.policy.decision_store import LOST, ApprovalState
from serai.policy.rules import load_default_rules, read_file, read_toml
from tests.support import doc_pages

PAGE = doc_pages.DOCS / "policy.md"


@pytest.mark.slow
@pytest.mark.req("policy.cli.cookbook")
@pytest.mark.timeout(300)
def test_the_page_about_the_policy_is_true_from_top_to_bottom(tmp_path: Path) -> None:
    env = doc_pages.environment(tmp_path / "home") | {"COLUMNS": "1000"}  # the folder of a test has a long name
    languages = doc_pages.play(PAGE, tmp_path / "work", env)
    assert set(languages) == {"console", "python", "toml"}
    assert read_file(str(tmp_path / "work" / "example.toml")).rules[0].id == "release-notes"
    assert doc_pages.shell("serai policy pending", tmp_path / "work", env) == "nothing waits for an answer\n"


@pytest.mark.req("policy.cli.cookbook")
def test_each_recipe_shows_what_its_rules_decide() -> None:
    _, *recipes = PAGE.read_text().partition("# Cookbook")[2].split("\n### ")
    assert len(recipes) >= 12
    for recipe in recipes:
        title = recipe.partition("\n")[0]
        shown = re.findall(r"^[\w:]+: (?:allowed|denied|a person is asked)$|^[\w ]+: (?:allowed|denied)$", recipe, re.MULTILINE)
        assert shown, title
        assert "$ serai policy test " in recipe, title


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    text = " ".join(PAGE.read_text().split())
    limits = Limits()
    assert (limits.approval, limits.remember, LOST) == (300.0, 1, 86400.0)
    assert "the limit `approval` says (five minutes; an hour at most)" in text
    assert "for a day (the limit `remember`)" in text
    assert "*lost*: for a day it can still be answered" in text


def test_the_states_of_an_approval_are_all_named() -> None:
    [line] = [line for line in (doc_pages.DOCS / "cli.md").read_text().splitlines() if line.startswith("`pending` has ")]
    named = re.findall(r"`([^`]+)`", line.partition("(")[2].partition(")")[0])
    assert set(named) - {"--all"} == set(get_args(ApprovalState))


# -- what recipes must not let through --------------------------------------------------------------------------------------------


def decide(recipe: str, tool: str, cwd: str = "/srv/project", owner: str = "", **arguments: object) -> str:
    """By the rules of a recipe and what Serai ships."""
    found = re.search(rf"^```toml {re.escape(recipe)}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found, recipe
    rules = read_toml(found[1].encode(), recipe) + load_default_rules()
    return (
        Policy(rules).judge(ToolCall(tool, arguments, asker="claude"), CallContext(cwd=cwd, agent="claude", owner=owner)).decision
    )


@pytest.mark.req("policy.cli.cookbook")
@pytest.mark.parametrize(
    "arguments",
    [
        *(
            "--force",
            "-f",
            "-uf",
            "-fu",
            "-vuf origin main",
            "-ufv origin main",
            "origin main -f",
            "--force-with-lease=main",
            "--forc",
        ),
        *("--mirror", "--mir backup", "origin --delete main", "--del origin main", "-d origin main", "-vd origin main"),
        *("origin +main", "origin +main:main", "origin '+main'", "origin :main"),
    ],
)
def test_no_way_of_forcing_a_push_gets_past_its_recipe(arguments: str) -> None:
    for git in ("git push", "git -C repo push", "sh -c 'cd x; exec git push", "git-push", "/usr/lib/git-core/git-push"):
        command = f"{git} {arguments}"
        if git.startswith("sh"):
            command = command.replace("'+main'", "+main") + "'"
        assert decide("force.toml", "bash", command=command) == "deny", command


@pytest.mark.parametrize("command", ["git push", "git push -u origin main", "git push origin HEAD:main", "git push -n -v origin"])
def test_an_ordinary_push_is_not_denied_by_it(command: str) -> None:
    assert decide("force.toml", "bash", command=command) == "ask"


@pytest.mark.req("policy.cli.cookbook")
def test_tests_are_allowed_with_the_arguments_that_are_named_and_no_others() -> None:
    assert {decide("tests.toml", "bash", command=command) for command in ("make test", "pytest", "pytest -x")} == {"allow"}
    for more in ("--basetemp=/home/you", "--junitxml=.bashrc", "-p evil", "-c evil.ini", "/tmp/test_evil.py", "--rootdir=/tmp"):
        for command in (f"pytest {more}", f"pytest -x {more}", f"make test {more}"):
            assert decide("tests.toml", "bash", command=command) == "ask", command


@pytest.mark.req("policy.cli.cookbook")
@pytest.mark.parametrize(
    ("environment", "said"),
    [("prod", "deny"), ("Production", "deny"), ("PROD", "deny"), ("pRod", "ask"), ("eu-prod", "ask"), ("staging", "ask")],
)
def test_production_is_denied_however_it_begins_and_what_is_not_named_is_asked(environment: str, said: str) -> None:
    assert decide("field.toml", "deploy", owner="zot:deployer", environment=environment) == said


def test_what_the_page_says_of_links_case_and_folders_is_so(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("")
    (tmp_path / "soft").symlink_to(".env")
    (tmp_path / "hard").hardlink_to(tmp_path / ".env")
    (tmp_path / "empty").mkdir()
    cwd = str(tmp_path)
    said = {name: decide("secrets.toml", "read", cwd, path=name) for name in (".env", "soft", "hard", ".ENV")}
    assert said == {".env": "deny", "soft": "deny", "hard": "allow", ".ENV": "allow"}
    assert decide("secrets.toml", "grep", cwd, pattern="x", path="empty") == "ask"
    (tmp_path / "real").mkdir()
    (tmp_path / "docs").symlink_to("real")
    assert {decide("folder.toml", "write", cwd, path=f"{name}/x.md", content="") for name in ("docs", "real")} == {"ask"}


@pytest.mark.parametrize(
    "command", ["python -c 'x'", "perl -e x", "node -e x", "awk x", "sed 1e x", "make x", "./x.sh", "sh x.sh", "./copy-of-rm -r x"]
)
def test_what_the_page_calls_opaque_is_not_found_by_a_rule(command: str) -> None:
    assert decide("rm.toml", "bash", command="rm -r x") == "deny"
    assert decide("rm.toml", "bash", command=command) == "ask"  # by the mode, as all that no rule decides
