"""Programs that do something else and run a command only when told so: `tar --to-command`, `git -c alias.x=!…`, `make SHELL=…`.

A person who denies `rm` expects these to be seen, so their options are looked at. Programs that are languages of their own
(`python`, `perl`, `awk`, `sed` with its `e`, editors, `make`'s own files) stay opaque: a deny rule sees their names only, and is no
sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from serai.policy.commands.reading import Word
from serai.policy.commands.unwrapping import Arguments, Inside, Look, Unseen, is_input, is_operand

__all__ = ["PROGRAMS"]

# The name of a long option is known although its value is not.
_LONG = re.compile(r"--([A-Za-z0-9-]+)(?:=|$)")


@dataclass(frozen=True, slots=True)
class _Risky:
    """Options of a program that take a command, and words that do. Long ones may be shortened."""

    long: str = ""
    letters: str = ""
    words: str = ""

    def __call__(self, args: Arguments) -> Inside:
        for word in args.command.words[args.at :]:
            if self.runs(word):
                raise Unseen(f"`{args.name}` has `{word.text[:40]}`, which may run a command")
        if args.command.more:
            raise Unseen(f"`{args.name}` gets words that are not known yet")
        return Inside()

    def runs(self, word: Word) -> bool:
        """Whether this word may make the program run something."""
        if found := _LONG.match(word.text) if word.one else None:
            return any(name.startswith(found[1]) for name in self.long.split())
        if not word.known:
            return not is_operand(word)
        letters = word.text.startswith("-") and not set(self.letters).isdisjoint(word.text)
        return letters or word.text in self.words.split() or "ext::" in word.text


def _tar(args: Arguments) -> Inside:
    """Its first word may be letters without a dash."""
    words = args.command.words
    if len(words) > 1 and not words[1].text.startswith("--") and not {"I", "F"}.isdisjoint(words[1].text):
        raise Unseen(f"`tar {words[1].text[:40]}` may run a command")
    return _TAR(args)


_TAR = _Risky(
    "checkpoint-action to-command use-compress-program info-script new-volume-script rsh-command rmt-command", letters="IF"
)
_MAKE_FILE = re.compile(r"-[A-Za-z]*f(.*)|--(?:fi?l?e?|ma?k?e?f?i?l?e?)(?:=(.*))?", re.DOTALL)
_MAKE_SETS = re.compile(r"(?:SHELL|\.SHELLFLAGS|MAKEFLAGS|GNUMAKEFLAGS)[ \t]*(?:[:+?!]{0,3})=", re.DOTALL)


def _make(args: Arguments) -> Inside:
    """The file that it reads is opaque, but not if it is the input; and its shell is a command."""
    words = args.command.words
    for word, following in zip(words[1:], (*words[2:], Word("-")), strict=False):
        file = _MAKE_FILE.fullmatch(word.text)
        value = Word((file[1] or file[2] or "") if file else "", known=word.known)
        value = following if file and not value.text else value
        if (file and (not value.known or is_input(value.text))) or _MAKE_SETS.match(word.text):
            raise Unseen(f"`{args.name}` may get its commands from its words or its input")
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


def _git(args: Arguments) -> Inside:
    texts: list[str] = []
    while (word := args.peek()) is not None and word.startswith("-"):
        args.at += 1
        name = word.partition("=")[0]
        if word == "-c":
            texts += _setting(args.value())
        elif word in _GIT_VALUES:
            args.value()
        elif word not in _GIT_FLAGS and name not in _GIT_VALUES:
            raise Unseen(f"`git` has the option `{word[:40]}`, which may change what it runs")
    command = args.take()
    if command == "config":
        _configured(args)
    elif risky := _GIT_COMMANDS.get(command or ""):
        risky(args)
    return Inside(texts=tuple(texts))


def _setting(word: Word) -> list[str]:
    """The commands that a setting `-c KEY=VALUE` runs."""
    if _GIT_DATA.match(word.text):
        return []
    if word.known and (found := _GIT_TEXT.fullmatch(word.text)) and "=" in word.text:
        return [found[1]]
    raise Unseen(f"`git` has the setting `{word.text[:40]}`, which may run a command")


def _configured(args: Arguments) -> None:
    """`git config KEY VALUE` sets what a later command of git runs; without a value it only tells."""
    words = args.command.words[args.at :]
    asks = any(word.text in ("get", "list", "--get", "--get-all", "--get-regexp", "--list", "-l", "--unset") for word in words)
    keys = [at for at, word in enumerate(words) if word.known and _GIT_SETS.fullmatch(word.text)]
    last = bool(keys) and keys[-1] == len(words) - 1 and len(keys) == 1
    harmless = bool(keys) and _GIT_DATA.match(words[keys[0]].text)
    if args.command.more or not (asks or last or harmless or not words):
        raise Unseen("`git config` may set a command that git runs later")


PROGRAMS: Final[Mapping[str, Look]] = {
    "git": _git,
    **dict.fromkeys(("tar", "gtar", "bsdtar"), _tar),
    **dict.fromkeys(("make", "gmake", "bmake"), _make),
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
