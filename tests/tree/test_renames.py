"""docs/renames.md says where each module and name of the first tree is now."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def read_words(module: str) -> set[str]:
    base = ROOT / ("" if module.startswith("tests.") else "src/serai") / module.replace(".", "/")
    files = [base.with_suffix(".py"), *base.glob("__init__.py*")]
    return {word for file in files if file.is_file() for word in re.findall(r"\w+", file.read_text())}


def test_each_new_name_is_in_its_module() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (?:`([\w.]+)`)? ?\|(.*)\|$", (ROOT / "docs/renames.md").read_text(), re.MULTILINE)
    assert len(rows) > 500
    for old, new, names in rows:
        assert read_words(new or old), new or old
        for name, renamed, home in re.findall(r"`(\w+)`(?: is `(\w+)`)?(?: in `([\w.]+)`)?", names):
            assert (renamed or name) in read_words(home or new or old), (home or new or old, name)
