"""docs/sessions.md is executed, by `tests.support.doc_pages`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import doc_pages

PAGE = doc_pages.DOCS / "sessions.md"


@pytest.mark.req("store.cli.docs")
@pytest.mark.timeout(300)
def test_the_page_about_sessions_is_true_from_top_to_bottom(tmp_path: Path) -> None:
    languages = doc_pages.play(PAGE, tmp_path / "work", doc_pages.environment(tmp_path / "home"))
    assert set(languages) == {"console", "python"}


@pytest.mark.req("store.cli.docs")
def test_the_page_says_what_an_export_does_to_a_terminal_and_to_a_pipe() -> None:
    text = " ".join(PAGE.read_text().split())
    assert "nothing of it acts on your terminal" not in text
    assert "`serai session export | cat` and `cat talk.md` do not spell it out" in text
    assert "a pipe or a device of that name is written to with `--force`" in text
