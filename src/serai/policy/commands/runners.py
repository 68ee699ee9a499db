"""Commands that run other commands and need a look of their own; the table is in `wrappers`.

The rule for all of them: what is certain becomes a command or a text, what is not becomes a sentence about what is hidden.
"""

from __future__ import annotations

import re
from posixpath import normpath
from typing import Final

from serai.policy.commands.reading import Command, Word
from serai.policy.commands.unwrapping import ASSIGNMENT, Arguments, Inside, Options, Unseen, reads, runs

__all__ = [
    "SHELL_OPENS",
    "assignments",
    "chrt",
    "env",
    "evaluate",
    "find",
    "flock",
    "is_assignment",
    "script",
    "shell",
    "source",
    "ssh",
    "start_stop_daemon",
    "su",
    "trap",
    "watch",
    "xargs",
]

# Where a program's input can be opened like a file, however the path to it is written.
_INPUT = re.compile(r"-|(?:.*/)?(?:stdin|tty[^/]*|(?:fd/|pts/)?[0-9]+)")
SHELL_OPENS: Final = "opens a shell that reads its commands from its input"


def _is_input(path: str) -> bool:
    return _INPUT.fullmatch(normpath(path)) is not None


def is_assignment(word: Word) -> bool:
    """Whether a word sets a variable; its value need not be known, its name is."""
    return ASSIGNMENT.match(word.text) is not None


def assignments(args: Arguments) -> tuple[Word, ...]:
    words = args.command.words
    start = args.at
    # To these programs every word with a `=` is one, whatever stands before it.
    while args.at < len(words) and (is_assignment(words[args.at]) if not words[args.at].known else "=" in words[args.at].text):
        if not words[args.at].one:
            raise Unseen(f"`{args.name}` has words that are known only when it runs")
        args.at += 1
    return words[start : args.at]


# bash takes its long options with one dash too.
_SHELL_LONG: Final = frozenset({"norc", "noprofile", "posix", "login", "restricted", "verbose", "noediting", "no-rcs", "norcs"})
_SHELL_LETTERS: Final = frozenset("abcefhiklmnoprstuvxBCEHOPT")


def shell(args: Arguments) -> Inside:
    """`sh`, `bash` and their family: `-c TEXT`, a script, or commands from the input."""
    letters: set[str] = set()
    while (word := args.peek()) is not None and word[:1] in ("-", "+"):
        args.at += 1
        if word in ("--", "-"):
            break
        name = word.lstrip("-")
        if name in ("rcfile", "init-file"):
            args.value()
        elif name in _SHELL_LONG:
            continue
        elif not _SHELL_LETTERS.issuperset(word[1:]) or {"o", "O"} & set(word[1:-1]):
            raise Unseen(f"`{args.name}` has the option `{word}`, which is not known here")
        elif word[-1] in "oO":
            args.value()
        letters |= set(word[1:])
    if "c" in letters:
        return reads(args.value() if args.at < len(args.command.words) else None, f"{args.name} -c")
    script = args.peek()
    if "s" in letters or script is None or _is_input(script):
        raise Unseen(f"`{args.name}` reads its commands from its input")
    return Inside()  # a file: as opaque as any other program


def env(args: Arguments) -> Inside:
    options = Options(
        flags="i0v",
        values="uCS",
        long="ignore-environment null debug block-signal default-signal ignore-signal list-signal-handling",
        long_values="unset chdir split-string",
    )
    for option in args.options(options):
        if option.name in ("S", "split-string"):
            return _split(args, option.value)
    if args.at < len(args.command.words) and args.command.words[args.at] == Word("-"):
        args.at += 1
    assigned = assignments(args)
    return runs(args.rest())._replace(assigned=assigned)


def _split(args: Arguments, value: Word | None) -> Inside:
    """`env -S TEXT`: env splits it by rules of its own, then reads it all as its arguments."""
    if value is None or not value.known or re.search(r"[\\$'\"#]", value.text):
        raise Unseen("`env -S` splits a text that is not plain")
    words = tuple(Word(text) for text in value.text.split())
    return runs(Command((Word("env"), *words, *args.command.words[args.at :]), args.command.more))


def xargs(args: Arguments) -> Inside:
    options = Options(
        flags="0oprtx",
        values="adEILnPs",
        maybe="eil",
        long="null open-tty interactive no-run-if-empty verbose exit show-limits eof replace max-lines",
        long_values="arg-file delimiter max-args max-procs max-chars process-slot-var",
    )
    mark = ""
    for option in args.options(options):
        if option.name in ("I", "i", "replace"):
            if option.value is not None and not option.value.known:
                raise Unseen("`xargs` puts its words where a mark stands that is known only when it runs")
            mark = (option.value.text if option.value else "") or "{}"
    command = args.rest()
    if command is None:
        return Inside((Command((Word("echo"),), more=True),))
    words = tuple(word._replace(known=False) if mark and mark in word.text else word for word in command.words)
    return Inside((Command(words, more=True),))


