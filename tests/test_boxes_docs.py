"""docs/boxes.md is executed, by `tests.pages`; its table of limits is that of the code."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from serai.limits import Limits
from tests import pages
from tests.boxes.houses import control_groups
from tests.test_docs import amount

PAGE = pages.DOCS / "boxes.md"


class Reader:
    """Somebody who reads the page, with a home and a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.env = pages.environment(folder / "home")
        self.place = folder / "work"
        self.boxes = folder / "home" / ".local" / "state" / "serai" / "boxes"

    def left(self) -> list[str]:
        """What is left of boxes: their ids, also of those that are gone and tell why, and their folders and control groups."""
        printed = pages.shell("serai box list --all --json", self.place, self.env).splitlines()
        folders = [name for name in os.listdir(self.boxes) if not name.startswith("boxes.db") and name != "logs"]
        return [json.loads(line)["box_id"] for line in printed] + folders + [path for name in folders for path in control_groups(name)]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    if left := [name for name in reader.left() if "/" not in name]:  # the page failed half-way: a kept box would stay for ever
        pages.shell(f"serai box destroy {' '.join(left)}", reader.place, reader.env)


@pytest.mark.timeout(300)
def test_the_page_about_boxes_is_true_from_top_to_bottom_and_leaves_nothing(reader: Reader) -> None:
    languages = pages.play(PAGE, reader.place, reader.env)
    assert set(languages) == {"console", "python", "sh", "toml"}
    assert reader.left() == []


def test_the_table_of_limits_of_boxes_is_current() -> None:
    wanted = [
        f"| `{name}` | {amount(default, unit)} | {why} |"
        for name, default, unit, why in Limits.explain()
        if name.startswith(("hook_", "box_", "max_inject_"))
    ]
    assert [line for line in PAGE.read_text().splitlines() if line in wanted] == wanted
