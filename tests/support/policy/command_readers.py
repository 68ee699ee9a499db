"""The readers under test: each one alone, and both together as the engine uses them."""

from __future__ import annotations

from serai.policy.commands import grammar
from serai.policy.commands.reader import read_command, read_with
from serai.policy.commands.shell_text import CommandReading, scan_commands


def read_by_grammar(text: str) -> CommandReading:
    return read_with(grammar.parse_with_grammar, text)


def read_by_scanner(text: str) -> CommandReading:
    return read_with(scan_commands, text)


ALL = {"both": read_command, "grammar": read_by_grammar, "scanner": read_by_scanner}
