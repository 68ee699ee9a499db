"""A shell text: its words, its commands, and the readers that need no grammar.

*Words.* Quotes, backslashes and expansions are read as every shell of the family reads them. Texts are read with one character for
each byte (`as_byte_text`), so that offsets are those of the grammar. Only ASCII means anything to a shell; a word is decoded at
its end. Where shells differ (bash, dash, zsh), or where more than a word begins, this raises `Unreadable`: never a guess.

*Commands.* `scan_commands` reads lists and pipes of simple commands, and nothing that it is not certain about. It reads a whole
text by itself; `scan_simple_command` reads each simple command that the grammar has found, so that a command's words are decided
in one place.

*What an allow rule may match.* `read_plain_command` accepts ONE simple command of plain words. This is all that stands between a
rule such as `git status` and everything else, so it is small, knows no grammar, and rejects what it does not know. Rejecting costs
little: the person is asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from serai.plain_text import find_invisible, name_character

# A longer text is not read at all: nobody approves what takes an hour to read, and every reader here stays quick on it.
MOST_TEXT = 64 * 1024
# So deep are wrappers and texts within texts followed, and so many commands are looked at; past it they are hidden.
MOST_DEPTH = 16
MOST_COMMANDS = 1024
# So many words are looked at over all depths, and so many characters of texts within texts: hostile nesting repeats them.
MOST_WORDS = 2048
MOST_WITHIN = 64 * 1024
TOO_MANY_WORDS = "it has more words than are looked at"


class ShellWord(NamedTuple):
    """One word of a command. `text` is what the program gets, as far as it is known before it runs."""

    text: str
    known: bool = True  # False: part of it is known only when it runs (`$x`, a glob); `text` then shows how it is written
    one: bool = True  # False: it may become none or several words


class ShellCommand(NamedTuple):
    """One command: its name and its words. `more`: further words follow that nobody knows yet."""

    words: tuple[ShellWord, ...]
    more: bool = False


class CommandReading(NamedTuple):
    """What a command text, or an argv, would run, as far as it can be seen without running it."""

    simple: tuple[str, ...] | None
    commands: tuple[ShellCommand, ...] = ()
    unread: str = ""
    hidden: tuple[str, ...] = ()


class ParsedText(NamedTuple):
    """What one reader found in one text; nobody has looked behind wrappers yet."""

    commands: tuple[ShellCommand, ...] = ()
    assigned: tuple[ShellWord, ...] = ()  # `NAME=value` in front of commands or alone
    hidden: tuple[str, ...] = ()


class Unreadable(Exception):
    """A text that a reader is not certain about; the message is a sentence for a person."""


class TooComplex(Unreadable):
    """A text that is too much for every reader."""

    def __init__(self) -> None:
        super().__init__(TOO_MANY_WORDS)


def check_text(text: str) -> str:
    """`text`, if a reader may look at it at all; else `Unreadable` says why not."""
    if len(text) > MOST_TEXT:
        raise Unreadable(f"it is longer than {MOST_TEXT // 1024} KiB")
    # Shells, terminals and people do not agree on these: nothing with one of them is taken as read.
    if char := find_invisible(text.replace("\n", "").replace("\t", "")):
        raise Unreadable(f"it has the character {name_character(char)}, which is not seen or not read the same everywhere")
    return text


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


class LexedWord(NamedTuple):
    """A word, with what a shell's own grammar needs to know of how it is written."""

    word: ShellWord
    bare: str  # its beginning, as far as it stands without quotes, backslashes and expansions
    plain: bool  # all of it stands like that


def as_byte_text(text: str) -> str:
    """The text with one character for each of its bytes."""
    return text.encode().decode("latin-1")


def as_display_text(source: str) -> str:
    """A part of a disguised text as people write it."""
    return source.encode("latin-1").decode()


