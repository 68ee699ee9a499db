"""The commands that run other commands, by their base name: `env`, `sudo`, `xargs`, `sh -c`, …

Some programs do something else and run a command only when told so: `tar --to-command`, `git -c alias.x=!…`, `make SHELL=…`. A
person who denies `rm` expects these to be seen, so their options are read. Programs that are languages of their own (`python`,
`perl`, `awk`, `sed` with its `e`, editors, `make`'s own files) stay opaque: a deny rule sees their names only, and is not a
sandbox.

The rule for all of them: what is certain becomes a command or a text, what is not becomes a sentence about what is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from serai.plain_text import find_invisible
from serai.policy.commands.arguments import (
    ASSIGNMENT,
    CommandArguments,
    HiddenCommand,
    NestedCommands,
    OptionSyntax,
    WrapperReader,
    is_input,
    is_operand,
    nest_command,
    nest_text,
)
from serai.policy.commands.shell_builtins import LETTERS, is_harmless_option
from serai.policy.commands.shell_text import ShellCommand, ShellWord

# The name of a long option is known although its value is not.
_LONG = re.compile(r"--([A-Za-z0-9-]+)(?:=|$)")


@dataclass(frozen=True, slots=True)
class _Risky:
    """Options of a program that take a command, and words that do. Long ones may be shortened."""

    long: str = ""
    letters: str = ""
    words: str = ""

    def __call__(self, args: CommandArguments) -> NestedCommands:
        for word in args.command.words[args.at :]:
            if self.may_run(word):
                raise HiddenCommand(f"`{args.name}` has `{word.text[:40]}`, which may run a command")
        if args.command.more:
            raise HiddenCommand(f"`{args.name}` gets words that are not known yet")
        return NestedCommands()

    def may_run(self, word: ShellWord) -> bool:
        """Whether this word may make the program run something."""
        if found := _LONG.match(word.text) if word.one else None:
            return any(name.startswith(found[1]) for name in self.long.split())
        if not word.known:
            return not is_operand(word)
        letters = word.text.startswith("-") and not set(self.letters).isdisjoint(word.text)
        return letters or word.text in self.words.split() or "ext::" in word.text


def _unwrap_tar(args: CommandArguments) -> NestedCommands:
    """Its first word may be letters without a dash."""
    words = args.command.words
    if len(words) > 1 and not words[1].text.startswith("--") and not {"I", "F"}.isdisjoint(words[1].text):
        raise HiddenCommand(f"`tar {words[1].text[:40]}` may run a command")
    return _TAR(args)


_TAR = _Risky(
    "checkpoint-action to-command use-compress-program info-script new-volume-script rsh-command rmt-command", letters="IF"
)
_MAKE_FILE = re.compile(r"-[A-Za-z]*f(.*)|--(?:fi?l?e?|ma?k?e?f?i?l?e?)(?:=(.*))?", re.DOTALL)
_MAKE_SETS = re.compile(r"(?:SHELL|\.SHELLFLAGS|MAKEFLAGS|GNUMAKEFLAGS)[ \t]*(?:[:+?!]{0,3})=", re.DOTALL)


def _unwrap_make(args: CommandArguments) -> NestedCommands:
    """The file that it reads is opaque, but not if it is the input; and its shell is a command."""
    words = args.command.words
    for word, following in zip(words[1:], (*words[2:], ShellWord("-")), strict=False):
        file = _MAKE_FILE.fullmatch(word.text)
        value = ShellWord((file[1] or file[2] or "") if file else "", known=word.known)
        value = following if file and not value.text else value
        if (file and (not value.known or is_input(value.text))) or _MAKE_SETS.match(word.text):
            raise HiddenCommand(f"`{args.name}` may get its commands from its words or its input")
    return _Risky("eval")(args)


# Before git's own command.
_GIT_FLAGS: Final = frozenset(
    {"-p", "-P", "-v", "-h", "--paginate", "--no-pager", "--bare", "--no-replace-objects", "--literal-pathspecs", "--version"}
    | {"--help", "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs", "--no-optional-locks", "--html-path", "--man-path"}
    | {"--info-path", "--exec-path", "--no-lazy-fetch", "--no-advice"}
)
_GIT_VALUES: Final = frozenset({"-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source"})
# Settings that run nothing, whatever the value is; and those whose value is a command.
_GIT_DATA = re.compile(
    r"(?:user\.(?:name|email|useconfigonly)|(?:advice|color|column|http|i18n|log|status|blame|fetch|gc\.auto|init\.defaultbranch"
    r"|safe\.directory|pull\.rebase|pull\.ff|push\.default|push\.followtags|push\.autosetupremote|rebase\.auto\w+|merge\.ff"
    r"|merge\.conflictstyle|merge\.renamelimit|diff\.(?:algorithm|renames|renamelimit|noprefix|mnemonicprefix|context|colormoved)"
    r"|core\.(?:abbrev|autocrlf|bare|bigfilethreshold|compression|eol|filemode|ignorecase|longpaths|precomposeunicode|quotepath"
    r"|safecrlf|symlinks|untrackedcache|whitespace)|commit\.(?:gpgsign|verbose|cleanup|status)|tag\.(?:gpgsign|sort)"
    r"|submodule\.recurse|protocol\.version|format\.pretty|grep\.\w+)(?:\.[^=]*)?)(?:=|$)|credential\.helper=$",
    re.ASCII | re.IGNORECASE,
)
_GIT_TEXT = re.compile(
    r"(?:core\.(?:pager|editor|sshcommand|askpass)|sequence\.editor|diff\.external|pager\.\w+|alias\.[\w-]+=!)=?(.*)",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_UPLOADS = _Risky("upload-pack", "", "")
_GIT_COMMANDS: Final[Mapping[str, _Risky]] = {
    "rebase": _Risky("exec", "x"),
    "bisect": _Risky(words="run"),
    "submodule": _Risky(words="foreach"),
    "clone": _Risky("upload-pack config template", "cu"),
    "init": _Risky("template"),
    "fetch": _UPLOADS,
    "pull": _UPLOADS,
    "fetch-pack": _Risky("upload-pack exec"),
    "ls-remote": _Risky("upload-pack exec"),
    "push": _Risky("receive-pack exec"),
    "send-pack": _Risky("receive-pack exec"),
    "archive": _Risky("exec"),
    "grep": _Risky("open-files-in-pager", "O"),
    "difftool": _Risky("extcmd", "x"),
    "remote": _Risky(),
    "for-each-repo": _Risky("config"),
    "send-email": _Risky("smtp-server sendmail-cmd to-cmd cc-cmd header-cmd"),
    "filter-branch": _Risky("env-filter tree-filter index-filter parent-filter msg-filter commit-filter tag-name-filter setup"),
}
_GIT_SETS = re.compile(r"[A-Za-z0-9-]+\..*", re.DOTALL)


def _unwrap_git(args: CommandArguments) -> NestedCommands:
    texts: list[str] = []
    while (word := args.peek()) is not None and word.startswith("-"):
        args.at += 1
        name = word.partition("=")[0]
        if word == "-c":
            texts += _read_setting(args.take_value())
        elif word in _GIT_VALUES:
            args.take_value()
        elif word not in _GIT_FLAGS and name not in _GIT_VALUES:
            raise HiddenCommand(f"`git` has the option `{word[:40]}`, which may change what it runs")
    command = args.take()
    if command == "config":
        _check_config(args)
    elif risky := _GIT_COMMANDS.get(command or ""):
        risky(args)
    return NestedCommands(texts=tuple(texts))


def _read_setting(word: ShellWord) -> list[str]:
    """The commands that a setting `-c KEY=VALUE` runs."""
    if _GIT_DATA.match(word.text):
        return []
    if word.known and (found := _GIT_TEXT.fullmatch(word.text)) and "=" in word.text:
        return [found[1]]
    raise HiddenCommand(f"`git` has the setting `{word.text[:40]}`, which may run a command")


def _check_config(args: CommandArguments) -> None:
    """`git config KEY VALUE` sets what a later command of git runs; without a value it only tells."""
    words = args.command.words[args.at :]
    asks = any(word.text in ("get", "list", "--get", "--get-all", "--get-regexp", "--list", "-l", "--unset") for word in words)
    keys = [at for at, word in enumerate(words) if word.known and _GIT_SETS.fullmatch(word.text)]
    last = bool(keys) and keys[-1] == len(words) - 1 and len(keys) == 1
    harmless = bool(keys) and _GIT_DATA.match(words[keys[0]].text)
    if args.command.more or not (asks or last or harmless or not words):
        raise HiddenCommand("`git config` may set a command that git runs later")


PROGRAMS: Final[Mapping[str, WrapperReader]] = {
    "git": _unwrap_git,
    **dict.fromkeys(("tar", "gtar", "bsdtar"), _unwrap_tar),
    **dict.fromkeys(("make", "gmake", "bmake"), _unwrap_make),
    **dict.fromkeys(("split", "gsplit"), _Risky("filter")),
    **dict.fromkeys(("nc", "ncat", "netcat"), _Risky("exec sh-exec lua-exec", "ec")),
    **dict.fromkeys(("sdiff", "diff3"), _Risky("diff-program")),
    "sort": _Risky("compress-program"),
    "install": _Risky("strip-program"),
    "rsync": _Risky("rsh rsync-path remote-option", "eM"),
    "scp": _Risky(letters="SoFD"),
    "cpio": _Risky("rsh-command"),
    "zip": _Risky("unzip-command", "T"),
    "wget": _Risky("use-askpass execute", "e"),
    "man": _Risky("pager html", "PH"),
    "rg": _Risky("pre hostname-bin"),
    "bat": _Risky("pager"),
    "hg": _Risky("config"),
    "svn": _Risky("diff-cmd diff3-cmd editor-cmd config-option"),
    "tcpdump": _Risky(letters="z"),
    "ip": _Risky(words="exec"),
    "npm": _Risky("call script-shell", "c"),
    "pnpm": _Risky("shell-mode script-shell", "c"),
    "npx": _Risky("call", "c"),
}


SHELL_OPENS: Final = "opens a shell that reads its commands from its input"
_MOST_EXECS = 64  # of one `find`; each may be what another one's words are


def take_assignments(args: CommandArguments) -> tuple[ShellWord, ...]:
    words = args.command.words
    start = args.at
    # To these programs every word with a `=` is one, whatever stands before it.
    while args.at < len(words) and ("=" in words[args.at].text if words[args.at].known else ASSIGNMENT.match(words[args.at].text)):
        if not words[args.at].one:
            raise HiddenCommand(f"`{args.name}` has words that are known only when it runs")
        args.at += 1
    return words[start : args.at]


# bash takes its long options with one dash too.
_SHELL_LONG: Final = frozenset({"norc", "noprofile", "posix", "login", "restricted", "verbose", "noediting", "no-rcs", "norcs"})
_SHELL_LETTERS: Final = LETTERS | frozenset("cilorsO")


def unwrap_shell(args: CommandArguments) -> NestedCommands:
    """`sh`, `bash` and their family: `-c TEXT`, a script, or commands from the input."""
    letters: set[str] = set()
    hidden: list[str] = []
    while (word := args.peek()) is not None and word[:1] in ("-", "+"):
        args.at += 1
        if word in ("--", "-"):
            break
        name = word.lstrip("-")
        if name in ("rcfile", "init-file"):
            file = args.take_value()
            if not file.known or is_input(file.text):
                hidden.append(f"`{args.name}` reads its first commands from its input")
            continue
        if name in _SHELL_LONG:
            continue
        if not _SHELL_LETTERS.issuperset(word[1:]) or {"o", "O"} & set(word[1:-1]):
            raise HiddenCommand(f"`{args.name}` has the option `{word}`, which is not known here")
        if word[-1] in "oO" and not ((option := args.take_value()).known and is_harmless_option(word[-1], option.text)):
            hidden.append(f"`{args.name}` has the option `{option.text}`, which changes how a text is read")
        letters |= set(word[1:])
    if "i" in letters:
        hidden.append(f"`{args.name} -i` has a history and aliases, which change how a text is read")
    if "c" in letters:
        text = nest_text(args.take_value() if args.at < len(args.command.words) else None, f"{args.name} -c")
        return text._replace(hidden=tuple(hidden))
    script = args.peek()
    if "s" in letters or script is None or is_input(script):
        raise HiddenCommand(f"`{args.name}` reads its commands from its input")
    # A file, also one of the path: as opaque as any other program, and denied by its own name too.
    return nest_command(args.get_rest())._replace(hidden=tuple(hidden))


def unwrap_env(args: CommandArguments) -> NestedCommands:
    options = OptionSyntax(
        flags="i0v",
        values="uCS",
        long="ignore-environment null debug block-signal default-signal ignore-signal list-signal-handling",
        long_values="unset chdir split-string",
    )
    for option in args.parse_options(options):
        if option.name in ("S", "split-string"):
            return _unwrap_env_split(args, option.value)
    if args.at < len(args.command.words) and args.command.words[args.at] == ShellWord("-"):
        args.at += 1
    assigned = take_assignments(args)
    return nest_command(args.get_rest())._replace(assigned=assigned)


def _unwrap_env_split(args: CommandArguments, value: ShellWord | None) -> NestedCommands:
    """`env -S TEXT`: env splits it by rules of its own, then reads it all as its arguments."""
    if value is None or not value.known or re.search(r"[\\$'\"#]", value.text):
        raise HiddenCommand("`env -S` splits a text that is not plain")
    texts = [text for text in re.split(r"[ \t\n\v\f\r]", value.text) if text]
    if any(find_invisible(text) for text in texts):
        raise HiddenCommand("`env -S` splits a text with characters that are not seen")
    words = tuple(map(ShellWord, texts))
    return nest_command(ShellCommand((ShellWord("env"), *words, *args.command.words[args.at :]), args.command.more))


def unwrap_xargs(args: CommandArguments) -> NestedCommands:
    options = OptionSyntax(
        flags="0oprtx",
        values="adEILnPs",
        maybe="eil",
        long="null open-tty interactive no-run-if-empty verbose exit show-limits eof replace max-lines",
        long_values="arg-file delimiter max-args max-procs max-chars process-slot-var",
    )
    mark = ""
    for option in args.parse_options(options):
        if option.name in ("I", "i", "replace"):
            if option.value is not None and not option.value.known:
                raise HiddenCommand("`xargs` puts its words where a mark stands that is known only when it runs")
            mark = (option.value.text if option.value else "") or "{}"
    command = args.get_rest()
    if command is None:
        return NestedCommands((ShellCommand((ShellWord("echo"),), more=True),))
    # What stands for the mark is not known, so it must not look like a name or a value.
    words = tuple(
        ShellWord(word.text.replace(mark, "$"), known=False, one=word.one) if mark and mark in word.text else word
        for word in command.words
    )
    return NestedCommands((ShellCommand(words, more=True),))


def unwrap_find(args: CommandArguments) -> NestedCommands:
    """Every `-exec` and its kin, up to its `;` or `+`; also one that may be the operand of something else."""
    words = args.command.words
    commands: list[ShellCommand] = []
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
            several = words[at : at + 1] == (ShellWord("+"),)
            commands.append(ShellCommand(inner[:-1] if several else inner, more=several))
    return NestedCommands(tuple(commands), hidden=tuple(hidden))


def unwrap_su(args: CommandArguments) -> NestedCommands:
    """`su` and `runuser`: options and operands in any order, a text after `-c`."""
    options = OptionSyntax(
        flags="flmpPT",
        values="cgGuw",
        long="login fast preserve-environment pty no-pty",
        long_values="command session-command group supp-group user whitelist-environment",
    )
    users = ("u", "user") if args.name == "runuser" else ()
    start = args.at
    if not {option.name for option in args.parse_options(options)}.isdisjoint(users):
        return nest_command(args.get_rest())
    args.at = start
    found = list(args.parse_all_options(options))
    if any(option.name in users for option in found):
        raise HiddenCommand(f"`{args.name}` runs its words in a way that is not certain")
    texts = [option.value for option in found if option.name in ("c", "command", "session-command")]
    return _nest_texts(texts, f"{args.name} -c") or _refuse_shell(args)


def _nest_texts(texts: Sequence[ShellWord | None], who: str) -> NestedCommands | None:
    """Every text that was given: which one counts differs."""
    found = [text for word in texts for text in nest_text(word, who).texts]
    return NestedCommands(texts=tuple(found)) if found else None


def _refuse_shell(args: CommandArguments) -> NestedCommands:
    raise HiddenCommand(f"`{args.name}` {SHELL_OPENS}")


def unwrap_flock(args: CommandArguments) -> NestedCommands:
    options = OptionSyntax(
        flags="seunxoF",
        values="wE",
        long="shared exclusive unlock nonblock nb close no-fork verbose",
        long_values="wait timeout conflict-exit-code",
    )
    for _ in args.parse_options(options):
        pass
    args.take_operand()
    if args.at < len(args.command.words) and args.command.words[args.at].text in ("-c", "--command"):
        args.at += 1
        return nest_text(args.take_value(), "flock -c")
    return nest_command(args.get_rest())


def unwrap_script(args: CommandArguments) -> NestedCommands:
    options = OptionSyntax(
        flags="aefq",
        values="cEIoOBmT",
        maybe="t",
        long="append return flush force quiet timing",
        long_values="command echo log-in log-out log-io log-timing logging-format output-limit",
    )
    texts = [option.value for option in args.parse_all_options(options) if option.name in ("c", "command")]
    return _nest_texts(texts, "script -c") or _refuse_shell(args)


def unwrap_watch(args: CommandArguments) -> NestedCommands:
    options = OptionSyntax(
        flags="bcCegprtwx",
        values="nqs",
        maybe="d",
        long="beep color no-color differences errexit chgexit precise no-rerun no-title no-wrap exec",
        long_values="interval equexit shotsdir",
    )
    seen = {option.name for option in args.parse_options(options)}
    if seen & {"x", "exec"}:
        return nest_command(args.get_rest())
    return NestedCommands(texts=(args.join_rest(),))


# None of these runs anything, whatever the value is.
_SSH_KEY = re.compile(
    r"(?:AddKeysToAgent|BatchMode|Compression|ConnectTimeout|ConnectionAttempts|ControlMaster|ControlPath|ControlPersist"
    r"|ExitOnForwardFailure|ForwardAgent|GlobalKnownHostsFile|HostName|IdentitiesOnly|IdentityFile|LogLevel|PasswordAuthentication"
    r"|Port|PreferredAuthentications|PubkeyAuthentication|RequestTTY|ServerAliveCountMax|ServerAliveInterval"
    r"|StrictHostKeyChecking|TCPKeepAlive|User|UserKnownHostsFile)[ =]",
    re.IGNORECASE | re.ASCII,
)


def unwrap_ssh(args: CommandArguments) -> NestedCommands:
    """The far side's shell reads the words; for a rule it is a command like any other."""
    options = OptionSyntax(flags="46AaCfGgKkMNnqsTtVvXxYy", values="BbcDEeFIiJLlmOoPpQRSWw")
    for host in (True, False):  # options may stand before and after it
        for option in args.parse_options(options):
            value = option.value or ShellWord("", known=False)
            if option.name == "o" and not _SSH_KEY.match(value.text):
                raise HiddenCommand("`ssh` has an option that may run a command")
            if option.name == "F" and (not value.known or is_input(value.text)):
                raise HiddenCommand("`ssh` reads its settings from its input")
        if host:
            args.take()
    if text := args.join_rest():
        return NestedCommands(texts=(text,))
    raise HiddenCommand(f"`ssh` {SHELL_OPENS}")


