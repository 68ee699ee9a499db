"""What a shell's own commands may evaluate besides: names, subscripts and numbers that are commands in disguise.

bash reads `a[$(rm x)]` wherever it takes the name of a variable or a number, so these are hidden unless they are plain; and the
name must not be one of those variables that are more than data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from serai.policy.commands.reading import Word
from serai.policy.commands.settings import set_options, shopt
from serai.policy.commands.unwrapping import ASSIGNMENT, Arguments, Inside, Look, Unseen, is_operand
from serai.policy.commands.variables import declared, special

__all__ = ["BUILTINS"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ATTACHED = re.compile(r"-[A-Za-z]")


def _names(args: Arguments) -> Inside:
    """`read`, `mapfile` and others: every word may be the name of a variable, also one that is attached to an option."""
    for word in args.command.words[1:]:
        if "[" in word.text or not word.known:
            raise Unseen(f"`{args.name}` takes a name that may be more than one")
        if special(word.text) or special(_ATTACHED.sub("", word.text, count=1)):
            raise Unseen(f"`{args.name}` sets `{word.text}`, which is more than data")
    if args.command.more:
        raise Unseen(f"`{args.name}` takes names that are not known yet")
    return Inside()


def _plain(args: Arguments) -> Inside:
    """`exit` and others: to some shells a number is an expression. What a variable says is left alone: it is `$?` or so."""
    if any("[" in word.text for word in args.command.words[1:] if word.known):
        raise Unseen(f"`{args.name}` evaluates its words")
    return Inside()


def _with(letters: str, why: str, *, also: Look | None = None) -> Look:
    """Hidden with one of these options, with a subscript, and where a word may become either."""

    def look(args: Arguments) -> Inside:
        for word in args.command.words[1:]:
            text = word.text
            option = text[:1] in ("-", "+") and any(letter in text for letter in letters)
            if option or "[" in text.partition("=")[0] or not (word.known or ASSIGNMENT.match(text)):
                raise Unseen(f"`{args.name}` {why}")
        return also(args) if also else Inside()

    return look


def _declares(args: Arguments) -> Inside:
    """What is declared is set; with `-a` the others of the family read a value as `declare` does."""
    words = args.command.words[1:]
    arrays = any(word.text[:1] == "-" and not {"a", "A"}.isdisjoint(word.text) for word in words)
    found = [declared(word, "declare" if arrays else args.name) for word in words if ASSIGNMENT.match(word.text)]
    return Inside(
        hidden=tuple(why for inside in found for why in inside.hidden),
        assigned=tuple(word for inside in found for word in inside.assigned),
    )


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
    if len(words) < 2:
        return Inside()
    if not words[1].known and not is_operand(words[1]) and not words[1].text.startswith(("%", "\\")) and len(words) > 2:
        raise Unseen("`printf` has a first word that may be an option")
    if words[1].text.startswith("-v"):
        target = words[1].text[2:] or (words[2].text if len(words) > 2 and words[2].known else "")
        if not _NAME.fullmatch(target) or special(target):
            raise Unseen("`printf -v` takes a name that may be a command, or is more than data")
    return Inside()


def _always(why: str) -> Look:
    def look(args: Arguments) -> Inside:
        if len(args.command.words) > 1 or args.command.more:
            raise Unseen(f"`{args.name}` {why}")
        return Inside()

    return look


def _hash(args: Arguments) -> Inside:
    if any("=" in word.text for word in args.command.words[1:]):  # zsh
        raise Unseen("`hash` gives a command another name")
    return Inside()


_DECLARES = _with("in", "makes a variable whose value is evaluated", also=_declares)
_EXPORTS = _with("", "takes a name that may be more than one", also=_declares)
_RUNS: Final = "may run what it is given"
# Most of these are zsh's and ksh's own.
_ALWAYS: Final[Mapping[str, str]] = {
    "alias": "gives a command another name",
    "fc": "runs commands of the past",
    "let": "evaluates its words",
    **dict.fromkeys(("integer", "float", "nameref", "compound"), "makes a variable whose value is evaluated"),
    **dict.fromkeys(("compgen", "complete", "emulate", "sched", "bind", "bindkey", "zle", "add-zsh-hook", "zstyle"), _RUNS),
    **dict.fromkeys(("setopt", "unsetopt"), "changes how a text is read"),
    **dict.fromkeys(("zmodload", "autoload", "functions"), "loads commands from a file"),
    **dict.fromkeys(("vared", "zparseopts", "zformat"), "sets a variable that may be more than data"),
}

BUILTINS: Final[Mapping[str, Look]] = {
    **{name: _always(why) for name, why in _ALWAYS.items()},
    "hash": _with("p", "gives a command another name", also=_hash),
    "enable": _with("f", "loads commands from a file"),
    "history": _with("anprsw", "changes what `!` stands for"),
    "jobs": _with("x", _RUNS),
    "mapfile": _with("C", _RUNS, also=_names),
    "readarray": _with("C", _RUNS, also=_names),
    "print": _with("sSv", "keeps what it is given"),
    **dict.fromkeys(("declare", "typeset", "local"), _DECLARES),
    "readonly": _DECLARES,
    "export": _EXPORTS,
    **dict.fromkeys(("read", "getopts", "wait", "unset"), _names),
    **dict.fromkeys(("exit", "return", "shift", "break", "continue"), _plain),
    "set": set_options,
    "shopt": shopt,
    "printf": _printf,
    "test": _test,
    "[": _test,
}
