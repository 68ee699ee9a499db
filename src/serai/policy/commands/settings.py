"""A shell's options. Those that do not change how a text is read are known here; every other one is hidden.

`set -k` makes variables of words, `shopt -u interactive_comments` commands of comments, `set -o histexpand` other words of `!x`.
"""

from __future__ import annotations

from typing import Final

from serai.policy.commands.unwrapping import Arguments, Inside, Unseen

__all__ = ["LETTERS", "harmless", "set_options", "shopt"]

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


def harmless(letter: str, name: str) -> bool:
    """Whether `-o NAME` or `-O NAME` leaves the reading of a text as it is."""
    return name in (_NAMES if letter == "o" else _SHOPT)


def set_options(args: Arguments) -> Inside:
    """`set`: options, then words that are nothing but words."""
    while (word := args.take()) is not None and word[:1] in ("-", "+") and word not in ("--", "-"):
        letters = word[1:]
        named = letters.endswith("o")
        if not LETTERS.issuperset(letters.removesuffix("o")):
            raise Unseen(f"`set {word}` changes how a text is read")
        if named and (name := args.take()) is not None and not harmless("o", name):
            raise Unseen(f"`set {word} {name}` changes how a text is read")
    return Inside()


def shopt(args: Arguments) -> Inside:
    while (word := args.take()) is not None:
        if not word.startswith("-") and not harmless("O", word):
            raise Unseen(f"`shopt` with `{word}` changes how a text is read")
    return Inside()
