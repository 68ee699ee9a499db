"""What a person types: `/name args` is a command, everything else is for the model (spec zot 4.2)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Typed", "parse"]

_COMMAND = re.compile(r"/([A-Za-z0-9_-]+)(?:\s+(.*))?", re.DOTALL)
_WORD = re.compile(r"/(\S+)(?:\s+(.*))?", re.DOTALL)


class Typed(NamedTuple):
    """A command as it was typed: its inner white space is kept."""

    name: str
    args: str


def parse(text: str, known: Callable[[str], bool] = lambda _name: False) -> Typed | None:
    """The command in a line, or None: such a line goes to the model, as one that begins with a path does.

    A name with another character is one only if it is `known`: in some dialects a command may have such a name (spec piglet 5.2).
    """
    line = text.strip()
    match = _COMMAND.fullmatch(line)
    if match is None and (match := _WORD.fullmatch(line)) is not None and not known(match[1]):
        return None
    return None if match is None else Typed(match[1], (match[2] or "").strip())
