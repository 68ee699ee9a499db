"""What an allow rule may match: ONE simple command of plain words, beyond any doubt.

This is all that stands between a rule such as `git status` and everything else, so it is small, knows no grammar, and refuses what
it does not know. Refusing costs little: the person is asked.
"""

from __future__ import annotations

from typing import Final

from serai.policy.commands.invisible import not_seen
from serai.policy.commands.reading import Unreadable, checked
from serai.policy.commands.scanning import RESERVED

__all__ = ["plain"]

# Without quotes: letters and digits of any script, and these, which mean nothing to any shell of the family. Not among them:
# globs and braces, `~`, `#`, `!`, `^` (a pipe in old shells, a glob in zsh) and every backslash.
_SAFE: Final = frozenset("-_./:,@%+=")
# Within double quotes these still mean something.
_LIVE: Final = frozenset("$`\\!")
_NO_NAME: Final = RESERVED | {"!", "time", "-", "nocorrect", "noglob", ""}


def plain(text: str) -> tuple[str, ...] | None:
    """The words of the text, when it is one simple command of plain words and nothing else."""
    try:
        checked(text)
    except Unreadable:
        return None
    words: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == " ":
            at += 1
            continue
        word, at = _word(text, at)
        if word is None:
            return None
        words.append(word)
    return tuple(words) if words and _is_name(words[0]) else None


def _word(text: str, at: int) -> tuple[str | None, int]:
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
            if not_seen(inside) is not None or (char == '"' and not _LIVE.isdisjoint(inside)):
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
