"""docs/extensions.md is executed, by `tests.support.doc_pages`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import doc_pages


@pytest.mark.slow
@pytest.mark.req("sdk.docs.snippets")
@pytest.mark.timeout(300)
def test_the_page_for_authors_is_true_from_top_to_bottom(tmp_path: Path) -> None:
    env = doc_pages.environment(tmp_path / "home")
    languages = doc_pages.play(doc_pages.DOCS / "extensions.md", tmp_path / "work", env | {"SERAI_HOME": env["HOME"]})
    assert set(languages) == {"console", "python", "json", "yaml"}
