"""docs/plugins.md to its end: with what needs a tool chain (tests/test_plugin_docs.py has the rest)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import pages


@pytest.mark.timeout(900)
def test_the_page_about_plugins_is_true_from_top_to_bottom(tmp_path: Path, path: str) -> None:
    env = pages.environment(tmp_path / "home") | {"EXAMPLES": str(pages.DOCS.parent / "examples"), "PATH": path}
    languages = pages.play(pages.DOCS / "plugins.md", tmp_path / "work", env)
    assert set(languages) == {"console", "python", "toml"}
