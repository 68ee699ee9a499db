"""`read`: from a text, or an argv, to every command that it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from serai.policy.commands import grammar
from serai.policy.commands.arguments import CommandArguments, HiddenCommand, NestedCommands, is_input, shown_name
from serai.policy.commands.shell_builtins import BUILTINS, evaluated
from serai.policy.commands.shell_text import (
    MOST_COMMANDS,
    MOST_DEPTH,
    MOST_TEXT,
    MOST_WITHIN,
    MOST_WORDS,
    TOO_MANY_WORDS,
    CommandReading,
    ParsedText,
    ShellCommand,
    ShellWord,
    TooComplex,
    Unreadable,
    checked,
    read_plain_command,
    scan_commands,
)
from serai.policy.commands.wrappers import WRAPPERS

Parser = Callable[[str], ParsedText]

# What the system loads programs with, and a command of the past (`!rm`).
_ODD_NAME = re.compile(r"ld(?:-.*)?\.so.*|ld-(?:linux|musl).*|!.+", re.DOTALL)


def read_command(command: str | Sequence[str]) -> CommandReading:
    """What a text for a shell, or an argv that no shell sees, would run. Never raises: what cannot be read says why."""
    return read_with(_parse, command)


def _parse(text: str) -> ParsedText:
    """By our own reader where it is certain; else by the grammar, if that is installed."""
    try:
        return scan_commands(text)
    except TooComplex:
        raise
    except Unreadable:
        if not grammar.installed():
            raise
        return grammar.parse_with_grammar(text)


def read_with(parse: Parser, command: str | Sequence[str]) -> CommandReading:
    """`read` with one reader of texts."""
    search = _Search(parse)
    if isinstance(command, str):
        simple = read_plain_command(command)
        try:
            search.take(parse(command), 0)
        except Unreadable as error:
            return CommandReading(simple, unread=f"the command cannot be read: {error}")
    else:
        words = tuple(command)
        given: tuple[object, ...] = words  # who hands this over may not have checked it
        if not words or not all(isinstance(word, str) and "\0" not in word for word in given):
            return CommandReading(None, unread="the command cannot be read: it is no list of words")
        if len(words) > MOST_WORDS:
            return CommandReading(None, unread=f"the command cannot be read: {TOO_MANY_WORDS}")
        if sum(map(len, words)) > MOST_TEXT:
            return CommandReading(None, unread=f"the command cannot be read: it is longer than {MOST_TEXT // 1024} KiB")
        simple = words
        search.take(ParsedText((ShellCommand(tuple(map(ShellWord, words))),)), 0)
    search.run()
    return CommandReading(simple, tuple(search.commands), hidden=tuple(dict.fromkeys(search.hidden)))


class _Search:
    """Every command, and what each one runs besides itself, until nothing new is found."""

    def __init__(self, parse: Parser) -> None:
        self.parse = parse
        self.commands: list[ShellCommand] = []
        self.hidden: list[str] = []
        self.depths: list[int] = []
        self.words = 0
        self.within = 0  # characters of texts within texts

    def take(self, parsed: ParsedText, depth: int) -> None:
        self.hidden += parsed.hidden
        for command in parsed.commands:
            self._add(command, depth)
        for word in parsed.assigned:
            self._inside(evaluated(word), depth)

    def run(self) -> None:
        at = 0
        while at < len(self.commands):
            self._look(self.commands[at], self.depths[at])
            at += 1

    def _add(self, command: ShellCommand, depth: int) -> None:
        if depth > MOST_DEPTH or len(self.commands) >= MOST_COMMANDS:
            self.hidden.append("there are more commands within commands than are looked at")
        elif self.words + len(command.words) > 2 * MOST_WORDS:
            self.hidden.append(TOO_MANY_WORDS)
        elif command.words:
            self.words += len(command.words)
            self.commands.append(command)
            self.depths.append(depth)

    def _look(self, command: ShellCommand, depth: int) -> None:
        if not command.words[0].known:
            self.hidden.append("the name of a command is known only when it runs")
            return
        name = shown_name(command)
        if _ODD_NAME.fullmatch(name) or ("/" in command.words[0].text and is_input(command.words[0].text)):
            self.hidden.append(f"`{name[:40]}` may be any program")
            return
        look = WRAPPERS.get(name) or BUILTINS.get(name)
        if look is None:
            return
        try:
            inside = look(CommandArguments(command))
        except HiddenCommand as error:
            inside = NestedCommands(hidden=(str(error),))
        self._inside(inside, depth)

    def _inside(self, inside: NestedCommands, depth: int) -> None:
        self.hidden += inside.hidden
        for command in inside.commands:
            self._add(command, depth + 1)
        for word in inside.assigned:
            self._inside(evaluated(word), depth)
        for text in inside.texts:
            self._text(text, depth + 1)

    def _text(self, text: str, depth: int) -> None:
        self.within += len(text)
        if depth > MOST_DEPTH or len(self.commands) >= MOST_COMMANDS or self.within > MOST_WITHIN:
            self.hidden.append("there are more commands within commands than are looked at")
            return
        try:
            self.take(self.parse(checked(text)), depth)
        except Unreadable as error:
            self.hidden.append(f"a text for a shell cannot be read: {error}")