def unwrap_start_stop_daemon(args: CommandArguments) -> NestedCommands:
    options = OptionSyntax(
        flags="KSTHVbCDmNotqv",
        values="acdgknpPRrsux",
        long="start stop status test oknodo quiet verbose background make-pidfile remove-pidfile",
        long_values="exec startas pidfile name user chuid group chdir chroot signal retry nicelevel output",
    )
    programs = [option.value for option in args.parse_options(options) if option.name in ("x", "a", "exec", "startas")]
    words = args.command.words[args.at :]
    # Options may stand after operands too, but not after `--`.
    if words and args.command.words[args.at - 1] != ShellWord("--"):
        raise HiddenCommand("`start-stop-daemon` has words that may be options")
    return NestedCommands(tuple(ShellCommand((program, *words), args.command.more) for program in programs if program))


def unwrap_source(args: CommandArguments) -> NestedCommands:
    """`source FILE`: a file is as opaque as a program, the input is not to be seen."""
    if args.peek() == "--":
        args.at += 1
    if (file := args.peek()) is not None and is_input(file):
        raise HiddenCommand(f"`{args.name}` reads its commands from its input")
    return nest_command(args.get_rest())


def unwrap_eval(args: CommandArguments) -> NestedCommands:
    if args.at < len(args.command.words) and args.command.words[args.at].text == "--":
        args.at += 1
    return NestedCommands(texts=(args.join_rest(),))


