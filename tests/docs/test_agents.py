"""docs/agents.md is executed, by `tests.support.doc_pages`; what needs Claude Code itself is written and compiled."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from serai.agents.drivers.mock.script import MockStep
from tests.support import doc_pages

PAGE = doc_pages.DOCS / "agents.md"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_page_about_agents_is_true_from_top_to_bottom(tmp_path: Path) -> None:
    languages = doc_pages.play(PAGE, tmp_path / "work", doc_pages.environment(tmp_path / "home"))
    assert set(languages) == {"console", "python", "toml"}
    program = tmp_path / "work" / "claude.py"
    compile(program.read_text(), str(program), "exec")


def test_the_page_has_every_step_of_a_script_and_its_members() -> None:
    text = PAGE.read_text()
    for step in MockStep.__subclasses__():
        assert f"`{msgspec.inspect.type_info(step).tag}{{" in text, step  # type: ignore[attr-defined]