def lex_word(source: str, at: int, end: int, holes: Holes) -> tuple[LexedWord, int]:
    """The word that begins at `at`, and where it ends."""
    lexer = _Lexer(source, at, end, holes)
    return lexer.read_word(), lexer.at


class _Lexer:
    def __init__(self, source: str, at: int, end: int, holes: Holes) -> None:
        self.source, self.at, self.end, self.holes = source, at, end, holes
        self.parts: list[str] = []
        self.known = self.one = True
        self.bare: str | None = None  # set where the first quote or expansion stands
        self.brace = end  # where the first unquoted `{` stands

    def read_word(self) -> LexedWord:
        start = self.at
        while self.at < self.end:
            if self._skip_hole(quoted=False):
                continue
            char = self.source[self.at]
            if char in META:
                break
            if char == "\\":
                self._lex_backslash()
            elif char == "'":
                self._lex_raw()
            elif char == '"':
                self._lex_double()
            elif char == "$":
                self._lex_dollar(quoted=False)
            elif char == "`":
                raise Unreadable("it has a command within backticks")
            else:
                self._lex_unquoted(start)
        if self.brace < self.at and any(sign in self.source[self.brace : self.at] for sign in (",", "..")):
            self.known = self.one = False  # `{a,b}` and `{1..3}` become words; `{}` is itself
        text = "".join(self.parts)
        plain = self.bare is None
        bare = text if self.bare is None else self.bare
        if plain and text in ("[", "[["):  # a command's name, no pattern
            self.known = self.one = True
        return LexedWord(ShellWord(as_display_text(text), self.known, self.one), bare, plain)

    def _lex_unquoted(self, start: int) -> None:
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

    def _end_bare(self) -> None:
        """What stands without quotes ends here."""
        if self.bare is None:
            self.bare = "".join(self.parts)

    def _skip_hole(self, *, quoted: bool) -> bool:
        end = self.holes.get(self.at)
        if end is None:
            return False
        self._end_bare()
        several = self.source[self.at] not in "<>" and (not quoted or self.source.find("@", self.at, end) >= 0)
        self._add_unknown(end, one=not several)
        return True

    def _add_unknown(self, end: int, *, one: bool) -> None:
        # Cut, because each of many nested substitutions holds the others.
        self.parts.append(self.source[self.at : end] if end - self.at <= _LONG else f"{self.source[self.at : self.at + 2]}...")
        self.at, self.known, self.one = end, False, self.one and one

    def _lex_backslash(self) -> None:
        after = self.source[self.at + 1 : min(self.at + 2, self.end)]
        if not after:
            raise Unreadable("it ends with a backslash")
        if after == "\n":
            # The line goes on, within the word too; what stands before and after may be one unquoted name.
            self.at += 2
            return
        self._end_bare()
        self.parts.append(after)
        self.at += 2

    def _lex_raw(self) -> None:
        self._end_bare()
        close = self.source.find("'", self.at + 1, self.end)
        if close < 0:
            raise Unreadable("it has a single quote that is not closed")
        self.parts.append(self.source[self.at + 1 : close])
        self.at = close + 1

    def _lex_double(self) -> None:
        self._end_bare()
        self.at += 1
        while self.at < self.end:
            if self._skip_hole(quoted=True):
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
                self._lex_dollar(quoted=True)
            elif char == "`":
                raise Unreadable("it has a command within backticks")
            elif found := _QUOTED.match(self.source, self.at, self.end):
                self.parts.append(found[0])
                self.at = found.end()
        raise Unreadable("it has a double quote that is not closed")

    def _lex_dollar(self, *, quoted: bool) -> None:
        self._end_bare()
        source, after = self.source, self.at + 1
        if found := _NAME.match(source, after, self.end) or _BRACED.match(source, after, self.end):
            self._add_unknown(found.end(), one=quoted and "@" not in found[0])
            return
        char = source[after] if after < self.end else " "
        if char in "({[":
            raise Unreadable(f"it has a substitution, `${char}…`")
        if not quoted and char == "'":
            string = _ANSI.match(source, after, self.end)
            if string is None:
                raise Unreadable("it has a string `$'…'` that shells do not read alike")
            self._add_unknown(string.end(), one=True)
        elif not quoted and char == '"':
            self.at = after
            self._lex_double()
            self.known = False  # translated when it runs
        elif char in _DOLLAR:
            if char == "\\" and source[after + 1 : after + 2] == "\n":
                raise Unreadable("it has a line that goes on after a dollar")
            self.parts.append("$")
            self.at = after
        else:
            self._add_unknown(after, one=quoted)


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


