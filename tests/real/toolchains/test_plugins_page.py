"""docs/plugins.md to its end: with what needs a tool chain (tests/docs/test_plugins.py has the rest)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import doc_pages


@pytest.mark.timeout(900)
def test_the_page_about_plugins_is_true_from_top_to_bottom(tmp_path: Path, path: str) -> None:
    env = doc_pages.environment(tmp_path / "home") | {"EXAMPLES": str(doc_pages.DOCS.parent / "examples"), "PATH": path}
    languages = doc_pages.play(doc_pages.DOCS / "plugins.md", tmp_path / "work", env)
    assert set(languages) == {"console", "python", "toml"}
