"""Commands that run other commands and need a look of their own; the table is in `wrappers`.

The rule for all of them: what is certain becomes a command or a text, what is not becomes a sentence about what is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from serai.policy.commands.invisible import not_seen
from serai.policy.commands.reading import Command, Word
from serai.policy.commands.settings import LETTERS, harmless
from serai.policy.commands.unwrapping import ASSIGNMENT, Arguments, Inside, Options, Unseen, is_input, reads, runs

__all__ = [
    "SHELL_OPENS",
    "assignments",
    "chrt",
    "env",
    "evaluate",
    "find",
    "flock",
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

SHELL_OPENS: Final = "opens a shell that reads its commands from its input"
_MOST_EXECS = 64  # of one `find`; each may be what another one's words are


def assignments(args: Arguments) -> tuple[Word, ...]:
    words = args.command.words
    start = args.at
    # To these programs every word with a `=` is one, whatever stands before it.
    while args.at < len(words) and ("=" in words[args.at].text if words[args.at].known else ASSIGNMENT.match(words[args.at].text)):
        if not words[args.at].one:
            raise Unseen(f"`{args.name}` has words that are known only when it runs")
        args.at += 1
    return words[start : args.at]


# bash takes its long options with one dash too.
_SHELL_LONG: Final = frozenset({"norc", "noprofile", "posix", "login", "restricted", "verbose", "noediting", "no-rcs", "norcs"})
_SHELL_LETTERS: Final = LETTERS | frozenset("cilorsO")


def shell(args: Arguments) -> Inside:
    """`sh`, `bash` and their family: `-c TEXT`, a script, or commands from the input."""
    letters: set[str] = set()
    hidden: list[str] = []
    while (word := args.peek()) is not None and word[:1] in ("-", "+"):
        args.at += 1
        if word in ("--", "-"):
            break
        name = word.lstrip("-")
        if name in ("rcfile", "init-file"):
            file = args.value()
            if not file.known or is_input(file.text):
                hidden.append(f"`{args.name}` reads its first commands from its input")
            continue
        if name in _SHELL_LONG:
            continue
        if not _SHELL_LETTERS.issuperset(word[1:]) or {"o", "O"} & set(word[1:-1]):
            raise Unseen(f"`{args.name}` has the option `{word}`, which is not known here")
        if word[-1] in "oO" and not ((option := args.value()).known and harmless(word[-1], option.text)):
            hidden.append(f"`{args.name}` has the option `{option.text}`, which changes how a text is read")
        letters |= set(word[1:])
    if "i" in letters:
        hidden.append(f"`{args.name} -i` has a history and aliases, which change how a text is read")
    if "c" in letters:
        text = reads(args.value() if args.at < len(args.command.words) else None, f"{args.name} -c")
        return text._replace(hidden=tuple(hidden))
    script = args.peek()
    if "s" in letters or script is None or is_input(script):
        raise Unseen(f"`{args.name}` reads its commands from its input")
    # A file, also one of the path: as opaque as any other program, and denied by its own name too.
    return runs(args.rest())._replace(hidden=tuple(hidden))


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
    texts = [text for text in re.split(r"[ \t\n\v\f\r]", value.text) if text]
    if any(not_seen(text) for text in texts):
        raise Unseen("`env -S` splits a text with characters that are not seen")
    words = tuple(map(Word, texts))
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
    # What stands for the mark is not known, so it must not look like a name or a value.
    words = tuple(
        Word(word.text.replace(mark, "$"), known=False, one=word.one) if mark and mark in word.text else word
        for word in command.words
    )
    return Inside((Command(words, more=True),))


def find(args: Arguments) -> Inside:
    """Every `-exec` and its kin, up to its `;` or `+`; also one that may be the operand of something else."""
    words = args.command.words
    commands: list[Command] = []
    hidden: list[str] = []
    if args.command.more or not all(word.known for word in words):
        hidden.append("`find` has words that are known only when it runs")
    starts = [at for at, word in enumerate(words, 1) if word.text in ("-exec", "-execdir", "-ok", "-okdir")]
    if len(starts) > _MOST_EXECS:
        hidden.append("`find` runs more commands than are looked at")
    for start in starts[:_MOST_EXECS]:
        at = start
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
    users = ("u", "user") if args.name == "runuser" else ()
    start = args.at
    if not {option.name for option in args.options(options)}.isdisjoint(users):
        return runs(args.rest())
    args.at = start
    found = list(args.everywhere(options))
    if any(option.name in users for option in found):
        raise Unseen(f"`{args.name}` runs its words in a way that is not certain")
    texts = [option.value for option in found if option.name in ("c", "command", "session-command")]
    return _all(texts, f"{args.name} -c") or _opens(args)


def _all(texts: Sequence[Word | None], who: str) -> Inside | None:
    """Every text that was given: which one counts differs."""
    found = [text for word in texts for text in reads(word, who).texts]
    return Inside(texts=tuple(found)) if found else None


def _opens(args: Arguments) -> Inside:
    raise Unseen(f"`{args.name}` {SHELL_OPENS}")


def flock(args: Arguments) -> Inside:
    options = Options(
        flags="seunxoF",
        values="wE",
        long="shared exclusive unlock nonblock nb close no-fork verbose",
        long_values="wait timeout conflict-exit-code",
    )
    for _ in args.options(options):
        pass
    args.operand()
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
    texts = [option.value for option in args.everywhere(options) if option.name in ("c", "command")]
    return _all(texts, "script -c") or _opens(args)


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


# None of these runs anything, whatever the value is.
_SSH_KEY = re.compile(
    r"(?:AddKeysToAgent|BatchMode|Compression|ConnectTimeout|ConnectionAttempts|ControlMaster|ControlPath|ControlPersist"
    r"|ExitOnForwardFailure|ForwardAgent|GlobalKnownHostsFile|HostName|IdentitiesOnly|IdentityFile|LogLevel|PasswordAuthentication"
    r"|Port|PreferredAuthentications|PubkeyAuthentication|RequestTTY|ServerAliveCountMax|ServerAliveInterval"
    r"|StrictHostKeyChecking|TCPKeepAlive|User|UserKnownHostsFile)[ =]",
    re.IGNORECASE | re.ASCII,
)


def ssh(args: Arguments) -> Inside:
    """The far side's shell reads the words; for a rule it is a command like any other."""
    options = Options(flags="46AaCfGgKkMNnqsTtVvXxYy", values="BbcDEeFIiJLlmOoPpQRSWw")
    for host in (True, False):  # options may stand before and after it
        for option in args.options(options):
            value = option.value or Word("", known=False)
            if option.name == "o" and not _SSH_KEY.match(value.text):
                raise Unseen("`ssh` has an option that may run a command")
            if option.name == "F" and (not value.known or is_input(value.text)):
                raise Unseen("`ssh` reads its settings from its input")
        if host:
            args.take()
    if text := args.joined():
        return Inside(texts=(text,))
    raise Unseen(f"`ssh` {SHELL_OPENS}")


def start_stop_daemon(args: Arguments) -> Inside:
    options = Options(
        flags="KSTHVbCDmNotqv",
        values="acdgknpPRrsux",
        long="start stop status test oknodo quiet verbose background make-pidfile remove-pidfile",
        long_values="exec startas pidfile name user chuid group chdir chroot signal retry nicelevel output",
    )
    programs = [option.value for option in args.options(options) if option.name in ("x", "a", "exec", "startas")]
    words = args.command.words[args.at :]
    # Options may stand after operands too, but not after `--`.
    if words and args.command.words[args.at - 1] != Word("--"):
        raise Unseen("`start-stop-daemon` has words that may be options")
    return Inside(tuple(Command((program, *words), args.command.more) for program in programs if program))


def source(args: Arguments) -> Inside:
    """`source FILE`: a file is as opaque as a program, the input is not to be seen."""
    if args.peek() == "--":
        args.at += 1
    if (file := args.peek()) is not None and is_input(file):
        raise Unseen(f"`{args.name}` reads its commands from its input")
    return runs(args.rest())


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
    if (word := args.peek()) is not None and re.fullmatch(r"[0-9]+", word):
        args.at += 1
    return runs(args.rest())
