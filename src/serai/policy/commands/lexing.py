"""One word of a shell text: quotes, backslashes and expansions, read as every shell of the family reads them.

Texts are read as bytes in disguise (`disguised`): one character for each byte, so that offsets are those of the grammar. Only ASCII
means anything to a shell; what a word says is turned back at its end.

Where shells differ (bash, dash, zsh), or where more than a word begins, this raises `Unreadable`: never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from serai.policy.commands.reading import Unreadable, Word

__all__ = ["META", "Holes", "Lexed", "disguised", "lex", "shown"]

# Where a part begins that somebody else has read (a substitution), and where it ends.
Holes = Mapping[int, int]

META = " \t\n;&|<>()"  # these end a word
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_BRACED = re.compile(r"\{(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])\}")
# No \' inside: dash takes the string to end there, bash does not.
_ANSI = re.compile(r"'(?:[^'\\]|\\[^'])*'")
_PLAIN = re.compile(r"[^ \t\n;&|<>()'\"\\$`*?\[{~:=]+")  # what needs no look, outside of quotes
_QUOTED = re.compile(r"[^\"\\$`]+")  # and within double quotes
# A `$` before one of these is only a dollar. (zsh gives a meaning to almost anything else.)
_DOLLAR = " \t\n\"'/.,%\\;|&)"


_LONG = 200


class Lexed(NamedTuple):
    """A word, with what a shell's own grammar needs to know of how it is written."""

    word: Word
    bare: str  # its beginning, as far as it stands without quotes, backslashes and expansions
    plain: bool  # all of it stands like that


def disguised(text: str) -> str:
    """The text with one character for each of its bytes."""
    return text.encode().decode("latin-1")


def shown(source: str) -> str:
    """A part of a disguised text as people write it."""
    return source.encode("latin-1").decode()


def lex(source: str, at: int, end: int, holes: Holes) -> tuple[Lexed, int]:
    """The word that begins at `at`, and where it ends."""
    lexer = _Lexer(source, at, end, holes)
    return lexer.word(), lexer.at


class _Lexer:
    def __init__(self, source: str, at: int, end: int, holes: Holes) -> None:
        self.source, self.at, self.end, self.holes = source, at, end, holes
        self.parts: list[str] = []
        self.known = self.one = True
        self.bare: str | None = None  # set where the first quote or expansion stands
        self.brace = end  # where the first unquoted `{` stands

    def word(self) -> Lexed:
        start = self.at
        while self.at < self.end:
            if self._hole(quoted=False):
                continue
            char = self.source[self.at]
            if char in META:
                break
            if char == "\\":
                self._backslash()
            elif char == "'":
                self._raw()
            elif char == '"':
                self._double()
            elif char == "$":
                self._dollar(quoted=False)
            elif char == "`":
                raise Unreadable("it has a command within backticks")
            else:
                self._unquoted(start)
        if self.brace < self.at and any(sign in self.source[self.brace : self.at] for sign in (",", "..")):
            self.known = self.one = False  # `{a,b}` and `{1..3}` become words; `{}` is itself
        text = "".join(self.parts)
        plain = self.bare is None
        bare = text if self.bare is None else self.bare
        if plain and text in ("[", "[["):  # a command's name, no pattern
            self.known = self.one = True
        return Lexed(Word(shown(text), self.known, self.one), bare, plain)

    def _unquoted(self, start: int) -> None:
        if found := _PLAIN.match(self.source, self.at, self.end):
            self.parts.append(found[0])
            self.at = found.end()
            return
        char = self.source[self.at]
        if char in "*?[":
            self.known = self.one = False
        elif char == "{":
            self.brace = min(self.brace, self.at)
        elif (char == "~" and (self.at == start or self.source[self.at - 1] in ":=")) or (
            char == "=" and self.at == start and self.source[self.at + 1 : min(self.at + 2, self.end)] not in ("", "=", *META)
        ):
            self.known = False  # a home; in zsh `=rm` is where rm is
        self.parts.append(char)
        self.at += 1

    def _stop(self) -> None:
        """What stands without quotes ends here."""
        if self.bare is None:
            self.bare = "".join(self.parts)

    def _hole(self, *, quoted: bool) -> bool:
        end = self.holes.get(self.at)
        if end is None:
            return False
        self._stop()
        several = self.source[self.at] not in "<>" and (not quoted or self.source.find("@", self.at, end) >= 0)
        self._unknown(end, one=not several)
        return True

    def _unknown(self, end: int, *, one: bool) -> None:
        # Cut, because each of many nested substitutions holds the others.
        self.parts.append(self.source[self.at : end] if end - self.at <= _LONG else f"{self.source[self.at : self.at + 2]}...")
        self.at, self.known, self.one = end, False, self.one and one

    def _backslash(self) -> None:
        after = self.source[self.at + 1 : min(self.at + 2, self.end)]
        if not after:
            raise Unreadable("it ends with a backslash")
        if after == "\n":
            # The line goes on, within the word too; what stands before and after may be one unquoted name.
            self.at += 2
            return
        self._stop()
        self.parts.append(after)
        self.at += 2

    def _raw(self) -> None:
        self._stop()
        close = self.source.find("'", self.at + 1, self.end)
        if close < 0:
            raise Unreadable("it has a single quote that is not closed")
        self.parts.append(self.source[self.at + 1 : close])
        self.at = close + 1

    def _double(self) -> None:
        self._stop()
        self.at += 1
        while self.at < self.end:
            if self._hole(quoted=True):
                continue
            char = self.source[self.at]
            if char == '"':
                self.at += 1
                return
            if char == "\\":
                after = self.source[self.at + 1 : min(self.at + 2, self.end)]
                if after != "\n":
                    self.parts.append(after if after and after in '$`"\\' else char + after)
                self.at += 2
            elif char == "$":
                self._dollar(quoted=True)
            elif char == "`":
                raise Unreadable("it has a command within backticks")
            elif found := _QUOTED.match(self.source, self.at, self.end):
                self.parts.append(found[0])
                self.at = found.end()
        raise Unreadable("it has a double quote that is not closed")

    def _dollar(self, *, quoted: bool) -> None:
        self._stop()
        source, after = self.source, self.at + 1
        if found := _NAME.match(source, after, self.end) or _BRACED.match(source, after, self.end):
            self._unknown(found.end(), one=quoted and "@" not in found[0])
            return
        char = source[after] if after < self.end else " "
        if char in "({[":
            raise Unreadable(f"it has a substitution, `${char}…`")
        if not quoted and char == "'":
            string = _ANSI.match(source, after, self.end)
            if string is None:
                raise Unreadable("it has a string `$'…'` that shells do not read alike")
            self._unknown(string.end(), one=True)
        elif not quoted and char == '"':
            self.at = after
            self._double()
            self.known = False  # translated when it runs
        elif char in _DOLLAR:
            if char == "\\" and source[after + 1 : after + 2] == "\n":
                raise Unreadable("it has a line that goes on after a dollar")
            self.parts.append("$")
            self.at = after
        else:
            self._unknown(after, one=quoted)