def unwrap_trap(args: CommandArguments) -> NestedCommands:
    seen = {option.name for option in args.parse_options(OptionSyntax(flags="lpP"))}
    action = args.take()
    if seen or action in (None, "-", "") or args.peek() is None:
        return NestedCommands()
    return NestedCommands(texts=(action or "",))


def unwrap_chrt(args: CommandArguments) -> NestedCommands:
    """The priority may be left out with some policies."""
    options = OptionSyntax(
        flags="abdefiomprRv",
        values="DPT",
        long="batch deadline ext fifo idle other rr reset-on-fork all-tasks max pid verbose",
        long_values="sched-deadline sched-period sched-runtime",
    )
    for _ in args.parse_options(options):
        pass
    if (word := args.peek()) is not None and re.fullmatch(r"[0-9]+", word):
        args.at += 1
    return nest_command(args.get_rest())


_NO_OPTIONS: Final = OptionSyntax()


@dataclass(frozen=True, slots=True)
class _Plain:
    """A wrapper that takes options, some operands, and then a command."""

    options: OptionSyntax = _NO_OPTIONS
    skip: int = 0  # operands before the command
    assignments: bool = False  # `NAME=value` before the command
    shells: str = ""  # with one of these options and no command it opens a shell; `*`: always
    nothing: str = ""  # with one of these options it runs nothing
    sets: str = ""  # options whose value is `NAME=value`
    unseen: str = ""  # options whose value may run something
    within: str = ""  # only as one of these commands of a program that has others too

    def __call__(self, args: CommandArguments) -> NestedCommands:
        if self.within:
            if args.peek() not in self.within.split():
                return NestedCommands()
            args.at += 1
        given = list(args.parse_options(self.options))
        seen = {option.name for option in given}
        hidden = () if seen.isdisjoint(self.unseen.split()) else (f"`{args.name}` has an option that may run a command",)
        if not seen.isdisjoint(self.nothing.split()):
            return NestedCommands()
        for _ in range(self.skip):
            if args.take() is None:
                return NestedCommands()
        assigned = tuple(option.value for option in given if option.name in self.sets.split() and option.value)
        assigned += take_assignments(args) if self.assignments else ()
        command = args.get_rest()
        if command is None and (self.shells == "*" or not seen.isdisjoint(self.shells.split())):
            raise HiddenCommand(f"`{args.name}` {SHELL_OPENS}")
        return nest_command(command)._replace(assigned=assigned, hidden=hidden)


