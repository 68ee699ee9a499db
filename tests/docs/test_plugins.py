"""docs/plugins.md is executed, by `tests.support.doc_pages`; what needs a tool chain is in the group `toolchains`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import doc_pages

PAGE = doc_pages.DOCS / "plugins.md"
AUTHORS = "## Yours, in Python"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_page_about_plugins_is_true_up_to_what_needs_a_tool_chain(tmp_path: Path) -> None:
    env = doc_pages.environment(tmp_path / "home") | {"EXAMPLES": str(doc_pages.DOCS.parent / "examples")}
    languages = doc_pages.play(PAGE, tmp_path / "work", env, until=AUTHORS)
    assert set(languages) == {"console", "toml"}
