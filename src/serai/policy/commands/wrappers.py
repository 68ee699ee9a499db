"""The table of commands that run other commands, by their base name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from serai.policy.commands.programs import PROGRAMS
from serai.policy.commands.runners import (
    SHELL_OPENS,
    assignments,
    chrt,
    env,
    evaluate,
    find,
    flock,
    script,
    shell,
    source,
    ssh,
    start_stop_daemon,
    su,
    trap,
    watch,
    xargs,
)
from serai.policy.commands.unwrapping import Arguments, Inside, Look, Options, Unseen, runs

__all__ = ["WRAPPERS"]


_NO_OPTIONS: Final = Options()


@dataclass(frozen=True, slots=True)
class _Plain:
    """A wrapper that takes options, some operands, and then a command."""

    options: Options = _NO_OPTIONS
    skip: int = 0  # operands before the command
    assignments: bool = False  # `NAME=value` before the command
    shells: str = ""  # with one of these options and no command it opens a shell; `*`: always
    nothing: str = ""  # with one of these options it runs nothing
    sets: str = ""  # options whose value is `NAME=value`
    unseen: str = ""  # options whose value may run something
    within: str = ""  # only as one of these commands of a program that has others too

    def __call__(self, args: Arguments) -> Inside:
        if self.within:
            if args.peek() not in self.within.split():
                return Inside()
            args.at += 1
        given = list(args.options(self.options))
        seen = {option.name for option in given}
        hidden = () if seen.isdisjoint(self.unseen.split()) else (f"`{args.name}` has an option that may run a command",)
        if not seen.isdisjoint(self.nothing.split()):
            return Inside()
        for _ in range(self.skip):
            if args.take() is None:
                return Inside()
        assigned = tuple(option.value for option in given if option.name in self.sets.split() and option.value)
        assigned += assignments(args) if self.assignments else ()
        command = args.rest()
        if command is None and (self.shells == "*" or not seen.isdisjoint(self.shells.split())):
            raise Unseen(f"`{args.name}` {SHELL_OPENS}")
        return runs(command)._replace(assigned=assigned, hidden=hidden)


def _unseen(why: str) -> Look:
    def look(args: Arguments) -> Inside:
        raise Unseen(f"`{args.name}` {why}")

    return look


_PREFIX = _Plain()
_PACKAGES = Options("yq", "p", long="yes no no-install quiet prefer-offline", long_values="package")


def _npx(args: Arguments) -> Inside:
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

WRAPPERS: Final[Mapping[str, Look]] = {
    **PROGRAMS,
    **dict.fromkeys(_SHELLS, shell),
    **dict.fromkeys(_OTHER_SHELLS, _unseen("is a shell of another kind, which is not read here")),
    **dict.fromkeys(_RUNNERS, _unseen("runs commands in a way that is not read here")),
    **dict.fromkeys(("nohup", "builtin", "noglob", "nocorrect", "busybox", "toybox", "-"), _PREFIX),
    "command": _Plain(Options(flags="pvV"), nothing="v V"),
    "exec": _Plain(Options(flags="cl", values="a")),
    "eval": evaluate,
    "trap": trap,
    "source": source,
    ".": source,
    "env": env,
    "xargs": xargs,
    "find": find,
    "su": su,
    "runuser": su,
    "flock": flock,
    "script": script,
    "watch": watch,
    "ssh": ssh,
    "chrt": chrt,
    "start-stop-daemon": start_stop_daemon,
    "sudo": _Plain(
        Options(
            flags="ABbEeHiKklNnPSsVv",
            values="CDghpRrTtUu",
            long="askpass background bell edit preserve-env set-home login reset-timestamp remove-timestamp list no-update "
            "non-interactive preserve-groups stdin shell validate",
            long_values="close-from chdir group host prompt chroot role type command-timeout other-user user",
        ),
        assignments=True,
        shells="s i shell login",
    ),
    "doas": _Plain(Options(flags="Lns", values="aCu"), shells="s"),
    "pkexec": _Plain(Options(long="disable-internal-agent keep-cwd", long_values="user"), shells="*"),
    "timeout": _Plain(Options("fpv", "ks", long="foreground preserve-status verbose", long_values="kill-after signal"), skip=1),
    "nice": _Plain(Options(values="n", long_values="adjustment", number=True)),
    "ionice": _Plain(Options("t", "cn", long="ignore", long_values="class classdata")),
    "setsid": _Plain(Options("cfw", long="ctty fork wait")),
    "stdbuf": _Plain(Options(values="ioe", long_values="input output error")),
    # As a shell's keyword it stands before assignments too.
    "time": _Plain(Options("apqv", "fo", long="append portability quiet verbose", long_values="format output"), assignments=True),
    "taskset": _Plain(Options("acp", long="all-tasks pid cpu-list"), skip=1),
    "chroot": _Plain(Options(long="skip-chdir", long_values="userspec groups"), skip=1, shells="*"),
    "unshare": _Plain(
        Options(
            "cCfimnprTuU",
            "GRSw",
            long="mount uts ipc net pid user cgroup time fork map-root-user map-current-user map-auto keep-caps kill-child "
            "mount-proc",
            long_values="propagation setgroups root wd setuid setgid map-user map-group map-users map-groups monotonic boottime",
        ),
        shells="*",
    ),
    "nsenter": _Plain(
        Options(
            "aeFZ",
            "GSt",
            maybe="CimnprTuUwW",
            long="all mount uts ipc net pid user cgroup time root wd preserve-credentials no-fork follow-context env",
            long_values="target setuid setgid wdns",
        ),
        shells="*",
    ),
    "strace": _Plain(Options("cCdDfFhikqrtTvVwxyzZ", "abeEIOpPsSuUX"), sets="E"),
    "systemd-run": _Plain(
        Options(
            "dGPqrt",
            "EHMpu",
            long="user system scope wait pty pipe quiet collect same-dir remain-after-exit send-sighup no-block no-ask-password",
            long_values="unit property description slice uid gid nice working-directory setenv service-type",
        ),
        sets="E setenv",
        unseen="p property",
    ),
    "uv": _Plain(
        Options(
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
    "npx": _npx,
    "npm": _npx,
    "pnpm": _npx,
}