def scan_commands(text: str) -> ParsedText:
    """Every command of a text of lists and pipes; `Unreadable` for anything more."""
    source = as_byte_text(check_text(text))
    scanner = _Scanner(source, 0, len(source), {}, alone=False)
    scanner.run()
    return ParsedText(tuple(ShellCommand(tuple(words)) for words in scanner.commands), tuple(scanner.assigned))


def scan_simple_command(source: str, start: int, end: int, holes: Holes) -> tuple[list[ShellWord], list[ShellWord]]:
    """The words and the assignments of the one simple command that stands there, with holes where the grammar has read."""
    scanner = _Scanner(source, start, end, holes, alone=True)
    scanner.run()
    return (scanner.commands[0] if scanner.commands else []), scanner.assigned


class _Scanner:
    def __init__(self, source: str, at: int, end: int, holes: Holes, *, alone: bool) -> None:
        self.source, self.at, self.end, self.holes = source, at, end, holes
        self.alone = alone  # one command and no separator: the grammar has promised it
        self.commands: list[list[ShellWord]] = []
        self.assigned: list[ShellWord] = []
        self.words: list[ShellWord] = []
        self.count = 0
        self.target = False  # the next word belongs to a redirection
        self.copies = False  # and that one is `>&` or `<&`
        self.both = False  # `&>` was read: what follows is another command in dash

    def run(self) -> None:
        while self.at < self.end:
            char = self.source[self.at]
            if self.at in self.holes:
                self._scan_word()
            elif char in " \t":
                self.at += 1
            elif self.source.startswith("\\\n", self.at, self.end):
                self.at += 2
            elif char == "#":
                self._skip_comment()
            elif char in "<>" or self.source.startswith("&>", self.at, self.end):
                self._scan_redirection()
            elif char in "\n;&|":
                self._scan_separator(char)
            elif char in "()":
                raise Unreadable("it has parentheses")
            else:
                self._scan_word()
        self._end_command()

    def _scan_word(self) -> None:
        self.count += 1
        if self.count > MOST_WORDS:
            raise TooComplex
        lexed, self.at = lex_word(self.source, self.at, self.end, self.holes)
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
        elif self.words or not self._scan_prefix(lexed):
            self.words.append(lexed.word)

    def _scan_prefix(self, lexed: LexedWord) -> bool:
        """Whether this word in a command's first place is not its name."""
        if found := _ASSIGNMENT.match(lexed.bare):
            if found[1] == "[":
                raise Unreadable("it sets an element of an array")
            self.assigned.append(lexed.word)
            return True
        if (lexed.plain and lexed.bare in RESERVED) or lexed.bare.startswith("{"):  # zsh takes `{rm x}` for a group
            raise Unreadable(f"it has `{lexed.bare}`, which begins more than a simple command")
        if lexed.plain and lexed.bare in ("!", "time"):
            self._check_after(lexed.bare)
            return lexed.bare == "!"
        return False

    def _check_after(self, keyword: str) -> None:
        """After `!` and `time` a shell takes a whole pipeline, so a reserved word is one there too."""
        at = self.at
        while True:
            while at < self.end and self.source[at] in " \t":
                at += 1
            if at >= self.end or self.source[at] in "\n;&|<>()\\" or at in self.holes:
                break
            lexed, at = lex_word(self.source, at, self.end, self.holes)
            if lexed.plain and (lexed.bare in RESERVED or lexed.bare in ("!", "time")):
                raise Unreadable(f"it has `{lexed.bare}` after `{keyword}`, which begins more than a simple command")
            if not lexed.bare.startswith("-"):
                return
        if at < self.end and self.source[at] in "(<>\\":
            raise Unreadable(f"it has more than a simple command after `{keyword}`")

    def _scan_redirection(self) -> None:
        found = _REDIRECTION.match(self.source, self.at, self.end)
        if found is None or self.target:
            raise Unreadable("it has a redirection without a target")
        if found[0] in ("<<", "<<-"):
            raise Unreadable("it has a here-document")
        self.at, self.target = found.end(), True
        self.copies = found[0].endswith("&")
        self.both = self.both or found[0].startswith("&")
        self._check_token_end()

    def _scan_separator(self, char: str) -> None:
        if self.alone:
            raise Unreadable("what the grammar took for one command is several")
        self._end_command()
        self.at += 1
        following = self.source[self.at : self.at + 1]
        if char == ";" and following in (";", "&", "|"):
            raise Unreadable(f"it has `;{following}`")
        if char in "&|" and following and following in ("|&" if char == "|" else "&"):
            self.at += 1
        if char != "\n":
            self._check_token_end()

    def _check_token_end(self) -> None:
        """A line that goes on within an operator may make another one of it."""
        if self.source.startswith("\\\n", self.at, self.end):
            raise Unreadable("it has a line that goes on right after an operator")

    def _skip_comment(self) -> None:
        if self.alone:
            raise Unreadable("what the grammar took for a command is a comment")
        line = self.source.find("\n", self.at, self.end)
        self.at = self.end if line < 0 else line

    def _end_command(self) -> None:
        if self.target:
            raise Unreadable("it has a redirection without a target")
        if self.words:
            self.commands.append(self.words)
        self.words, self.both = [], False


