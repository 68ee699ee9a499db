"""docs/getting-started.md and docs/embedding.md are executed, by `tests.support.doc_pages`; docs/concepts.md has the words of
the design.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import doc_pages


@pytest.mark.req("app.docs.pages")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", ["getting-started", "embedding"])
def test_the_page_is_true_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    languages = doc_pages.play(doc_pages.DOCS / f"{page}.md", tmp_path / "work", doc_pages.environment(tmp_path / "home"))
    assert {"console", "python"} <= set(languages)


@pytest.mark.req("app.docs.pages")
def test_the_words_are_all_explained_and_their_pages_are_there() -> None:
    text = (doc_pages.DOCS / "concepts.md").read_text()
    words = set(re.findall(r"\*\*(\w[\w ]*)\*\*", text))
    assert {
        "guest",
        "dialect",
        "contribution",
        "host",
        "agent",
        "session",
        "turn",
        "approval",
        "policy",
        "guard",
        "surface",
    } <= words
    assert {"box", "porter", "keeper", "hook", "recording", "host services", "question", "decision"} <= words
    for link in re.findall(r"\]\(([\w./-]+\.md)", text):
        assert (doc_pages.DOCS / link).is_file(), link
