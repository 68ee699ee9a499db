"""Values that anybody may have written, as text that a terminal may show. What is not of the wanted type reads as nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["Given", "counted", "cut", "one_line", "plain", "shown"]

# What terminals obey and nobody reads: CSI, OSC and its kin (also without an end), the short ones; then what is left of control
# characters, and what turns the direction of writing.
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\n\x9c]*(?:\x07|\x1b\\|\x9c)?|\x1b[ -/]*[0-~]?"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_RETURN = re.compile(r"\r+\n?")
_WIDE = 120  # characters of one value in a line
_HUGE = 1e15


def plain(text: str) -> str:
    """Without escapes and control characters; newlines and tabs stay. A lone carriage return begins a line."""
    return _CONTROL.sub("", _RETURN.sub("\n", _ESCAPE.sub("", text)))


def cut(text: str, most: int = _WIDE) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def one_line(text: str, most: int = _WIDE) -> str:
    """All in one line, and not too long a one."""
    return cut(" ".join(plain(text).split()), most)


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def shown(value: Any, most: int = _WIDE) -> str:
    """Any JSON value in a line."""
    if isinstance(value, str):
        return one_line(value, most)
    try:
        return one_line(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str), most)
    except (ValueError, RecursionError):
        return "…"


class Given:
    """The members of an object that should be one."""

    def __init__(self, value: Any) -> None:
        self.members: Mapping[str, Any] = value if isinstance(value, Mapping) else {}

    def text(self, *names: str) -> str:
        """The first of them that is a text and says something, as it is."""
        return next((value for name in names if isinstance(value := self.members.get(name), str) and value), "")

    def line(self, *names: str, most: int = _WIDE) -> str:
        """The same, in a line."""
        return one_line(self.text(*names), most)

    def number(self, *names: str) -> float | None:
        """The first of them that is a number, of a size that can be."""
        for value in (self.members.get(name) for name in names):
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _HUGE:
                return value
        return None

    def whole(self, *names: str) -> int | None:
        number = self.number(*names)
        return None if number is None else int(number)

    def items(self, name: str) -> list[Any]:
        value = self.members.get(name)
        return list(value) if isinstance(value, list | tuple) else []

    def inner(self, name: str) -> Given:
        return Given(self.members.get(name))

    def true(self, name: str) -> bool:
        return self.members.get(name) is True
