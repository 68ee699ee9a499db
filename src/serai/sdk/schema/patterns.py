r"""The patterns of JSON Schema, which are those of ECMA 262 and not Python's.

A pattern goes out in the schema for others to read, and is matched here by Python. So it is read piece by piece: what ECMA 262 or
a host's linear-time engine does not have is refused when it is imported, with what to write instead, and the rest is put into
Python's words. `$` is the very end and not also before a last newline, `\d`, `\w` and `\b` are about ASCII, `\s` about the spaces
that ECMA 262 knows. (Our host's engine differs where it can: its `\b` is about the letters of all scripts, and its dot matches a
carriage return, as it then does here.)

Python matches by trying, so a pattern can be slow for its own author: where a quantifier is inside another, as in `^(a+)+$`, each
further character doubles the time. Do without, or give the text a `maxLength`: what is longer is not matched at all.
"""

from __future__ import annotations

import re
from functools import lru_cache  # imported with `re` anyway

__all__ = ["BadPattern", "compiled"]

_SIZE = 1000  # of a pattern, its repetitions written out: more is too big for the engines that know no backtracking
_DEPTH = 50  # of groups in groups: some engines end at 64

_SYNTAX = "^$\\.*+?()[]{}|/"  # what may stand behind a backslash for itself
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
_SPACES = r"\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NO_SPACES = (
    r"\0-\x08\x0e-\x1f!-\u009f\u00a1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff\u3001-\ufefe"
    r"\uff00-\U0010ffff"
)
_CLASSES = {"d": r"\d", "D": r"\D", "w": r"\w", "W": r"\W", "s": _SPACES, "S": _NO_SPACES}

_QUANTIFIER = r"([*+?]|\{([0-9]{1,9})(,([0-9]{0,9}))?\})\??"
_CODE = r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}"
_NAMED = r"\?<([A-Za-z_][A-Za-z0-9_]*)>"

_IN_THE_HANDLER = "check it in the handler: a host that takes in any pattern cannot look around or back"
_ITSELF = r"write the character itself, or \u{…} with its number"

# What Python has and others have not, with what to write instead.
_INSTEAD = {
    "A": "write ^",
    "Z": "write $",
    "a": r"write \x07",
    "b": r"write \x08",
    "c": r"write \x and its number",
    "0": r"write \x00",
    "N": _ITSELF,
    "U": _ITSELF,
    "x": r"write two digits, as in \x41",
    "u": r"write four digits, as in \u00e9, or any number of them, as in \u{1f600}",
    "p": "write the characters that are meant, as in [a-z]",
    "P": "write the characters that are meant, as in [^a-z]",
    **dict.fromkeys("123456789k", _IN_THE_HANDLER),
}
_GROUPS = {
    **dict.fromkeys(("?=", "?!", "?<=", "?<!", "?P="), _IN_THE_HANDLER),
    "?P<": "write (?<name>…), or no name",
    "?<": "its name is made of letters, digits and _",
    "?>": "write (?:…)",
    "?(": "write what is meant as alternatives: …|…",
    "?#": "leave the comment out",
    "?": "flags cannot be set: write both cases, as in [Aa]",
}


