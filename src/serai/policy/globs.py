"""Patterns over one text: names of tools and askers, fields of an input.

`*` stands for any characters, `?` for one, a backslash takes the next character as it is. The whole text has to match, upper and
lower case apart. Matching takes time in proportion to the text, whatever the pattern (the text is the model's).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

__all__ = ["escaped", "glob", "joined", "pieces", "source"]


def glob(pattern: str) -> re.Pattern[str]:
    """Compiled, for `fullmatch`."""
    return re.compile(source(pattern), re.DOTALL)


def source(pattern: str, one: str = ".") -> str:
    """As a regular expression; `one` is what a `?` stands for, and a `*` for any number of."""
    return joined(pieces(pattern), one)


def joined(signs: Iterable[tuple[str, bool]], one: str = ".") -> str:
    """The same of characters of which somebody knows already whether they are plain."""
    parts = [""]
    for char, plain in signs:
        if plain or char not in "*?":
            parts[-1] += re.escape(char)
        elif char == "?":
            parts[-1] += one
        else:
            parts.append("")
    first, *rest = parts
    if not rest:
        return first
    # A star takes as little as it can up to the next piece and never gives back (atomic): enough for stars, and linear. The
    # last piece has to be the end.
    middle = "".join(f"(?>{one}*?{part})" for part in rest[:-1] if part)
    return f"{first}{middle}{one}*{rest[-1]}"


def pieces(pattern: str) -> Iterator[tuple[str, bool]]:
    """`(character, whether a backslash made it plain)`."""
    characters = iter(pattern)
    for char in characters:
        if char == "\\":
            yield next(characters, "\\"), True
        else:
            yield char, False


def escaped(text: str) -> str:
    """A pattern that matches this text alone."""
    return re.sub(r"([*?\\])", r"\\\1", text)