def find(args: Arguments) -> Inside:
    """Every `-exec` and its kin, up to its `;` or `+`."""
    words = args.command.words
    commands: list[Command] = []
    hidden: list[str] = []
    if args.command.more or not all(word.known for word in words):
        hidden.append("`find` has words that are known only when it runs")
    at = 1
    while at < len(words):
        at += 1
        if words[at - 1].text not in ("-exec", "-execdir", "-ok", "-okdir"):
            continue
        start = at
        while at < len(words) and words[at].text != ";" and not (words[at].text == "+" and words[at - 1].text == "{}"):
            at += 1
        inner = tuple(word._replace(known=False) if "{}" in word.text else word for word in words[start:at])
        if inner:
            several = words[at : at + 1] == (Word("+"),)
            commands.append(Command(inner[:-1] if several else inner, more=several))
    return Inside(tuple(commands), hidden=tuple(hidden))


def su(args: Arguments) -> Inside:
    """`su` and `runuser`: options and operands in any order, a text after `-c`."""
    options = Options(
        flags="flmpPT",
        values="cgGuw",
        long="login fast preserve-environment pty no-pty",
        long_values="command session-command group supp-group user whitelist-environment",
    )
    user = False
    text: Word | None = None
    while args.at < len(args.command.words) or args.command.more:
        before = args.at
        for option in args.options(options):
            if option.name in ("c", "command", "session-command"):
                text = option.value
            user |= args.name == "runuser" and option.name in ("u", "user")
        if user:
            return runs(args.rest())
        if args.at < len(args.command.words) and args.at == before:
            args.value()
    if text is None:
        raise Unseen(f"`{args.name}` {SHELL_OPENS}")
    return reads(text, f"{args.name} -c")


def flock(args: Arguments) -> Inside:
    options = Options(
        flags="seunxoF",
        values="wE",
        long="shared exclusive unlock nonblock nb close no-fork verbose",
        long_values="wait timeout conflict-exit-code",
    )
    for _ in args.options(options):
        pass
    args.value()
    if args.at < len(args.command.words) and args.command.words[args.at].text in ("-c", "--command"):
        args.at += 1
        return reads(args.value(), "flock -c")
    return runs(args.rest())


def script(args: Arguments) -> Inside:
    options = Options(
        flags="aefq",
        values="cEIoOBmT",
        maybe="t",
        long="append return flush force quiet timing",
        long_values="command echo log-in log-out log-io log-timing logging-format output-limit",
    )
    for option in args.options(options):
        if option.name in ("c", "command"):
            return reads(option.value, "script -c")
    raise Unseen(f"`script` {SHELL_OPENS}")


def watch(args: Arguments) -> Inside:
    options = Options(
        flags="bcCegprtwx",
        values="nqs",
        maybe="d",
        long="beep color no-color differences errexit chgexit precise no-rerun no-title no-wrap exec",
        long_values="interval equexit shotsdir",
    )
    seen = {option.name for option in args.options(options)}
    if seen & {"x", "exec"}:
        return runs(args.rest())
    return Inside(texts=(args.joined(),))


def ssh(args: Arguments) -> Inside:
    """The far side's shell reads the words; for a rule it is a command like any other."""
    options = Options(flags="46AaCfGgKkMNnqsTtVvXxYy", values="BbcDEeFIiJLlmOoPpQRSWw")
    for host in (True, False):  # options may stand before and after it
        for option in args.options(options):
            value = option.value
            if option.name == "o" and (value is None or not value.known or "command" in value.text.lower()):
                raise Unseen("`ssh` has an option that may run a command")
        if host:
            args.take()
    if text := args.joined():
        return Inside(texts=(text,))
    raise Unseen(f"`ssh` {SHELL_OPENS}")


def start_stop_daemon(args: Arguments) -> Inside:
    program: Word | None = None
    options = Options(
        flags="KSTHVbCDmNotqv",
        values="acdgknpPRrsux",
        long="start stop status test oknodo quiet verbose background make-pidfile remove-pidfile",
        long_values="exec startas pidfile name user chuid group chdir chroot signal retry nicelevel output",
    )
    for option in args.options(options):
        if option.name in ("x", "a", "exec", "startas"):
            program = option.value
    words = args.command.words[args.at :]
    return runs(Command((program, *words), args.command.more)) if program else Inside()


def source(args: Arguments) -> Inside:
    """`source FILE`: a file is as opaque as a program, the input is not to be seen."""
    if (file := args.take()) is not None and file == "--":
        file = args.take()
    if file is not None and _is_input(file):
        raise Unseen(f"`{args.name}` reads its commands from its input")
    return Inside()


def evaluate(args: Arguments) -> Inside:
    if args.at < len(args.command.words) and args.command.words[args.at].text == "--":
        args.at += 1
    return Inside(texts=(args.joined(),))


def trap(args: Arguments) -> Inside:
    seen = {option.name for option in args.options(Options(flags="lpP"))}
    action = args.take()
    if seen or action in (None, "-", "") or args.peek() is None:
        return Inside()
    return Inside(texts=(action or "",))


def chrt(args: Arguments) -> Inside:
    """The priority may be left out with some policies."""
    options = Options(
        flags="abdefiomprRv",
        values="DPT",
        long="batch deadline ext fifo idle other rr reset-on-fork all-tasks max pid verbose",
        long_values="sched-deadline sched-period sched-runtime",
    )
    for _ in args.options(options):
        pass
    if (word := args.peek()) is not None and word.isdecimal():
        args.at += 1
    return runs(args.rest())
