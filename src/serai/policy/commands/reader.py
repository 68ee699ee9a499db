"""`read_command` finds every command that a text, or an argv, runs; `CommandPattern` is a rule's pattern for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from serai.plain_text import find_invisible
from serai.policy.commands import grammar, shell_text
from serai.policy.commands.arguments import CommandArguments, HiddenCommand, NestedCommands, get_base_name, is_input
from serai.policy.commands.shell_builtins import BUILTINS, read_assignment
from serai.policy.commands.shell_text import CommandReading, ShellCommand, ShellWord
from serai.policy.commands.wrappers import WRAPPERS
from serai.policy.patterns import pieces_to_regex

Parser = Callable[[str], shell_text.ParsedText]

# What the system loads programs with, and a command of the past (`!rm`).
_ODD_NAME = re.compile(r"ld(?:-.*)?\.so.*|ld-(?:linux|musl).*|!.+", re.DOTALL)


def read_command(command: str | Sequence[str]) -> shell_text.CommandReading:
    """What a text for a shell, or an argv that no shell sees, would run. Never raises: what cannot be read says why."""
    return read_with(_parse, command)


def _parse(text: str) -> shell_text.ParsedText:
    """By our own reader where it is certain; else by the grammar, if that is installed."""
    try:
        return shell_text.scan_commands(text)
    except shell_text.TooComplex:
        raise
    except shell_text.Unreadable:
        if not grammar.is_installed():
            raise
        return grammar.parse_with_grammar(text)


def read_with(parse: Parser, command: str | Sequence[str]) -> shell_text.CommandReading:
    """`read_command` with one reader of texts."""
    search = _Search(parse)
    if isinstance(command, str):
        simple = shell_text.read_plain_command(command)
        try:
            search.add_parsed(parse(command), 0)
        except shell_text.Unreadable as error:
            return shell_text.CommandReading(simple, unread=f"the command cannot be read: {error}")
    else:
        words = tuple(command)
        given: tuple[object, ...] = words  # who hands this over may not have checked it
        if not words or not all(isinstance(word, str) and "\0" not in word for word in given):
            return shell_text.CommandReading(None, unread="the command cannot be read: it is no list of words")
        if len(words) > shell_text.MOST_WORDS:
            return shell_text.CommandReading(None, unread=f"the command cannot be read: {shell_text.TOO_MANY_WORDS}")
        if sum(map(len, words)) > shell_text.MOST_TEXT:
            return shell_text.CommandReading(
                None, unread=f"the command cannot be read: it is longer than {shell_text.MOST_TEXT // 1024} KiB"
            )
        simple = words
        search.add_parsed(shell_text.ParsedText((shell_text.ShellCommand(tuple(map(shell_text.ShellWord, words))),)), 0)
    search.run()
    return shell_text.CommandReading(simple, tuple(search.commands), hidden=tuple(dict.fromkeys(search.hidden)))


class _Search:
    """Every command, and what each one runs besides itself, until nothing new is found."""

    def __init__(self, parse: Parser) -> None:
        self.parse = parse
        self.commands: list[shell_text.ShellCommand] = []
        self.hidden: list[str] = []
        self.depths: list[int] = []
        self.words = 0
        self.within = 0  # characters of texts within texts

    def add_parsed(self, parsed: shell_text.ParsedText, depth: int) -> None:
        self.hidden += parsed.hidden
        for command in parsed.commands:
            self._add(command, depth)
        for word in parsed.assigned:
            self._add_nested(read_assignment(word), depth)

    def run(self) -> None:
        at = 0
        while at < len(self.commands):
            self._unwrap(self.commands[at], self.depths[at])
            at += 1

    def _add(self, command: shell_text.ShellCommand, depth: int) -> None:
        if depth > shell_text.MOST_DEPTH or len(self.commands) >= shell_text.MOST_COMMANDS:
            self.hidden.append("there are more commands within commands than are looked at")
        elif self.words + len(command.words) > 2 * shell_text.MOST_WORDS:
            self.hidden.append(shell_text.TOO_MANY_WORDS)
        elif command.words:
            self.words += len(command.words)
            self.commands.append(command)
            self.depths.append(depth)

    def _unwrap(self, command: shell_text.ShellCommand, depth: int) -> None:
        if not command.words[0].known:
            self.hidden.append("the name of a command is known only when it runs")
            return
        name = get_base_name(command)
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
        self._add_nested(inside, depth)

    def _add_nested(self, inside: NestedCommands, depth: int) -> None:
        self.hidden += inside.hidden
        for command in inside.commands:
            self._add(command, depth + 1)
        for word in inside.assigned:
            self._add_nested(read_assignment(word), depth)
        for text in inside.texts:
            self._read_text(text, depth + 1)

    def _read_text(self, text: str, depth: int) -> None:
        self.within += len(text)
        if depth > shell_text.MOST_DEPTH or len(self.commands) >= shell_text.MOST_COMMANDS or self.within > shell_text.MOST_WITHIN:
            self.hidden.append("there are more commands within commands than are looked at")
            return
        try:
            self.add_parsed(self.parse(shell_text.check_text(text)), depth)
        except shell_text.Unreadable as error:
            self.hidden.append(f"a text for a shell cannot be read: {error}")


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
        self._globs = _split_pattern(text)
        self._bare = not self._globs[0].slash

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommandPattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def allows(self, words: Sequence[str]) -> bool:
        """Whether these plain words, `CommandReading.simple`, are what the pattern says."""
        return _match_words(self._globs, [ShellWord(word) for word in words], _surely_matches)

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
        if command.words and not self._may_match_name(command.words[0]):
            return "no"
        words = list(command.words)
        if command.more:
            words.append(ShellWord("", known=False, one=False))
        rows = [words]
        if self._bare and words and "/" in words[0].text:
            rows.append([words[0]._replace(text=words[0].text.rpartition("/")[2]), *words[1:]])
        if any(_match_words(self._globs, row, _surely_matches) for row in rows):
            return "yes"
        if all(word.known for word in words):  # what is possible is certain then
            return "no"
        return "maybe" if any(_match_words(self._globs, row, _possibly_matches) for row in rows) else "no"

    def _may_match_name(self, name: ShellWord) -> bool:
        """Whether a command of this name may be meant; almost always it is another one."""
        glob = self._globs[0]
        if glob.words or not name.known or glob.matches(name.text):
            return True
        return self._bare and glob.matches(name.text.rpartition("/")[2])


def _surely_matches(glob: _Glob, word: ShellWord) -> bool:
    """Whether one word matches whatever it becomes."""
    return glob.any if not word.known else glob.matches(word.text)


def _possibly_matches(glob: _Glob, word: ShellWord) -> bool:
    """Whether one word matches for some value of what is not known."""
    return not word.known or glob.matches(word.text)


def _match_words(globs: Sequence[_Glob], words: Sequence[ShellWord], matches: Callable[[_Glob, ShellWord], bool]) -> bool:
    """Whether the words are what the globs say: one row of answers for each glob, from the last to the first.

    `after[j]` tells whether the globs so far match the words from `j` on. A word that may become none or several is certain only
    for a glob that stands for any words; if a possible match is enough, it stands for any words itself.
    """
    hopeful = matches is _possibly_matches
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


def _split_pattern(text: str) -> tuple[_Glob, ...]:
    """The words of a pattern, each as a glob."""
    if find_invisible(text) is not None:
        raise ValueError(f"the command pattern {text!r} has a character that cannot be seen: a pattern is one line of plain text")
    words = _parse_words(text)
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


def _parse_words(text: str) -> list[_Glob]:
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
            signs += [(char, piece["bare"] is not None) for char in _unquote(piece)]
        if written and (piece["blank"] or at == len(text)):
            words.append(_compile_glob(signs, written))
            signs, written = [], ""
    return words


def _unquote(piece: re.Match[str]) -> str:
    if piece["double"] is not None:
        return re.sub(r"\\([\"\\$`])", r"\1", piece["double"])
    return piece["bare"] or piece["escaped"] or piece["raw"]


def _compile_glob(signs: Sequence[tuple[str, bool]], written: str) -> _Glob:
    regex = re.compile(pieces_to_regex((char, not wild) for char, wild in signs), re.DOTALL)
    return _Glob(regex, any(char == "/" for char, _ in signs), written == "*", written == "**")
