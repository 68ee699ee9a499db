"""What each contract test compares: the texts that the program gives today, by the file below `data` that holds the agreed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.contract import api, disk, helptext, jsonkeys, settings, statuses
from tests.contract.place import DATA, Place
from tests.contract.program import Program

Table = dict[str, list[str]]


def read_agreed(name: str) -> str:
    """The text of a file below `data`; empty when there is none."""
    path = DATA / name
    return path.read_text() if path.exists() else ""


def read_help_texts(program: Program, root: Path) -> dict[str, str]:
    pages = helptext.read_pages(Place(program, root))
    return {f"help/{command.replace(' ', '_')}.txt": page for command, page in pages.items()}


def read_api_text() -> str:
    return _join_lines(api.list_lines())


def read_config_text(program: Program, root: Path) -> str:
    return _join_lines(settings.list_config_keys(Place(program, root)))


def read_entry_text(program: Program, root: Path) -> str:
    return _join_lines(settings.list_entry_points(Place(program, root)))


def read_disk_texts(program: Program, root: Path) -> dict[str, str]:
    return {f"disk/expected/{name}": text for name, text in disk.iter_outputs(program, root)}


def read_json_keys(program: Program, root: Path) -> Table:
    ran = jsonkeys.iter_scenario(Place(program, root / "new"), disk.copy_place(program, root / "old"))
    return {name: jsonkeys.list_keys(name, one) for name, one in ran}


def read_status_table(program: Program, root: Path) -> dict[str, int]:
    place = Place(program, root)
    return {name: ran.status for name, ran in (*statuses.iter_box_statuses(place), *statuses.iter_statuses(place))}


def format_toml(table: Mapping[str, Sequence[str] | int]) -> str:
    """The table as TOML with sorted keys, one item of a list per line."""
    return "\n".join(f'"{name}" = {_format_value(value)}' for name, value in sorted(table.items())) + "\n"


def _format_value(value: Sequence[str] | int) -> str:
    if isinstance(value, int):
        return str(value)
    return "[\n" + "".join(f"  '{item}',\n" for item in value) + "]"


def _join_lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