def _make_hidden_reader(why: str) -> WrapperReader:
    def look(args: CommandArguments) -> NestedCommands:
        raise HiddenCommand(f"`{args.name}` {why}")

    return look


_PREFIX = _Plain()
_PACKAGES = OptionSyntax("yq", "p", long="yes no no-install quiet prefer-offline", long_values="package")


def _unwrap_npx(args: CommandArguments) -> NestedCommands:
    """A package's program by its name, or a text after `-c`."""
    PROGRAMS[args.name](args)
    return _Plain(_PACKAGES, within="" if args.name == "npx" else "exec x dlx")(args)


_SHELLS = (
    "sh",
    "bash",
    "rbash",
    "dash",
    "ash",
    "zsh",
    "rzsh",
    "ksh",
    "rksh",
    "ksh93",
    "mksh",
    "lksh",
    "oksh",
    "pdksh",
    "posh",
    "yash",
    "hush",
)
_RUNNERS = (
    *("parallel", "sem", "sg", "setpriv", "capsh", "fakeroot", "fakechroot", "firejail", "bwrap", "proot", "prlimit", "numactl"),
    *(
        "cgexec",
        "unbuffer",
        "chpst",
        "gosu",
        "su-exec",
        "setuidgid",
        "tini",
        "dumb-init",
        "catchsegv",
        "entr",
        "rlwrap",
        "dbus-run-session",
    ),
    *(
        "systemd-inhibit",
        "systemd-nspawn",
        "xvfb-run",
        "torsocks",
        "proxychains",
        "proxychains4",
        "choom",
        "uclampset",
        "setarch",
        "linux32",
    ),
    *(
        "linux64",
        "i386",
        "x86_64",
        "at",
        "batch",
        "crontab",
        "expect",
        "faketime",
        "run-parts",
        "fd",
        "fdfind",
        "unbuffer",
        "zargs",
        "run0",
    ),
    *("screen", "tmux", "dtach", "nq", "perf", "valgrind", "gdb", "ltrace", "sftp", "ftp", "lftp", "socat", "ssh-agent", "xterm"),
    *("ld.so", "eatmydata", "runcon", "aa-exec", "newgrp", "machinectl", "envdir", "softlimit", "setlock", "execlineb", "xinit"),
    *("hyperfine", "watchexec", "scriptlive", "logsave", "cpulimit", "trickle", "tsocks", "nodemon", "mosh", "nix-shell"),
)
_OTHER_SHELLS = ("fish", "csh", "tcsh", "nu", "elvish", "xonsh", "pwsh", "rc", "es")

