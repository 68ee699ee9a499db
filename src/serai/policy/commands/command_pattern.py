"""The `command` pattern of a rule, and how it meets what was read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from serai.plain_text import find_invisible
from serai.policy.commands.shell_text import CommandReading, ShellCommand, ShellWord
from serai.policy.patterns import joined

Found = Literal["yes", "no", "maybe"]

_MOST_WORDS = 64  # of a pattern; a longer one is a mistake, and matching stays quick


class _Glob(NamedTuple):
    """One word of a pattern."""

    regex: re.Pattern[str]
    slash: bool = False  # it has one
    any: bool = False  # every word matches
    words: bool = False  # it stands for any number of whole words

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        return self.regex.fullmatch(text) is not None


class CommandPattern:
    """One `command` pattern of a rule.

    It is split into words as a shell splits plain and quoted words. Each word matches one whole word of a command: `*` stands for
    any characters, `?` for one; within quotes or after a backslash they are themselves. Two are special when they stand alone:

    - `*` as the last word stands for any further words, also none; elsewhere it is exactly one word;
    - `**` stands for any number of words, wherever it is.

    So `git status` is that and nothing more, `git push *` is every push, `rm ** -*r* **` is `rm` with an option that has an r.

    An allow rule `allows` exact words, the name too. A deny or ask rule `finds` its command wherever it stands in the text, also as
    `/bin/rm` if the pattern's name has no slash, and says `maybe` where what runs is known only when it runs.
    """

    __slots__ = ("_bare", "_globs", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._globs = _split(text)
        self._bare = not self._globs[0].slash

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommandPattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def allows(self, words: Sequence[str]) -> bool:
        """Whether these plain words, `CommandReading.simple`, are what the pattern says."""
        return _meet(self._globs, [ShellWord(word) for word in words], _surely)

    def finds(self, reading: CommandReading) -> Found:
        """Whether any command of the reading is what the pattern says; `maybe` if that cannot be seen."""
        answer: Found = "maybe" if reading.unread or reading.hidden else "no"
        for command in reading.commands:
            found = self._finds(command)
            if found == "yes":
                return found
            if found == "maybe":
                answer = found
        return answer

    def _finds(self, command: ShellCommand) -> Found:
        if command.words and not self._begins(command.words[0]):
            return "no"
        words = list(command.words)
        if command.more:
            words.append(ShellWord("", known=False, one=False))
        rows = [words]
        if self._bare and words and "/" in words[0].text:
            rows.append([words[0]._replace(text=words[0].text.rpartition("/")[2]), *words[1:]])
        if any(_meet(self._globs, row, _surely) for row in rows):
            return "yes"
        if all(word.known for word in words):  # what is possible is certain then
            return "no"
        return "maybe" if any(_meet(self._globs, row, _possibly) for row in rows) else "no"

    def _begins(self, name: ShellWord) -> bool:
        """Whether a command of this name may be meant; almost always it is another one."""
        glob = self._globs[0]
        if glob.words or not name.known or glob.matches(name.text):
            return True
        return self._bare and glob.matches(name.text.rpartition("/")[2])


def _surely(glob: _Glob, word: ShellWord) -> bool:
    """Whether one word matches whatever it becomes."""
    return glob.any if not word.known else glob.matches(word.text)


def _possibly(glob: _Glob, word: ShellWord) -> bool:
    """Whether one word matches for some value of what is not known."""
    return not word.known or glob.matches(word.text)


def _meet(globs: Sequence[_Glob], words: Sequence[ShellWord], matches: Callable[[_Glob, ShellWord], bool]) -> bool:
    """Whether the words are what the globs say: one row of answers for each glob, from the last to the first.

    `after[j]` tells whether the globs so far match the words from `j` on. A word that may become none or several is certain only
    for a glob that stands for any words; if a possible match is enough, it stands for any words itself.
    """
    hopeful = matches is _possibly
    after = [False] * len(words) + [True]
    for j in range(len(words) - 1, -1, -1):
        after[j] = hopeful and not words[j].one and after[j + 1]
    for glob in reversed(globs):
        row = [False] * (len(words) + 1)
        row[-1] = glob.words and after[-1]
        for j in range(len(words) - 1, -1, -1):
            word = words[j]
            if glob.words:
                row[j] = after[j] or row[j + 1]
            elif word.one:
                row[j] = after[j + 1] and matches(glob, word)
            else:
                row[j] = hopeful and (after[j] or row[j + 1])
        after = row
    return after[0]


def _split(text: str) -> tuple[_Glob, ...]:
    """The words of a pattern, each as a glob."""
    if find_invisible(text) is not None:
        raise ValueError(f"the command pattern {text!r} has a character that cannot be seen: a pattern is one line of plain text")
    words = _words(text)
    if not words:
        raise ValueError("a command pattern is empty: it needs a command's name, such as `git status`, or `*` for every command")
    if len(words) > _MOST_WORDS:
        raise ValueError(f"a command pattern has {len(words)} words: at most {_MOST_WORDS} are taken")
    if words[-1].any:
        words[-1] = words[-1]._replace(words=True)
    return tuple(words)


_PIECES = re.compile(
    r"""(?P<blank>\ +) | '(?P<raw>[^']*)' | "(?P<double>(?:[^"\\]|\\.)*)" | \\(?P<escaped>.) | (?P<bare>[^\ '"\\]+)""",
    re.VERBOSE,
)


def _words(text: str) -> list[_Glob]:
    words: list[_Glob] = []
    signs: list[tuple[str, bool]] = []  # each character of the word, and whether it may be a wildcard
    written = ""  # how the word is written; empty between words
    at = 0
    while at < len(text):
        piece = _PIECES.match(text, at)
        if piece is None:
            raise ValueError(f"the command pattern `{text}` has a quote that is not closed, or ends with a backslash")
        at = piece.end()
        if not piece["blank"]:
            written += piece[0]
            signs += [(char, piece["bare"] is not None) for char in _said(piece)]
        if written and (piece["blank"] or at == len(text)):
            words.append(_glob(signs, written))
            signs, written = [], ""
    return words


def _said(piece: re.Match[str]) -> str:
    if piece["double"] is not None:
        return re.sub(r"\\([\"\\$`])", r"\1", piece["double"])
    return piece["bare"] or piece["escaped"] or piece["raw"]


def _glob(signs: Sequence[tuple[str, bool]], written: str) -> _Glob:
    regex = re.compile(joined((char, not wild) for char, wild in signs), re.DOTALL)
    return _Glob(regex, any(char == "/" for char, _ in signs), written == "*", written == "**")
