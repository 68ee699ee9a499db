"""Writes TOML values, each on one line. `tomllib` reads them.

Characters that cannot be seen are written as escapes, so that what a person reads in a file is what the file says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from serai.plain_text import escape_line, is_visible

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SHORT = str.maketrans({'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"})
_DOTS = 20  # in a text: readers of plugin settings refuse a line with more than 50


def to_toml_key(name: str, *, few_dots: bool = False) -> str:
    """Returns a key, in quotes where it needs them."""
    return name if _BARE.fullmatch(name) else to_toml(name, few_dots=few_dots)


def to_toml_pairs(table: Mapping[str, Any]) -> str:
    """Returns the lines of a table without its header."""
    return "".join(f"{to_toml_key(key)} = {to_toml(value)}\n" for key, value in table.items())


def to_toml(value: Any, *, few_dots: bool = False) -> str:
    """Returns a JSON value as TOML; of a text with many dots, `few_dots` escapes them. Raises `ValueError` for null."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            text = escape_line(value.translate(_SHORT), spell_toml, is_visible)
            return f'"{text.replace(".", spell_toml(".")) if few_dots and text.count(".") > _DOTS else text}"'
        case int() | float():  # TOML's words too: `1.0`, `1e-07`, `inf`
            return repr(value)
        case Mapping():
            pairs = ((to_toml_key(key, few_dots=few_dots), to_toml(item, few_dots=few_dots)) for key, item in value.items())
            inside = ", ".join(f"{key} = {item}" for key, item in pairs)
            return f"{{ {inside} }}" if inside else "{}"
        case list() | tuple():
            return f"[{', '.join(to_toml(item, few_dots=few_dots) for item in value)}]"
    raise ValueError("TOML has no null: leave the key out")


def spell_toml(character: str) -> str:
    """The escape that stands for a character."""
    code = ord(character)
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