WRAPPERS: Final[Mapping[str, WrapperReader]] = {
    **PROGRAMS,
    **dict.fromkeys(_SHELLS, unwrap_shell),
    **dict.fromkeys(_OTHER_SHELLS, _make_hidden_reader("is a shell of another kind, which is not read here")),
    **dict.fromkeys(_RUNNERS, _make_hidden_reader("runs commands in a way that is not read here")),
    **dict.fromkeys(("nohup", "builtin", "noglob", "nocorrect", "busybox", "toybox", "-"), _PREFIX),
    "command": _Plain(OptionSyntax(flags="pvV"), nothing="v V"),
    "exec": _Plain(OptionSyntax(flags="cl", values="a")),
    "eval": unwrap_eval,
    "trap": unwrap_trap,
    "source": unwrap_source,
    ".": unwrap_source,
    "env": unwrap_env,
    "xargs": unwrap_xargs,
    "find": unwrap_find,
    "su": unwrap_su,
    "runuser": unwrap_su,
    "flock": unwrap_flock,
    "script": unwrap_script,
    "watch": unwrap_watch,
    "ssh": unwrap_ssh,
    "chrt": unwrap_chrt,
    "start-stop-daemon": unwrap_start_stop_daemon,
    "sudo": _Plain(
        OptionSyntax(
            flags="ABbEeHiKklNnPSsVv",
            values="CDghpRrTtUu",
            long="askpass background bell edit preserve-env set-home login reset-timestamp remove-timestamp list no-update "
            "non-interactive preserve-groups stdin shell validate",
            long_values="close-from chdir group host prompt chroot role type command-timeout other-user user",
        ),
        assignments=True,
        shells="s i shell login",
    ),
    "doas": _Plain(OptionSyntax(flags="Lns", values="aCu"), shells="s"),
    "pkexec": _Plain(OptionSyntax(long="disable-internal-agent keep-cwd", long_values="user"), shells="*"),
    "timeout": _Plain(
        OptionSyntax("fpv", "ks", long="foreground preserve-status verbose", long_values="kill-after signal"), skip=1
    ),
    "nice": _Plain(OptionSyntax(values="n", long_values="adjustment", number=True)),
    "ionice": _Plain(OptionSyntax("t", "cn", long="ignore", long_values="class classdata")),
    "setsid": _Plain(OptionSyntax("cfw", long="ctty fork wait")),
    "stdbuf": _Plain(OptionSyntax(values="ioe", long_values="input output error")),
    # As a shell's keyword it stands before assignments too.
    "time": _Plain(
        OptionSyntax("apqv", "fo", long="append portability quiet verbose", long_values="format output"), assignments=True
    ),
    "taskset": _Plain(OptionSyntax("acp", long="all-tasks pid cpu-list"), skip=1),
    "chroot": _Plain(OptionSyntax(long="skip-chdir", long_values="userspec groups"), skip=1, shells="*"),
    "unshare": _Plain(
        OptionSyntax(
            "cCfimnprTuU",
            "GRSw",
            long="mount uts ipc net pid user cgroup time fork map-root-user map-current-user map-auto keep-caps kill-child "
            "mount-proc",
            long_values="propagation setgroups root wd setuid setgid map-user map-group map-users map-groups monotonic boottime",
        ),
        shells="*",
    ),
    "nsenter": _Plain(
        OptionSyntax(
            "aeFZ",
            "GSt",
            maybe="CimnprTuUwW",
            long="all mount uts ipc net pid user cgroup time root wd preserve-credentials no-fork follow-context env",
            long_values="target setuid setgid wdns",
        ),
        shells="*",
    ),
    "strace": _Plain(OptionSyntax("cCdDfFhikqrtTvVwxyzZ", "abeEIOpPsSuUX"), sets="E"),
    "systemd-run": _Plain(
        OptionSyntax(
            "dGPqrt",
            "EHMpu",
            long="user system scope wait pty pipe quiet collect same-dir remain-after-exit send-sighup no-block no-ask-password",
            long_values="unit property description slice uid gid nice working-directory setenv service-type",
        ),
        sets="E setenv",
        unseen="p property",
    ),
    "uv": _Plain(
        OptionSyntax(
            "mqv",
            "p",
            long="frozen locked no-sync isolated active all-extras all-groups all-packages dev no-dev no-project module quiet "
            "verbose exact offline",
            long_values="with extra group python env-file with-requirements with-editable project directory package only-group",
        ),
        within="run",
    ),
    **dict.fromkeys(("poetry", "pdm", "pipenv", "rye", "hatch"), _Plain(within="run")),
    **dict.fromkeys(("bundle", "yarn", "rbenv", "pyenv", "opam"), _Plain(within="exec")),
    "direnv": _Plain(within="exec", skip=1),
    "npx": _unwrap_npx,
    "npm": _unwrap_npx,
    "pnpm": _unwrap_npx,
}
