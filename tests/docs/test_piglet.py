"""docs/piglet.md is executed, by `tests.support.doc_pages`, and names every correction and every group of host services."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.requirements import manifest
from tests.support import doc_pages

PAGE = doc_pages.DOCS / "piglet.md"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_page_about_piglet_is_true_from_top_to_bottom(tmp_path: Path) -> None:
    env = doc_pages.environment(tmp_path / "home") | {"COLUMNS": "1000"}
    assert set(doc_pages.play(PAGE, tmp_path / "work", env)) == {"console", "python", "sh", "toml", "yaml"}


def test_the_table_has_a_row_for_every_correction() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    fixes = [id for id in (requirement.id for requirement in manifest.load_all()) if id.startswith("piglet.fix.")]
    assert [f"piglet.fix.{int(number):02}" for number, *_ in rows] == fixes
    assert all(len(text) < 120 for _, *texts in rows for text in texts)
