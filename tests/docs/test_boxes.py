"""docs/boxes.md is executed, by `tests.support.doc_pages`; its table of limits is that of the code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from serai.limits import Limits
from tests.support import doc_pages
from tests.support.doc_pages import format_amount

PAGE = doc_pages.DOCS / "boxes.md"
USUAL = {"answers", "boxes.db", "boxes.db-shm", "boxes.db-wal", "logs"}


class Reader:
    """Somebody who does what the page says, with a home and a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.env = doc_pages.environment(folder / "home")
        self.place = folder / "work"
        self.boxes = folder / "home" / ".local" / "state" / "serai" / "boxes"

    def on_record(self) -> list[str]:
        """The boxes there are, also those that are gone and tell why."""
        printed = doc_pages.shell("serai box list --all --json", self.place, self.env)
        return [json.loads(line)["generation"] for line in printed.splitlines() if line.startswith("{")]

    def on_disk(self) -> list[str]:
        """Folders, answers and logs of boxes."""
        return [str(path) for path in self.boxes.glob("*") if path.name not in USUAL] + list(map(str, self.boxes.glob("*/*")))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    if left := reader.on_record():  # the page was wrong half-way: a kept box would stay for ever
        doc_pages.shell(f"serai box destroy {' '.join(left)}", reader.place, reader.env)


@pytest.mark.slow
@pytest.mark.needs("jq", "namespaces")
@pytest.mark.req("hooks.docs.snippets")
@pytest.mark.timeout(300)
def test_the_page_about_boxes_is_true_from_top_to_bottom_and_leaves_nothing(reader: Reader) -> None:
    languages = doc_pages.play(PAGE, reader.place, reader.env)
    assert set(languages) == {"console", "python", "sh", "toml"}
    assert (reader.on_record(), reader.on_disk()) == ([], [])


def test_the_table_of_limits_of_boxes_is_current() -> None:
    wanted = [
        f"| `{name}` | {format_amount(default, unit)} | {why} |"
        for name, default, unit, why in Limits.explain()
        if name.startswith(("hook_", "box_", "max_inject_"))
    ]
    assert [line for line in PAGE.read_text().splitlines() if line.startswith("| `") and line in wanted] == wanted
