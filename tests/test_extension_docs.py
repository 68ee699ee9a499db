"""docs/extensions.md is executed: its files are written, its commands run, and what they print is what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "extensions.md"
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Command(NamedTuple):
    text: str
    printed: str


def commands(block: str) -> list[Command]:
    """Each `$ command` and what stands below it."""
    return [Command(*part.partition("\n")[::2]) for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]


def pattern(printed: str) -> str:
    """A line of `…` alone stands for any lines, `…` in a line for any text in it."""
    lines = printed.splitlines()
    return "".join("(?:[^\n]*\n)*" if line == "…" else re.escape(line).replace("…", "[^\n]*") + "\n" for line in lines)


@pytest.mark.req("sdk.docs.snippets")
@pytest.mark.timeout(300)
def test_the_page_for_authors_is_true_from_top_to_bottom(tmp_path: Path) -> None:
    here = os.path.dirname(sys.executable)
    env = {"PATH": f"{here}:{os.environ['PATH']}", "HOME": str(tmp_path / "home"), "SERAI_HOME": str(tmp_path / "home")}
    env |= {"NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}
    place = tmp_path / "work"
    place.mkdir()
    kinds: list[str] = []
    for language, file, body in BLOCK.findall(PAGE.read_text()):
        kinds.append(language)
        if language == "console":
            for command in commands(body):
                ran = subprocess.run(
                    ["sh", "-c", command.text],
                    cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
                )  # fmt: skip
                assert re.fullmatch(pattern(command.printed), ran.stdout), f"$ {command.text}\n{ran.stdout}"
        else:
            assert file, f"a block that nobody runs:\n{body}"
            (place / file).parent.mkdir(exist_ok=True)
            (place / file).write_text(body)
    assert set(kinds) == {"console", "python", "json"}
