"""The one way to start a process (design rule 2), and the one way to stop it.

`Spawner` and `Child` are protocols: `PlainSpawner` starts programs on the machine, a box's spawner starts them inside a box and
returns the same kind of descriptors. Nothing above this module knows which it was.

`stop_child` is the stop ladder: ask, close its input, SIGTERM, SIGKILL the tree. Every step is bounded, the last one always runs.
The ladder is its own task: a caller that is cancelled, or times out, leaves it to finish alone (design rule 11). The tree is swept
even after a polite end, because a program may leave descendants behind.

The environment of a child says what it may know of ours (design rule 13). Three kinds of children, three rules:

* **guests** get everything except what looks like a credential; each further name must be granted.
* **agents** get the same, plus the names on their driver's list (patterns allowed), minus its list of what must not leak in.
* **hooks** get everything: that is how their protocol configures them.

A variable looks like a credential by its name (`…_TOKEN`, `AWS_…`) or by its value (a URL with a password in it). Withheld
names are never silently gone: `list_withheld_names` lists them for reports.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from time import monotonic
from typing import Literal, NamedTuple, Protocol

from serai.errors import ExitStatus, SpawnFailed
from serai.limits import WireLimits
from serai.wire.descriptors import Readers, Tail

log = logging.getLogger("serai.wire")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start. `env` is the whole environment: who may see what is decided before (`serai.wire.process`).

    `extra` gives the child further descriptors at exactly these numbers; the direction is the child's: it reads `"r"`.
    `stderr` is a descriptor of ours that it gets as its own, such as that of a log that can be read and appended to; we keep ours.
    `stdout` likewise, for an answer that is to outlive us; then there is nothing to read from the child.
    A program name without a slash is looked up in the PATH of `env`; a relative one with a slash starts at `cwd`.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None
    who: str = ""
    stdin: Literal["pipe", "null"] = "pipe"
    stdout: int | None = None  # None: a pipe
    stderr: int | None = None  # None: a pipe, always drained
    remarks: bytes = b""  # lines of that file which begin so are ours, not the program's
    extra: Mapping[int, Literal["r", "w"]] = field(default_factory=dict)
    pipe: int | None = None  # bytes: make the pipes this large at once, for programs that lose what does not fit


class Child(Protocol):
    """A running program as its wire sees it: descriptors to read and write, a stderr tail, and its end.

    Descriptors are non-blocking and belong to the child; -1 means closed or never there. Every method may be called at any
    time from any task of the loop, also after the end.
    """

    @property
    def who(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def stdin(self) -> int: ...
    @property
    def stdout(self) -> int: ...
    @property
    def extra(self) -> Mapping[int, int]: ...
    @property
    def stderr(self) -> Tail: ...
    @property
    def status(self) -> ExitStatus | None:
        """How the program itself ended, whatever its descendants do; None while it runs."""
        ...

    @property
    def exited(self) -> asyncio.Future[ExitStatus]:
        """Done once it has ended. A future of one's own: to give up waiting harms nobody."""
        ...

    @property
    def readers(self) -> Readers:
        """Who calls back when one of its descriptors can be read: the loop, or a poller for many."""
        ...

    def on_exit(self, callback: Callable[[], None]) -> None:
        """Have `callback` called in the moment its end is known; soon, when it is known already."""
        ...

    def close_descriptor(self, number: int) -> None:
        """Close one of ours by our number, such as `stdin`: the end of its input. Idempotent."""
        ...

    def before_close(self, number: int, callback: Callable[[], None]) -> None:
        """Have `callback` called right before that descriptor is closed: its user must let go of it first."""
        ...

    def drain_noise(self, number: int, limit: int | None = None) -> Tail:
        """Drain a descriptor that carries no frames, such as the stdout of a child whose wire is elsewhere: it must not block.

        The last bytes are kept, `limits.noise_tail` of them unless told otherwise; at the child's end all that it wrote is there.
        """
        ...

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the program, or to its process group; nothing happens after its end."""
        ...

    async def kill_tree(self) -> list[int]:
        """SIGKILL the program and everything that descends from it; the pids that would not die within `stop_kill`."""
        ...

    async def close(self) -> None:
        """Kill what is left of the tree, reap, close every descriptor. Idempotent, never raises."""
        ...


class Spawner(Protocol):
    """Starts programs."""

    def spawn(self, launch: Launch) -> Awaitable[Child]: ...


def find_program(launch: Launch) -> str:
    """The file to execute. Whether it can be executed is for the kernel to say; only when it says no, we look why."""
    name = launch.argv[0] if launch.argv else ""
    if name.startswith("/"):
        return name
    if "/" in name:
        return os.path.abspath(os.path.join(launch.cwd or "", name))
    if not name:
        hint = "give the program and its arguments"
        raise SpawnFailed("no program to start: the command line is empty", who=launch.who, errno=errno.EINVAL, hint=hint)
    for folder in launch.env.get("PATH", os.defpath).split(os.pathsep):
        if folder and _is_executable(path := os.path.join(folder, name)):  # an empty one would mean our own directory
            return os.path.abspath(path)
    hint = f"install {name}, or give its path"
    raise SpawnFailed(f"there is no program {name} on the PATH", who=launch.who, errno=errno.ENOENT, hint=hint)


def _is_executable(path: str) -> bool:
    return os.access(path, os.X_OK) and os.path.isfile(path)


def build_spawn_error(launch: Launch, error: Exception) -> SpawnFailed:
    name = launch.argv[0]
    if not isinstance(error, OSError):  # NUL, not a string, or a C library without what we need
        return SpawnFailed(f"cannot start {name}: {error}", who=launch.who, errno=errno.EINVAL)
    number = error.errno or 0
    if number in (errno.ENOENT, errno.EACCES, errno.ENOTDIR):
        if launch.cwd is not None and not os.path.isdir(launch.cwd):
            hint = "make the directory, or start it in another"
            return SpawnFailed(f"its working directory {launch.cwd} does not exist", who=launch.who, errno=number, hint=hint)
        path = error.filename
        if path and not os.path.exists(path):
            hint = "correct the path, or install what it belongs to"
            return SpawnFailed(f"{path} does not exist", who=launch.who, errno=number, hint=hint)
        if path and not _is_executable(path):
            hint = f"make it executable: chmod +x {path}"
            return SpawnFailed(f"{path} is not an executable file", who=launch.who, errno=number, hint=hint)
    return SpawnFailed(f"cannot start {name}: {os.strerror(number)}", who=launch.who, errno=number, hint=_HINTS.get(number, ""))


_HINTS = {
    errno.EMFILE: "too many open files in this process: raise `ulimit -n`",
    errno.ENFILE: "too many open files on this machine",
    errno.EAGAIN: "too many processes: raise `ulimit -u`",
    errno.ENOEXEC: "it is neither a program nor a script with a #! line",
    errno.ENOENT: "its interpreter (the #! line) does not exist",
    errno.E2BIG: "its arguments and environment are too long",
    errno.EPERM: "the machine does not allow it: a sandbox around this process?",
    errno.ENOSYS: "the kernel is too old: Serai needs Linux 5.4 or newer",
}


Step = Literal["already", "polite", "term", "kill", "survived"]


class StopResult(NamedTuple):
    """How a child ended: the step of the ladder that did it, and its exit status (None if it would not die)."""

    step: Step
    exit: ExitStatus | None


Polite = Callable[[], Awaitable[None]]


async def stop_child(child: Child, limits: WireLimits, *, polite: Polite | None = None) -> StopResult:
    """Stop a child and everything it started.

    `polite` says goodbye in the dialect's way (`lambda: channel.send_farewell(frame)`); it shares its time with the child's end.
    """
    ladder = asyncio.get_running_loop().create_task(_run_ladder(child, limits, polite), name=f"stop {child.who}")
    return await asyncio.shield(ladder)


async def _run_ladder(child: Child, limits: WireLimits, polite: Polite | None) -> StopResult:
    step: Step = "already"
    try:
        if child.status is None:
            step = await _descend_ladder(child, limits, polite)
    finally:
        await child.close()
    return StopResult("survived" if child.status is None else step, child.status)


async def _descend_ladder(child: Child, limits: WireLimits, polite: Polite | None) -> Step:
    end = monotonic() + limits.stop_polite
    if polite is not None:
        try:
            async with asyncio.timeout(limits.stop_polite):
                await polite()
        except Exception as error:  # a full or broken pipe, a child that does not read: the next step does not need it
            log.debug("%s: no farewell: %s", child.who, error)
    child.close_descriptor(child.stdin)
    if await _wait_for_exit(child, max(end - monotonic(), 0)):
        return "polite"
    # The group, so that a program behind a shell hears it too; what made its own session is for the last step.
    child.signal(signal.SIGTERM, group=True)
    if await _wait_for_exit(child, limits.stop_term):
        return "term"
    return "kill"


async def _wait_for_exit(child: Child, seconds: float) -> bool:
    exited = child.exited
    done, _ = await asyncio.wait([exited], timeout=seconds)
    exited.cancel()  # ours alone: what was waited for in vain is not kept
    return bool(done)


# A credential has one of these words in its name, or a word that ends in one of the second (`PGPASSWORD`, `authToken`).
_WORDS = frozenset({
    "APIKEY", "AUTH", "BEARER", "COOKIE", "COOKIES", "CRED", "CREDENTIAL", "CREDENTIALS", "CREDS", "DSN", "JWT", "KEY", "KEYS",
    "OAUTH", "PASS", "PASSPHRASE", "PASSWD", "PASSWORD", "PASSWORDS", "PAT", "PWD", "SAS", "SECRET", "SECRETS", "TOKEN", "TOKENS",
    "WEBHOOK", "WEBHOOKS",
})  # fmt: skip
_ENDINGS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "ACCESSKEY", "SECRETKEY", "PRIVATEKEY")

# Whole families, whatever their members are called. Git's numbered settings may carry headers and only make sense together.
_FAMILIES = (
    "AWS_*", "AZURE_*", "BW_*", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_*", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_VALUE_*",
    "GOOGLE_APPLICATION_*", "GPG_AGENT_INFO", "OP_SESSION*", "SESSION_ID", "SSH_AGENT_PID", "SSHPASS", "VAULT_*",
)  # fmt: skip

# Names that only sound like one: the working directory, and how many tokens a model may use.
_HARMLESS = frozenset({"PWD"})
_AMOUNTS = frozenset({"MAX", "MIN", "NUM", "COUNT", "LIMIT", "BUDGET"})

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_VALUE = re.compile(
    r"""://[^/\s@:]*:[^/\s@]+@                                                  # a URL with a password
      | https?://[^/\s@]+@                                                      # or with a token for a user
      | \b(?:password|passwd|pwd|secret|token|api[_-]?key)\s*=\s*[^;&\s]       # a connection string
      | \b(?:bearer|basic)\s+\S                                                # an authorisation header""",
    re.VERBOSE | re.IGNORECASE,
)