class BadPattern(Exception):
    """It is no pattern that everyone reads alike. Says what is wrong and what to write instead."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


@lru_cache(maxsize=512)  # as `re` keeps its own
def compiled(pattern: str) -> re.Pattern[str]:
    """The same for Python; raises `BadPattern`."""
    translation = _Translation(pattern)
    translation.whole()
    try:
        return re.compile("".join(translation.out), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadPattern(f"is not understood: {error}", "write it another way") from None


class _Translation:
    """A pattern read from left to right. What reads a part of it returns the size of that."""

    def __init__(self, pattern: str) -> None:
        self.out: list[str] = []
        self._pattern = pattern
        self._at = 0
        self._depth = 0
        self._names: set[str] = set()

    def whole(self) -> None:
        self._alternatives()
        if self._next:
            raise BadPattern('has a ")" too many', r"write \) for the character")

    @property
    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self, expected: str) -> bool:
        found = self._pattern.startswith(expected, self._at)
        self._at += len(expected) if found else 0
        return found

    def _match(self, expression: str) -> re.Match[str] | None:
        found = re.compile(expression).match(self._pattern, self._at)
        self._at = found.end() if found else self._at
        return found

    def _alternatives(self) -> int:
        size = self._sequence()
        while self._take("|"):
            self.out.append("|")
            size += self._sequence()
        if size > _SIZE:
            raise BadPattern("has too much in it, repetitions counted", "say how long a text is with minLength and maxLength")
        return max(1, size)

    def _sequence(self) -> int:
        size = 0
        while self._next and self._next not in "|)":
            size += self._term()
        return size

    def _term(self) -> int:
        char, size = self._next, 1
        self._at += 1
        if char in "^$" or (char == "\\" and self._next in ("b", "B")):
            self._assertion(char)
            return size
        if char == "(":
            size = self._group()
        elif char == "[":
            self._class()
        elif char == "\\":
            text, code = self._escape()
            self.out.append(f"[{text}]" if code is None else text)
        elif char == ".":
            self.out.append(char)
        elif char in "*+?":
            raise BadPattern(f'has a "{char}" with nothing to repeat', rf"write \{char} for the character")
        elif char in "{}]":
            raise BadPattern(f'has a lone "{char}"', rf"write \{char} for the character, and {{0,9}} for at most nine of something")
        else:
            self.out.append(_literal(ord(char)))
        return size * self._quantifier()

    def _assertion(self, char: str) -> None:
        if char == "\\":
            # Before Python 3.14 its own \B does not match in an empty text.
            self.out.append(r"\b" if self._next == "b" else r"(?!\b)")
            self._at += 1
        else:
            self.out.append("^" if char == "^" else r"\Z")
        if self._match(_QUANTIFIER):
            raise BadPattern("repeats what is no character", "leave the quantifier out")

    def _group(self) -> int:
        if (named := self._match(_NAMED)) and named[1] in self._names:
            raise BadPattern(f'has two groups named "{named[1]}"', "leave the names out")
        self._names |= {named[1]} if named else set()
        if not named and not self._take("?:") and self._next == "?":
            start = max((one for one in _GROUPS if self._pattern.startswith(one, self._at)), key=len)
            raise BadPattern(f'has a group that begins with "({start}"', _GROUPS[start])
        self._depth += 1
        if self._depth > _DEPTH:
            raise BadPattern("has groups that are nested too deep", "leave some out")
        self.out.append("(?:")
        size = self._alternatives()
        if not self._take(")"):
            raise BadPattern('has a "(" that is not closed', r"write \( for the character")
        self.out.append(")")
        self._depth -= 1
        return size

    def _class(self) -> None:
        self.out.append("[^" if self._take("^") else "[")
        if self._next == "]":
            raise BadPattern('has an empty "[]"', r"write \] for the character")
        while self._next and self._next != "]":
            start, first = self._member()
            self.out.append(start)
            if self._next == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                end, last = self._member()
                if first is None or last is None or first > last:
                    raise BadPattern('has a "-" that is between no two characters in order', r"write \- for the character")
                self.out.append(f"-{end}")
        if not self._take("]"):
            raise BadPattern('has a "[" that is not closed', r"write \[ for the character")
        self.out.append("]")

    def _member(self) -> tuple[str, int | None]:
        """One thing in a class and, if it is one character, which."""
        char = self._next
        self._at += 1
        return self._escape("-") if char == "\\" else (_literal(ord(char)), ord(char))

    def _escape(self, more: str = "") -> tuple[str, int | None]:
        """What a backslash begins: the inside of a class, or one character and which."""
        if found := self._match(_CODE):
            code = int(found[1] or found[2] or found[3], 16)
            return _literal(code), code
        char = self._next
        self._at += 1
        if char in _CLASSES:
            return _CLASSES[char], None
        if char and char in _SYNTAX + more:
            return _literal(ord(char)), ord(char)
        if char in _CONTROLS:
            return _literal(ord(_CONTROLS[char])), ord(_CONTROLS[char])
        raise BadPattern(rf"has \{char}", _INSTEAD.get(char, r"leave the backslash out, or write \\ for the character"))

    def _quantifier(self) -> int:
        """How often the last term is repeated, at most."""
        found = self._match(_QUANTIFIER)
        if found is None:
            return 1
        self.out.append(found[0])
        if self._match(_QUANTIFIER):
            raise BadPattern("has a quantifier right behind another", "leave one of them out, or write (?:…) around the first")
        least, most = int(found[2] or 0), int(found[4] or 0)
        if found[4] and least > most:
            raise BadPattern(f"has {found[1]}, of which the first number is the greater", "write the smaller one first")
        return max(1, least, most)


def _literal(code: int) -> str:
    """One character, as it is written in and out of a class."""
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise BadPattern("has the number of no character", _ITSELF)
    return re.escape(chr(code))
