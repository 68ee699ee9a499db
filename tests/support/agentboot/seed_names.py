"""The names that a seed's text of 002 exports, as data: to compare the committed list with. The text itself is not kept here.

`python -m tests.support.agentboot.seed_names` writes `seed_names.toml` anew from the text, where it is at hand.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LIST = HERE / "seed_names.toml"
# Beside the repository, where those who build it have it.
SEEDS = HERE.parents[3] / "shared" / "seeds"

_CONSTANT = re.compile(r"\b((?:EventType|EventKind|OutputFormat|PermissionMode)[A-Z]\w+)\b")


def read_seed() -> str | None:
    """The seed's text, or None where it is not at hand."""
    found = sorted(SEEDS.glob("002_*.txt"))
    return found[0].read_text() if found else None


def read_list() -> dict[str, Any]:
    return tomllib.loads(LIST.read_text())


def parse_exports(seed: str) -> dict[str, Any]:
    """Functions, constants, variables, and of each type its methods, its fields and their JSON names."""
    types: dict[str, dict[str, list[str]]] = {name: {} for name in re.findall(r"^- type (\w+)$", seed, re.MULTILINE)}
    functions = set(re.findall(r"^(?:- )?func ([A-Z]\w*)\b", seed, re.MULTILINE))
    for owner, name in re.findall(r"^(?:- )?func \((?:\w+ )?\*?(\w+)\) ([A-Z]\w*)", seed, re.MULTILINE):
        _add(types[owner], "methods", name)
    for owner, kind, body in re.findall(r"^type (\w+) (struct|interface) \{\n(.*?)^\}", seed, re.MULTILINE | re.DOTALL):
        for line in body.splitlines():
            if kind == "interface":
                if found := re.match(r"([A-Z]\w*)\(", line):
                    _add(types[owner], "methods", found[1])
            elif line.strip() in types:
                _add(types[owner], "embeds", line.strip())
            elif found := re.match(r"([A-Z]\w*) \S+.*?(?:`json:\"(\w+)(,omitempty)?\"`.*)?$", line):
                _add(types[owner], "json" if found[2] else "fields", found[2] or found[1])
                if found[3]:
                    _add(types[owner], "optional", found[2])
    constants = [line for line in seed.splitlines() if line.startswith("const (")]
    variables = [name for line in seed.splitlines() if line.startswith("var (") for name in re.findall(r"\b(Err\w+) = ", line)]
    return {
        "functions": sorted(functions),
        "constants": sorted({name for line in constants for name in _CONSTANT.findall(line)}),
        "variables": sorted(set(variables)),
        "types": types,
    }


def _add(type: dict[str, list[str]], what: str, name: str) -> None:
    names = type.setdefault(what, [])
    if name not in names:
        names.append(name)


def to_snake(name: str) -> str:
    """The seed's spelling in Python's."""
    if name == "String":
        return "__str__"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _write(found: dict[str, Any]) -> str:
    def row(key: str, names: list[str]) -> str:
        quoted = [f'"{name}"' for name in names]
        short = f"{key} = [{', '.join(quoted)}]"
        if len(short) <= 120:
            return short
        lines, line = [], "   "
        for one in quoted:
            if len(line) + len(one) > 115:
                lines.append(line)
                line = "   "
            line += f" {one},"
        return "\n".join([f"{key} = [", *lines, line, "]"])

    parts = [
        "# What seed 002 exports: names, and the JSON names of its wire types.",
        "# Made by `python -m tests.support.agentboot.seed_names`.",
        "# `optional` are those of `json` that are left out when they are empty; `fields` have no JSON names.",
        "",
        *(row(key, found[key]) for key in ("functions", "constants", "variables")),
    ]
    for name, about in sorted(found["types"].items()):
        parts += ["", f"[types.{name}]", *(row(key, about[key]) for key in sorted(about))]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    seed = read_seed()
    if seed is None:
        raise SystemExit(f"the seed is not in {SEEDS}")
    LIST.write_text(_write(parse_exports(seed)))
