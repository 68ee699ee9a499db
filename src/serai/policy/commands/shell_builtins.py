"""What a shell's own commands may evaluate: options, variables, names, subscripts and numbers that are commands in disguise.

Options that do not change how a text is read are known here; every other one is hidden: `set -k` makes variables of words, `shopt
-u interactive_comments` commands of comments, `set -o histexpand` other words of `!x`. Some variables are more than data: setting
one runs something, or changes what a command's name means.

bash evaluates `a[$(rm x)]` wherever it takes the name of a variable or a number, so these are hidden unless they are plain, and
the name must not be one of those variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from serai.policy.commands.arguments import (
    ASSIGNMENT,
    CommandArguments,
    HiddenCommand,
    NestedCommands,
    WrapperReader,
    is_input,
    is_operand,
)
from serai.policy.commands.shell_text import ShellCommand, ShellWord

# Of `set` and of a shell itself. Not `k` (keywords), `H` (history), and not `i`: a shell with a prompt reads otherwise.
LETTERS: Final = frozenset("abefhmnptuvxBCEPT")
_NAMES: Final = frozenset(
    {"allexport", "braceexpand", "emacs", "errexit", "errtrace", "functrace", "hashall", "ignoreeof", "monitor", "noclobber"}
    | {"noexec", "noglob", "nolog", "notify", "nounset", "onecmd", "physical", "pipefail", "posix", "privileged", "verbose", "vi"}
    | {"xtrace"}
)
_SHOPT: Final = frozenset(
    {"autocd", "cdable_vars", "cdspell", "checkhash", "checkjobs", "checkwinsize", "cmdhist", "direxpand", "dirspell", "dotglob"}
    | {"execfail", "failglob", "globasciiranges", "globskipdots", "globstar", "gnu_errfmt", "histappend", "histreedit"}
    | {"histverify", "hostcomplete", "huponexit", "inherit_errexit", "lastpipe", "lithist", "localvar_inherit", "localvar_unset"}
    | {"nocaseglob", "nocasematch", "nullglob", "shift_verbose", "sourcepath", "xpg_echo"}
)


def is_harmless_option(letter: str, name: str) -> bool:
    """Whether `-o NAME` or `-O NAME` leaves the reading of a text as it is."""
    return name in (_NAMES if letter == "o" else _SHOPT)


def check_set(args: CommandArguments) -> NestedCommands:
    """`set`: options, then words that are nothing but words."""
    while (word := args.take()) is not None and word[:1] in ("-", "+") and word not in ("--", "-"):
        letters = word[1:]
        named = letters.endswith("o")
        if not LETTERS.issuperset(letters.removesuffix("o")):
            raise HiddenCommand(f"`set {word}` changes how a text is read")
        if named and (name := args.take()) is not None and not is_harmless_option("o", name):
            raise HiddenCommand(f"`set {word} {name}` changes how a text is read")
    return NestedCommands()


def check_shopt(args: CommandArguments) -> NestedCommands:
    while (word := args.take()) is not None:
        if not word.startswith("-") and not is_harmless_option("O", word):
            raise HiddenCommand(f"`shopt` with `{word}` changes how a text is read")
    return NestedCommands()


# The value is a command that some program runs.
_RUN: Final = frozenset(
    {"EDITOR", "VISUAL", "PAGER", "BROWSER", "MANPAGER", "LESSOPEN", "LESSCLOSE", "SUDO_ASKPASS", "SSH_ASKPASS", "PROMPT_COMMAND"}
    | {"GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_EXTERNAL_DIFF"}
    | {"GIT_PROXY_COMMAND", "SHELL", "SUDO_EDITOR", "FCEDIT", "SYSTEMD_EDITOR", "SYSTEMD_PAGER", "SVN_EDITOR", "HGEDITOR"}
    | {"RSYNC_RSH", "CVS_RSH", "RSH", "TAPE_RSH", "NULLCMD", "READNULLCMD", "npm_config_script_shell", "npm_config_call"}
    | {"BAT_PAGER", "DELTA_PAGER", "GH_PAGER", "GH_EDITOR", "AWS_PAGER", "PSQL_PAGER", "PSQL_EDITOR", "MAILER"}
)
# A shell expands the value: when it shows a prompt, or to find the file that it reads first.
_EXPANDED = re.compile(r"R?PS[0-9]?|R?PROMPT[0-9]?|SPROMPT|MAILPATH|ENV")
# Whatever the value is, what runs from then on is not what the words say.
_CHANGES = re.compile(
    r"PATH|BASH_ENV|BASH_FUNC_.*|BASH_CMDS|BASH_ALIASES|BASHOPTS|SHELLOPTS|LD_.*|DYLD_.*|GCONV_PATH|FPATH|ZDOTDIR|TAR_OPTIONS"
    r"|GIT_CONFIG|GIT_CONFIG_(?!NOSYSTEM$).*|GIT_EXEC_PATH|GIT_TEMPLATE_DIR|GIT_ALLOW_PROTOCOL|MAKEFLAGS|MAKEFILES|GNUMAKEFLAGS"
    r"|EXINIT|VIMINIT|aliases|galiases|saliases|functions|commands",
    re.DOTALL,
)
# In zsh these are the same as PATH and FPATH; as plain variables they are common names elsewhere.
_TIED: Final = frozenset({"path", "fpath"})
_KNOWN_SHELLS = re.compile(r"(?:/usr)?(?:/local)?(?:/bin/)?(?:ba|da|z|k|mk|fi)?sh")


def is_special_variable(name: str) -> bool:
    """Whether a variable of this name must not be set to what nobody sees."""
    return name in _RUN or _EXPANDED.fullmatch(name) is not None or _CHANGES.fullmatch(name) is not None


def read_assignment(assigned: ShellWord) -> NestedCommands:
    """What runs because a variable is set like this."""
    name, _, value = assigned.text.partition("=")
    name = name.removesuffix("+")
    if _CHANGES.fullmatch(name) or (name in _TIED and value.startswith("(")):
        if value == "/dev/null" and name.startswith("GIT_CONFIG"):
            return NestedCommands()
        return NestedCommands(hidden=(f"`{name}` changes what is run from then on",))
    if name in _RUN:
        if not assigned.known:
            return NestedCommands(hidden=(f"`{name}` is a command that is known only when it runs",))
        if name != "SHELL":
            return NestedCommands(texts=(value,))
        # No text but a program, of which some take the base name alone.
        return (
            NestedCommands() if _KNOWN_SHELLS.fullmatch(value) else NestedCommands((ShellCommand((ShellWord(value),), more=True),))
        )
    if _EXPANDED.fullmatch(name) and (not assigned.known or re.search(r"[$`]", value) or (name == "ENV" and is_input(value))):
        return NestedCommands(hidden=(f"a shell expands `{name}`, and may run what it says",))
    return NestedCommands()


def read_declaration(assigned: ShellWord, by: str) -> NestedCommands:
    """What runs because `declare` and its kin set a variable: they read `(…)` as an array and expand it, quoted or not."""
    value = assigned.text.partition("=")[2]
    unknown = not assigned.known and by not in ("export", "readonly") and not re.match(r"[A-Za-z0-9_./:-]", value)
    if value.startswith("(") or unknown:
        return NestedCommands(hidden=(f"`{by}` may expand a value once more",), assigned=(assigned,))
    return NestedCommands(assigned=(assigned,))


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ATTACHED = re.compile(r"-[A-Za-z]")


def _check_names(args: CommandArguments) -> NestedCommands:
    """`read`, `mapfile` and others: every word may be the name of a variable, also one that is attached to an option."""
    for word in args.command.words[1:]:
        if "[" in word.text or not word.known:
            raise HiddenCommand(f"`{args.name}` takes a name that may be more than one")
        if is_special_variable(word.text) or is_special_variable(_ATTACHED.sub("", word.text, count=1)):
            raise HiddenCommand(f"`{args.name}` sets `{word.text}`, which is more than data")
    if args.command.more:
        raise HiddenCommand(f"`{args.name}` takes names that are not known yet")
    return NestedCommands()


def _check_plain(args: CommandArguments) -> NestedCommands:
    """`exit` and others: to some shells a number is an expression. What a variable says is left alone: it is `$?` or so."""
    if any("[" in word.text for word in args.command.words[1:] if word.known):
        raise HiddenCommand(f"`{args.name}` evaluates its words")
    return NestedCommands()


def _make_options_reader(letters: str, why: str, *, also: WrapperReader | None = None) -> WrapperReader:
    """Hidden with one of these options, with a subscript, and where a word may become either."""

    def look(args: CommandArguments) -> NestedCommands:
        for word in args.command.words[1:]:
            text = word.text
            option = text[:1] in ("-", "+") and any(letter in text for letter in letters)
            if option or "[" in text.partition("=")[0] or not (word.known or ASSIGNMENT.match(text)):
                raise HiddenCommand(f"`{args.name}` {why}")
        return also(args) if also else NestedCommands()

    return look


def _unwrap_declare(args: CommandArguments) -> NestedCommands:
    """What is declared is set; with `-a` the others of the family read a value as `declare` does."""
    words = args.command.words[1:]
    arrays = any(word.text[:1] == "-" and not {"a", "A"}.isdisjoint(word.text) for word in words)
    found = [read_declaration(word, "declare" if arrays else args.name) for word in words if ASSIGNMENT.match(word.text)]
    return NestedCommands(
        hidden=tuple(why for inside in found for why in inside.hidden),
        assigned=tuple(word for inside in found for word in inside.assigned),
    )


def _check_test(args: CommandArguments) -> NestedCommands:
    """`[ -v NAME ]` reads a subscript; words that are not known may be that."""
    words = args.command.words[1:]
    for word, following in zip(words, (*words[1:], ShellWord("")), strict=False):
        unknown = not word.one or (not word.known and not following.known)
        named = word.text in ("-v", "-R") and not (following.known and _NAME.fullmatch(following.text))
        if unknown or named:
            raise HiddenCommand(f"`{args.name}` may read a name that is a command")
    return NestedCommands()


def _check_printf(args: CommandArguments) -> NestedCommands:
    words = args.command.words
    if len(words) < 2:
        return NestedCommands()
    if not words[1].known and not is_operand(words[1]) and not words[1].text.startswith(("%", "\\")) and len(words) > 2:
        raise HiddenCommand("`printf` has a first word that may be an option")
    if words[1].text.startswith("-v"):
        target = words[1].text[2:] or (words[2].text if len(words) > 2 and words[2].known else "")
        if not _NAME.fullmatch(target) or is_special_variable(target):
            raise HiddenCommand("`printf -v` takes a name that may be a command, or is more than data")
    return NestedCommands()


def _make_arguments_reader(why: str) -> WrapperReader:
    def look(args: CommandArguments) -> NestedCommands:
        if len(args.command.words) > 1 or args.command.more:
            raise HiddenCommand(f"`{args.name}` {why}")
        return NestedCommands()

    return look


def _check_hash(args: CommandArguments) -> NestedCommands:
    if any("=" in word.text for word in args.command.words[1:]):  # zsh
        raise HiddenCommand("`hash` gives a command another name")
    return NestedCommands()


_DECLARES = _make_options_reader("in", "makes a variable whose value is evaluated", also=_unwrap_declare)
_EXPORTS = _make_options_reader("", "takes a name that may be more than one", also=_unwrap_declare)
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

BUILTINS: Final[Mapping[str, WrapperReader]] = {
    **{name: _make_arguments_reader(why) for name, why in _ALWAYS.items()},
    "hash": _make_options_reader("p", "gives a command another name", also=_check_hash),
    "enable": _make_options_reader("f", "loads commands from a file"),
    "history": _make_options_reader("anprsw", "changes what `!` stands for"),
    "jobs": _make_options_reader("x", _RUNS),
    "mapfile": _make_options_reader("C", _RUNS, also=_check_names),
    "readarray": _make_options_reader("C", _RUNS, also=_check_names),
    "print": _make_options_reader("sSv", "keeps what it is given"),
    **dict.fromkeys(("declare", "typeset", "local"), _DECLARES),
    "readonly": _DECLARES,
    "export": _EXPORTS,
    **dict.fromkeys(("read", "getopts", "wait", "unset"), _check_names),
    **dict.fromkeys(("exit", "return", "shift", "break", "continue"), _check_plain),
    "set": check_set,
    "shopt": check_shopt,
    "printf": _check_printf,
    "test": _check_test,
    "[": _check_test,
}
