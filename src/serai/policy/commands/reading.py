"""What was read of a command: the words of this part of the house."""

from __future__ import annotations

from typing import NamedTuple

from serai.policy.commands.invisible import named, not_seen

__all__ = ["Command", "Parsed", "Reading", "TooMuch", "Unreadable", "Word", "checked"]

# A longer text is not read at all: nobody approves what takes an hour to read, and every reader here stays quick on it.
MOST_TEXT = 64 * 1024
# So deep are wrappers and texts within texts followed, and so many commands are looked at; past it they are hidden.
MOST_DEPTH = 16
MOST_COMMANDS = 1024
# So many words are looked at over all depths, and so many characters of texts within texts: hostile nesting repeats them.
MOST_WORDS = 2048
MOST_WITHIN = 64 * 1024
TOO_MANY_WORDS = "it has more words than are looked at"


class Word(NamedTuple):
    """One word of a command. `text` is what the program gets, as far as it is known before it runs."""

    text: str
    known: bool = True  # False: part of it is known only when it runs (`$x`, a glob); `text` then shows how it is written
    one: bool = True  # False: it may become none or several words


class Command(NamedTuple):
    """One command: its name and its words. `more`: further words follow that nobody knows yet."""

    words: tuple[Word, ...]
    more: bool = False


class Reading(NamedTuple):
    """What a command text, or an argv, would run, as far as it can be seen without running it."""

    simple: tuple[str, ...] | None
    commands: tuple[Command, ...] = ()
    unread: str = ""
    hidden: tuple[str, ...] = ()


class Parsed(NamedTuple):
    """What one reader found in one text; nobody has looked behind wrappers yet."""

    commands: tuple[Command, ...] = ()
    assigned: tuple[Word, ...] = ()  # `NAME=value` in front of commands or alone
    hidden: tuple[str, ...] = ()


class Unreadable(Exception):
    """A text that a reader is not certain about; the message is a sentence for a person."""


class TooMuch(Unreadable):
    """A text that is too much for every reader."""

    def __init__(self) -> None:
        super().__init__(TOO_MANY_WORDS)


def checked(text: str) -> str:
    """`text`, if a reader may look at it at all; else `Unreadable` says why not."""
    if len(text) > MOST_TEXT:
        raise Unreadable(f"it is longer than {MOST_TEXT // 1024} KiB")
    # Shells, terminals and people do not agree on these: nothing with one of them is taken as read.
    if char := not_seen(text.replace("\n", "").replace("\t", "")):
        raise Unreadable(f"it has the character {named(char)}, which is not seen or not read the same everywhere")
    return text
