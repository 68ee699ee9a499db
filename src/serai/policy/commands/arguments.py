"""The words and options of a command that runs other commands, and the commands behind it.

A command's words and options are taken one by one. The tables of `wrappers` and `shell_builtins` say which command does what; a
command in neither runs nothing that a rule could see (a deny rule is not a sandbox).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from posixpath import normpath
from typing import NamedTuple

from serai.plain_text import shorten
from serai.policy.commands.shell_text import ShellCommand, ShellWord

# What is not known of a word never looks like this, so it holds for such words too.
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_OPERAND = re.compile(r"[A-Za-z0-9_./,:@%]")
# Where a program's input, or its own words and variables, can be opened like a file, however the path to it is written.
_INPUT = re.compile(
    r"-|(?:.*/)?(?:stdin|tty[^/]*|environ|cmdline|exe|(?:fd/|pts/)?[0-9]+)|(?:/+|(?:\.\./)+)(?:proc|dev)/.*", re.DOTALL
)


class NestedCommands(NamedTuple):
    """What one command runs besides itself."""

    commands: tuple[ShellCommand, ...] = ()
    texts: tuple[str, ...] = ()  # for a shell
    hidden: tuple[str, ...] = ()
    assigned: tuple[ShellWord, ...] = ()  # variables that it sets for what it runs


class HiddenCommand(Exception):
    """What runs cannot be seen; the message is a short sentence."""


WrapperReader = Callable[["CommandArguments"], NestedCommands]


def get_base_name(command: ShellCommand) -> str:
    """The base name of a command, as tables have it."""
    return command.words[0].text.rpartition("/")[2]


def is_input(path: str) -> bool:
    """Whether a path may be what the program reads, or was given, instead of a file."""
    return path != "/dev/null" and _INPUT.fullmatch(normpath(path)) is not None


def is_operand(word: ShellWord) -> bool:
    """Whether a word is certainly no option, whatever it becomes."""
    if word.known:
        return not word.text.startswith("-") or word.text == "-"
    return word.one and _OPERAND.match(word.text) is not None


class OptionSyntax(NamedTuple):
    """How a command's options are written. Whatever is not here makes the command unseen: it may or may not take a value."""

    flags: str = ""  # letters without a value
    values: str = ""  # letters with a value, attached or the next word
    maybe: str = ""  # letters with a value only if it is attached
    long: str = ""  # long names without a value, or with `=value`
    long_values: str = ""  # long names with a value, after `=` or the next word
    number: bool = False  # `-10` is an option


class ParsedOption(NamedTuple):
    """One option as it was written; `value` is None where it has none."""

    name: str
    value: ShellWord | None


class CommandArguments:
    """The words after a command's name, taken one by one. A word that is not known where one must be is `HiddenCommand`."""

    def __init__(self, command: ShellCommand) -> None:
        self.name = get_base_name(command)
        self.command = command
        self.at = 1

    def peek(self) -> str | None:
        """The next word, or None after the last one."""
        words = self.command.words
        if self.at >= len(words):
            if self.command.more:
                raise HiddenCommand(f"`{self.name}` gets words that are not known yet")
            return None
        if not (word := words[self.at]).known:
            raise HiddenCommand(f"`{self.name}` has `{shorten(word.text)}`, which is known only when it runs")
        return word.text

    def take(self) -> str | None:
        """The next word, which is taken then."""
        text = self.peek()
        self.at += text is not None
        return text

    def take_value(self) -> ShellWord:
        """The next word as the value of an option; one that is not known will do, as long as it is one word."""
        words = self.command.words
        if self.at >= len(words):
            raise HiddenCommand(f"`{self.name}` lacks a word, or gets it only when it runs")
        if not words[self.at].one:
            raise HiddenCommand(f"`{self.name}` has words that are known only when it runs")
        self.at += 1
        return words[self.at - 1]

    def take_operand(self) -> ShellWord | None:
        """The next word, if it is certainly no option; None after the last one."""
        words = self.command.words
        if self.at >= len(words):
            self.peek()
            return None
        if not is_operand(words[self.at]):
            raise HiddenCommand(f"`{self.name}` has `{shorten(words[self.at].text)}`, which may be an option")
        self.at += 1
        return words[self.at - 1]

    def parse_all_options(self, spec: OptionSyntax) -> Iterator[ParsedOption]:
        """The options between and after operands too, as many programs take them; also after `--`, to be certain."""
        while self.at < len(self.command.words) or self.command.more:
            before = self.at
            yield from self.parse_options(spec)
            if self.at == before:
                self.take_operand()

    def get_rest(self) -> ShellCommand | None:
        """What is left, as a command of its own; None if nothing is."""
        words = self.command.words[self.at :]
        if not words:
            self.peek()
            return None
        return ShellCommand(words, self.command.more)

    def join_rest(self) -> str:
        """What is left, joined by spaces: what `eval` and others hand to a shell."""
        texts: list[str] = []
        while (text := self.take()) is not None:
            texts.append(text)
        return " ".join(texts)

    def parse_options(self, spec: OptionSyntax) -> Iterator[ParsedOption]:
        """The options from here on, up to the first word that is none."""
        while not self._assigns() and (text := self.peek()) is not None and text.startswith("-") and text != "-":
            self.at += 1
            if text == "--":
                return
            if text.startswith("--"):
                yield self._parse_long(spec, text)
            elif spec.number and re.fullmatch(r"[0-9]+", text[1:]):
                yield ParsedOption(text[1:], None)
            else:
                yield from self._parse_letters(spec, text)

    def _assigns(self) -> bool:
        """Whether the next word sets a variable: then it is no option, whatever the value."""
        word = next(iter(self.command.words[self.at : self.at + 1]), None)
        return word is not None and word.one and ASSIGNMENT.match(word.text) is not None

    def _parse_long(self, spec: OptionSyntax, text: str) -> ParsedOption:
        name, equals, value = text[2:].partition("=")
        if name in spec.long_values.split():
            return ParsedOption(name, ShellWord(value) if equals else self.take_value())
        if name in spec.long.split():
            return ParsedOption(name, ShellWord(value) if equals else None)
        raise HiddenCommand(f"`{self.name}` has the option `{shorten(text)}`, which is not known here")

    def _parse_letters(self, spec: OptionSyntax, text: str) -> Iterator[ParsedOption]:
        for index, letter in enumerate(text[1:], 2):
            if letter in spec.flags:
                yield ParsedOption(letter, None)
            elif letter in spec.maybe:
                yield ParsedOption(letter, ShellWord(text[index:]))
                return
            elif letter in spec.values:
                yield ParsedOption(letter, ShellWord(text[index:]) if text[index:] else self.take_value())
                return
            else:
                raise HiddenCommand(f"`{self.name}` has the option `{shorten(text)}`, which is not known here")


def nest_command(command: ShellCommand | None) -> NestedCommands:
    """A command that is run as it stands."""
    return NestedCommands((command,) if command else ())


def nest_text(word: ShellWord | None, who: str) -> NestedCommands:
    """A text that a shell reads."""
    if word is None or not word.known:
        raise HiddenCommand(f"`{who}` reads commands that are known only when it runs")
    return NestedCommands(texts=(word.text,))
