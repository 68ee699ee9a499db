"""The readers under test: each one alone, and both together as the engine uses them."""

from __future__ import annotations

from serai.policy.commands import grammar
from serai.policy.commands.reader import read, read_with
from serai.policy.commands.reading import Reading
from serai.policy.commands.scanning import scan


def by_grammar(text: str) -> Reading:
    return read_with(grammar.parse, text)


def by_scanner(text: str) -> Reading:
    return read_with(scan, text)


ALL = {"both": read, "grammar": by_grammar, "scanner": by_scanner}