# Without quotes: letters and digits of any script, and these, which mean nothing to any shell of the family. Not among them:
# globs and braces, `~`, `#`, `!`, `^` (a pipe in old shells, a glob in zsh) and every backslash.
_SAFE: Final = frozenset("-_./:,@%+=")
# Within double quotes these still mean something.
_LIVE: Final = frozenset("$`\\!")
_NO_NAME: Final = RESERVED | {"!", "time", "-", "nocorrect", "noglob", ""}


def read_plain_command(text: str) -> tuple[str, ...] | None:
    """The words of the text, when it is one simple command of plain words and nothing else."""
    try:
        check_text(text)
    except Unreadable:
        return None
    words: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == " ":
            at += 1
            continue
        word, at = _read_plain_word(text, at)
        if word is None:
            return None
        words.append(word)
    return tuple(words) if words and _is_name(words[0]) else None


def _read_plain_word(text: str, at: int) -> tuple[str | None, int]:
    """The word that begins at `at` and where it ends; None if it is not plain."""
    parts: list[str] = []
    if text[at] == "=":  # in zsh `=rm` is where rm is
        return None, at
    while at < len(text) and (char := text[at]) != " ":
        if char in "'\"":
            close = text.find(char, at + 1)
            if close < 0:
                return None, at
            inside = text[at + 1 : close]
            # Tabs and newlines are letters within quotes, but no plain ones.
            if find_invisible(inside) is not None or (char == '"' and not _LIVE.isdisjoint(inside)):
                return None, at
            at = close + 1
            if text[at : at + 1] == char:  # `'a''b'`: zsh may take the pair for a quote
                return None, at
            parts.append(inside)
        elif char in _SAFE or char.isalnum():
            parts.append(char)
            at += 1
        else:
            return None, at
    return "".join(parts), at


def _is_name(word: str) -> bool:
    """Whether a shell takes this first word for the name of a command, and not for an assignment, a job or a reserved word."""
    return word not in _NO_NAME and "=" not in word and not word.startswith("%")
