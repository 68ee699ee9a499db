"""Pages of the documents that are executed: files are written, commands run, and what they print is what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from serai.limits import KIB, MIB

__all__ = ["DOCS", "environment", "format_amount", "play", "read_rows", "shell"]

DOCS = Path(__file__).parents[2] / "docs"
_ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|", re.MULTILINE)
_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Command(NamedTuple):
    text: str
    printed: str


def environment(home: Path) -> dict[str, str]:
    """Of somebody who has just installed Serai, as it is beside this page: our programs first, a home with nothing in it."""
    home.mkdir()
    env = {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}", "HOME": str(home)}
    return env | {"PYTHONPATH": str(DOCS.parent / "src"), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}


def play(page: Path, place: Path, env: Mapping[str, str], *, until: str = "") -> list[str]:
    """Do in `place` what the page says, from top to bottom or to that heading. The languages of its blocks."""
    place.mkdir()
    languages: list[str] = []
    text = page.read_text()
    assert until in text
    for language, file, body in _BLOCK.findall(text.partition(until)[0] if until else text):
        languages.append(language)
        if language == "console":
            for command in _commands(body):
                printed = shell(command.text, place, env)
                assert re.fullmatch(_pattern(command.printed), printed), f"$ {command.text}\n{printed}"
        else:
            assert file, f"a block that nobody runs:\n{body}"
            path = Path(env["HOME"], file[2:]) if file.startswith("~/") else place / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body)
    return languages


def shell(command: str, place: Path, env: Mapping[str, str]) -> str:
    """What a command prints, on either stream."""
    ran = subprocess.run(
        ["sh", "-c", command],
        cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    return ran.stdout


def _commands(block: str) -> list[Command]:
    """Each `$ command` and what stands below it."""
    return [Command(*part.partition("\n")[::2]) for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]


def _pattern(printed: str) -> str:
    """A line of `…` alone stands for any lines, `…` in a line for any text in it."""
    lines = printed.splitlines()
    return "".join("(?:[^\n]*\n)*" if line == "…" else re.escape(line).replace("…", "[^\n]*") + "\n" for line in lines)


def read_rows(page: Path) -> list[tuple[str, str]]:
    """Of all tables: the seed's name and ours."""
    return _ROW.findall(page.read_text())


def format_amount(value: object, unit: str) -> str:
    assert isinstance(value, int | float)
    if unit == "bytes":
        return f"{value // MIB:g} MiB" if value >= MIB else f"{value // KIB:g} KiB"
    return {"seconds": f"{value:g} s", "days": f"{value:g} days"}.get(unit, f"{value:g}")
