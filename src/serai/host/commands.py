"""What a person types: `/name args` is a command, everything else is for the model (spec zot 4.2)."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Typed", "parse"]

_COMMAND = re.compile(r"/([A-Za-z0-9_-]+)(?:\s+(.*))?", re.DOTALL)


class Typed(NamedTuple):
    """A command as it was typed: its inner white space is kept."""

    name: str
    args: str


def parse(text: str) -> Typed | None:
    """The command in a line, or None: a name with any other character cannot be typed, such a line goes to the model."""
    match = _COMMAND.fullmatch(text.strip())
    return None if match is None else Typed(match[1], (match[2] or "").strip())