def looks_secret(name: str, value: str = "") -> bool:
    """Whether a variable should be kept from code that was not granted it. Rather too often than too seldom."""
    if name in _HARMLESS:
        return False
    words = {word.upper() for word in _WORD.findall(name)}
    if words & _AMOUNTS:
        words.discard("TOKENS")
    if words & _WORDS or any(word.endswith(_ENDINGS) for word in words):
        return True
    return any(fnmatchcase(name.upper(), family) for family in _FAMILIES) or bool(_SECRET_VALUE.search(value))


def list_withheld_names(base: Mapping[str, str], grants: Iterable[str] = ()) -> list[str]:
    """The names that a guest with these grants does not get, sorted."""
    granted = frozenset(grants)
    return sorted(name for name, value in base.items() if name not in granted and looks_secret(name, value))


_OURS = frozenset({"PIGLET_FD"})


def build_guest_env(
    base: Mapping[str, str], *, grants: Iterable[str] = (), extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """A guest's environment. Grants are exact names: a pattern would grant tomorrow's secrets too.

    What tells a program that it has descriptors of a host is for the child of that host alone (spec piglet 2.1).
    """
    hidden = frozenset(list_withheld_names(base, grants)) | _OURS
    return {name: value for name, value in base.items() if name not in hidden} | dict(extra or {})


def build_agent_env(
    base: Mapping[str, str],
    *,
    keep: Iterable[str] = (),
    drop: Iterable[str] = (),
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """An agent's environment: `keep` is its driver's list of credentials it needs, `drop` what would mislead it."""
    kept, dropped = tuple(keep), tuple(drop)
    chosen = {
        name: value
        for name, value in base.items()
        if not _matches(name, dropped) and (_matches(name, kept) or not looks_secret(name, value))
    }
    return chosen | dict(extra or {})


def build_hook_env(base: Mapping[str, str], *, extra: Mapping[str, str] | None = None, clear: bool = False) -> dict[str, str]:
    """A box hook's environment: all of it, by protocol, unless its configuration says to start from nothing."""
    return ({} if clear else dict(base)) | dict(extra or {})


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
