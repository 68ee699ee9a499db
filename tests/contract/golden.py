"""What each contract test compares: the texts that the program gives today, by the file below `data` that holds the agreed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.contract import api, disk, helptext, jsonkeys, settings, statuses
from tests.contract.place import DATA, Place
from tests.contract.program import Program

__all__ = ["agreed", "api_text", "config_text", "disk_texts", "entry_text", "help_texts", "json_keys", "status_table", "toml"]

Table = dict[str, list[str]]


def agreed(name: str) -> str:
    """The text of a file below `data`; empty when there is none."""
    path = DATA / name
    return path.read_text() if path.exists() else ""


def help_texts(program: Program, root: Path) -> dict[str, str]:
    pages = helptext.pages(Place(program, root))
    return {f"help/{command.replace(' ', '_')}.txt": page for command, page in pages.items()}


def api_text() -> str:
    return _text(api.lines())


def config_text(program: Program, root: Path) -> str:
    return _text(settings.config_keys(Place(program, root)))


def entry_text(program: Program, root: Path) -> str:
    return _text(settings.entry_points(Place(program, root)))


def disk_texts(program: Program, root: Path) -> dict[str, str]:
    return {f"disk/expected/{name}": text for name, text in disk.outputs(program, root)}


def json_keys(program: Program, root: Path) -> Table:
    ran = jsonkeys.scenario(Place(program, root / "new"), disk.copy(program, root / "old"))
    return {name: jsonkeys.keys(name, one) for name, one in ran}


def status_table(program: Program, root: Path) -> dict[str, int]:
    place = Place(program, root)
    return {name: ran.status for name, ran in (*statuses.in_a_box(place), *statuses.statuses(place))}


def toml(table: Mapping[str, Sequence[str] | int]) -> str:
    """The table as TOML with sorted keys, one item of a list per line."""
    return "\n".join(f'"{name}" = {_value(value)}' for name, value in sorted(table.items())) + "\n"


def _value(value: Sequence[str] | int) -> str:
    if isinstance(value, int):
        return str(value)
    return "[\n" + "".join(f"  '{item}',\n" for item in value) + "]"


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
