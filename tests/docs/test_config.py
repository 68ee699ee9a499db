"""docs/config.md is executed, by `tests.support.doc_pages`, and names every key, group and limit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from serai.app.config import LOWERED, PROJECT_MAY
from serai.host.guest_settings import GROUPS
from tests.support import doc_pages

PAGE = doc_pages.DOCS / "config.md"


@pytest.mark.req("app.config.page")
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_page_about_settings_is_true_from_top_to_bottom(tmp_path: Path) -> None:
    env = doc_pages.environment(tmp_path / "home") | {"COLUMNS": "1000"}
    assert set(doc_pages.play(PAGE, tmp_path / "work", env)) == {"console", "python", "toml"}


def find_names(line: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", line))


@pytest.mark.req("app.config.page")
def test_the_table_says_of_every_key_what_a_project_may_do() -> None:
    words = {"never": "never", "trusted": "once trusted", "narrower": "to narrow"}
    rows = re.findall(r"^\| (·? ?`.*?) \|.*\| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    said = {}
    for row, may in rows:
        tables = {"`[limits]`": "limits.*", "`[guests] homes`": "guests.*", "`[boxes]`": "boxes.*", "`[plugins]`": "plugins.*"}
        tables["`[feature.plugins] enabled`"] = "feature.*.enabled"
        table = tables.get(row)
        of, _, keys = row.partition("[agents.claude] ") if "[agents.claude]" in row else ("", "", row)
        for key in [table] if table else re.findall(r"`?([a-z_]+)`", keys):
            name = f"guest.*.{key}" + (".*" if key == "limits" else "") if keys.startswith("·") else key
            said[f"agents.*.{name}" if of else name] = may
    assert set(said) == set(PROJECT_MAY)
    for key, may in PROJECT_MAY.items():
        assert said[key].startswith(words[may.when]), key


def test_the_groups_and_limits_on_the_page_are_those_of_the_code() -> None:
    text = " ".join(PAGE.read_text().split())
    assert find_names(text.partition("Groups of host services are ")[2].partition(".")[0]) == set(GROUPS)
    assert find_names(text.partition("how long it takes: ")[2].partition(".")[0]) == LOWERED
