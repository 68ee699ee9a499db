"""Our own reader: lists and pipes of simple commands, and nothing that it is not certain about.

It reads a whole text by itself, and it reads each simple command that the grammar has found (`simple`), so that what a command's
words are is decided in one place.
"""

from __future__ import annotations

import re
from typing import Final

from serai.policy.commands.lexing import Holes, Lexed, disguised, lex
from serai.policy.commands.reading import MOST_WORDS, Command, Parsed, TooMuch, Unreadable, Word, checked

__all__ = ["RESERVED", "scan", "simple"]

# Words that begin something larger, in one shell of the family at least. `!` and `time` stand before a command and are handled.
RESERVED: Final = frozenset(
    {"if", "then", "elif", "else", "fi", "for", "foreach", "while", "until", "do", "done", "end", "case", "esac", "select", "in"}
    | {"function", "coproc", "repeat", "{", "}", "[[", "]]"}
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\+?=|\[)")
_NUMBER = re.compile(r"[0-9]+")
_COPIED = re.compile(r"[A-Za-z0-9_./-]+")
_VARIABLE = re.compile(r"\{.*\}")
_REDIRECTION = re.compile(r"<<<|<<-?|<>|<&|>>|>\||>&|&>>|&>|<|>")


def scan(text: str) -> Parsed:
    """Every command of a text of lists and pipes; `Unreadable` for anything more."""
    source = disguised(checked(text))
    scanner = _Scanner(source, 0, len(source), {}, alone=False)
    scanner.run()
    return Parsed(tuple(Command(tuple(words)) for words in scanner.commands), tuple(scanner.assigned))


def simple(source: str, start: int, end: int, holes: Holes) -> tuple[list[Word], list[Word]]:
    """The words and the assignments of the one simple command that stands there, with holes where the grammar has read."""
    scanner = _Scanner(source, start, end, holes, alone=True)
    scanner.run()
    return (scanner.commands[0] if scanner.commands else []), scanner.assigned


class _Scanner:
    def __init__(self, source: str, at: int, end: int, holes: Holes, *, alone: bool) -> None:
        self.source, self.at, self.end, self.holes = source, at, end, holes
        self.alone = alone  # one command and no separator: the grammar has promised it
        self.commands: list[list[Word]] = []
        self.assigned: list[Word] = []
        self.words: list[Word] = []
        self.count = 0
        self.target = False  # the next word belongs to a redirection
        self.copies = False  # and that one is `>&` or `<&`
        self.both = False  # `&>` was read: what follows is another command in dash

    def run(self) -> None:
        while self.at < self.end:
            char = self.source[self.at]
            if self.at in self.holes:
                self._word()
            elif char in " \t":
                self.at += 1
            elif self.source.startswith("\\\n", self.at, self.end):
                self.at += 2
            elif char == "#":
                self._comment()
            elif char in "<>" or self.source.startswith("&>", self.at, self.end):
                self._redirection()
            elif char in "\n;&|":
                self._separator(char)
            elif char in "()":
                raise Unreadable("it has parentheses")
            else:
                self._word()
        self._end()

    def _word(self) -> None:
        self.count += 1
        if self.count > MOST_WORDS:
            raise TooMuch
        lexed, self.at = lex(self.source, self.at, self.end, self.holes)
        if self.target:
            if self.copies and not (lexed.word.known and _COPIED.fullmatch(lexed.word.text)):
                raise Unreadable("it has a redirection `>&` whose target bash may expand twice")
            self.target = False
        elif lexed.plain and _NUMBER.fullmatch(lexed.bare) and self.source[self.at : min(self.at + 1, self.end)] in ("<", ">"):
            pass  # the number of a descriptor
        elif lexed.plain and _VARIABLE.fullmatch(lexed.bare) and self.source[self.at : min(self.at + 1, self.end)] in ("<", ">"):
            raise Unreadable("it has a descriptor with a name, which shells do not read alike")
        elif self.both:
            raise Unreadable("it has words after `&>`, which shells do not read alike")
        elif self.words or not self._first(lexed):
            self.words.append(lexed.word)

    def _first(self, lexed: Lexed) -> bool:
        """Whether this word in a command's first place is not its name."""
        if found := _ASSIGNMENT.match(lexed.bare):
            if found[1] == "[":
                raise Unreadable("it sets an element of an array")
            self.assigned.append(lexed.word)
            return True
        if (lexed.plain and lexed.bare in RESERVED) or lexed.bare.startswith("{"):  # zsh takes `{rm x}` for a group
            raise Unreadable(f"it has `{lexed.bare}`, which begins more than a simple command")
        if lexed.plain and lexed.bare in ("!", "time"):
            self._after(lexed.bare)
            return lexed.bare == "!"
        return False

    def _after(self, keyword: str) -> None:
        """After `!` and `time` a shell takes a whole pipeline, so a reserved word is one there too."""
        at = self.at
        while True:
            while at < self.end and self.source[at] in " \t":
                at += 1
            if at >= self.end or self.source[at] in "\n;&|<>()\\" or at in self.holes:
                break
            lexed, at = lex(self.source, at, self.end, self.holes)
            if lexed.plain and (lexed.bare in RESERVED or lexed.bare in ("!", "time")):
                raise Unreadable(f"it has `{lexed.bare}` after `{keyword}`, which begins more than a simple command")
            if not lexed.bare.startswith("-"):
                return
        if at < self.end and self.source[at] in "(<>\\":
            raise Unreadable(f"it has more than a simple command after `{keyword}`")

    def _redirection(self) -> None:
        found = _REDIRECTION.match(self.source, self.at, self.end)
        if found is None or self.target:
            raise Unreadable("it has a redirection without a target")
        if found[0] in ("<<", "<<-"):
            raise Unreadable("it has a here-document")
        self.at, self.target = found.end(), True
        self.copies = found[0].endswith("&")
        self.both = self.both or found[0].startswith("&")
        self._token_ends()

    def _separator(self, char: str) -> None:
        if self.alone:
            raise Unreadable("what the grammar took for one command is several")
        self._end()
        self.at += 1
        following = self.source[self.at : self.at + 1]
        if char == ";" and following in (";", "&", "|"):
            raise Unreadable(f"it has `;{following}`")
        if char in "&|" and following and following in ("|&" if char == "|" else "&"):
            self.at += 1
        if char != "\n":
            self._token_ends()

    def _token_ends(self) -> None:
        """A line that goes on within an operator may make another one of it."""
        if self.source.startswith("\\\n", self.at, self.end):
            raise Unreadable("it has a line that goes on right after an operator")

    def _comment(self) -> None:
        if self.alone:
            raise Unreadable("what the grammar took for a command is a comment")
        line = self.source.find("\n", self.at, self.end)
        self.at = self.end if line < 0 else line

    def _end(self) -> None:
        if self.target:
            raise Unreadable("it has a redirection without a target")
        if self.words:
            self.commands.append(self.words)
        self.words, self.both = [], False
