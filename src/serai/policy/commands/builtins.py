"""What a shell's own commands may evaluate besides: names, subscripts and numbers that are commands in disguise.

bash reads `a[$(rm x)]` wherever it takes the name of a variable or a number, so these are hidden unless they are plain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from serai.policy.commands.reading import Word
from serai.policy.commands.unwrapping import ASSIGNMENT, Arguments, Inside, Look, Unseen

__all__ = ["BUILTINS", "evaluated"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Variables whose value is a command that some program runs, and those whose value a shell expands when it shows a prompt.
_RUN: Final = frozenset(
    {"EDITOR", "VISUAL", "PAGER", "BROWSER", "MANPAGER", "LESSOPEN", "LESSCLOSE", "SUDO_ASKPASS", "SSH_ASKPASS", "PROMPT_COMMAND"}
    | {"GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_EXTERNAL_DIFF"}
    | {"GIT_PROXY_COMMAND"}
)
_PROMPTS: Final = frozenset({"PS0", "PS1", "PS2", "PS4", "PROMPT", "RPROMPT"})


def evaluated(assigned: Word) -> Inside:
    """What runs because a variable is set like this."""
    name, _, value = assigned.text.partition("=")
    name = name.removesuffix("+")
    if name in _RUN:
        if not assigned.known:
            return Inside(hidden=(f"`{name}` is a command that is known only when it runs",))
        return Inside(texts=(value,))
    if name in _PROMPTS and (not assigned.known or re.search(r"[$`]", value)):
        return Inside(hidden=(f"a shell expands `{name}` when it shows a prompt",))
    return Inside()


def _names(args: Arguments) -> Inside:
    """`read`, `unset` and others: every word may be the name of a variable."""
    for word in args.command.words[1:]:
        if "[" in word.text or not word.known:
            raise Unseen(f"`{args.name}` takes a name that may be more than one")
    return Inside()


def _with(letters: str, why: str) -> Look:
    """Hidden with one of these options, with a subscript, and where a word may become either."""

    def look(args: Arguments) -> Inside:
        for word in args.command.words[1:]:
            text = word.text
            option = text[:1] in ("-", "+") and any(letter in text for letter in letters)
            if option or "[" in text.partition("=")[0] or not (word.known or ASSIGNMENT.match(text)):
                raise Unseen(f"`{args.name}` {why}")
        return Inside()

    return look


def _test(args: Arguments) -> Inside:
    """`[ -v NAME ]` reads a subscript; words that are not known may be that."""
    words = args.command.words[1:]
    for word, following in zip(words, (*words[1:], Word("")), strict=False):
        unknown = not word.one or (not word.known and not following.known)
        named = word.text in ("-v", "-R") and not (following.known and _NAME.fullmatch(following.text))
        if unknown or named:
            raise Unseen(f"`{args.name}` may read a name that is a command")
    return Inside()


def _printf(args: Arguments) -> Inside:
    words = args.command.words
    if len(words) > 1 and (not words[1].known or words[1].text.startswith("-v")):
        target = words[1].text[2:] or (words[2].text if len(words) > 2 and words[2].known else "")
        if words[1].text.startswith("-v") and not _NAME.fullmatch(target):
            raise Unseen("`printf -v` takes a name that may be a command")
    return Inside()


def _always(why: str) -> Look:
    def look(args: Arguments) -> Inside:
        if len(args.command.words) > 1 or args.command.more:
            raise Unseen(f"`{args.name}` {why}")
        return Inside()

    return look


_DECLARES = _with("in", "makes a variable whose value is evaluated")

BUILTINS: Final[Mapping[str, Look]] = {
    "alias": _always("gives a command another name"),
    "fc": _always("runs commands of the past"),
    "let": _always("evaluates its words"),
    "compgen": _always("may run what it is given"),
    "complete": _always("may run what it is given"),
    "emulate": _always("may run what it is given"),
    "sched": _always("may run what it is given"),
    "hash": _with("p", "gives a command another name"),
    "enable": _with("f", "loads commands from a file"),
    "jobs": _with("x", "may run what it is given"),
    "mapfile": _with("C", "may run what it is given"),
    "readarray": _with("C", "may run what it is given"),
    "declare": _DECLARES,
    "typeset": _DECLARES,
    "local": _DECLARES,
    "readonly": _DECLARES,
    "export": _with("", "takes a name that may be more than one"),
    "read": _names,
    "unset": _names,
    "getopts": _names,
    "wait": _names,
    "printf": _printf,
    "test": _test,
    "[": _test,
}
