"""docs/policy.md is executed, by `tests.pages`: every recipe of its cookbook says what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from serai.limits import Limits
from serai.policy.approvals import LOST, State
from serai.policy.rules import read_file
from tests import pages

PAGE = pages.DOCS / "policy.md"


@pytest.mark.req("policy.cli.cookbook")
@pytest.mark.timeout(300)
def test_the_page_about_the_policy_is_true_from_top_to_bottom(tmp_path: Path) -> None:
    env = pages.environment(tmp_path / "home")
    languages = pages.play(PAGE, tmp_path / "work", env)
    assert set(languages) == {"console", "python", "toml"}
    assert read_file(str(tmp_path / "work" / "example.toml")).rules[0].id == "release-notes"
    assert pages.shell("serai policy pending", tmp_path / "work", env) == "nothing waits for an answer\n"


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
    [line] = [line for line in (pages.DOCS / "cli.md").read_text().splitlines() if line.startswith("`pending` has ")]
    named = re.findall(r"`([^`]+)`", line.partition("(")[2].partition(")")[0])
    assert set(named) - {"--all"} == set(get_args(State))
