"""docs/resident.md is executed, by `tests.support.doc_pages`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import doc_pages


@pytest.mark.slow
@pytest.mark.req("resident.docs.page")
@pytest.mark.timeout(300)
def test_the_page_about_the_resident_is_true_from_top_to_bottom(tmp_path: Path) -> None:
    languages = doc_pages.play(doc_pages.DOCS / "resident.md", tmp_path / "work", doc_pages.environment(tmp_path / "home"))
    assert set(languages) == {"console", "python", "toml"}
