"""A call as rules look at it: who asks for what, and what its arguments really mean. Each part is worked out when a rule asks.

A part that cannot be known (a path with a NUL, a URL that two programs read in two ways) says so: a rule that denies then asks,
and a rule that allows does not match.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, islice, product, takewhile
from typing import Any, NamedTuple

import msgspec

from serai.model.ask import Remember
from serai.model.tools import ToolCall
from serai.policy.commands import Reading, read
from serai.policy.hosts import host_of
from serai.policy.paths import lexical, meanings, resolve

__all__ = ["Found", "Situation", "Subject"]

# Arguments that lead somewhere, by the names that tools give them.
_PATHS = (
    *("path", "paths", "file", "files", "file_path", "filePath", "filename", "notebook_path"),
    *("directory", "dir", "folder", "source", "destination", "target"),
)
_FROM_HERE = ("grep", "find")  # without a path they look through the working directory
_GLOBS = {"find": ("pattern", "glob"), "grep": ("glob", "include")}  # arguments that are patterns of paths
_BRACES = re.compile(r"\{[\w-][\w./-]*(?:,[\w-][\w./-]*)*\}")  # alternatives that are names, as in *.{ts,tsx}
_CWD = ("cwd", "workdir")

_MOST = 1000  # paths or URLs of one call that are looked at: each costs a few looks at the disk, or a moment

# What a call of a shell may say besides its command without being another call. Anything else (`env`, `stdin`, `user`) is.
BESIDE_COMMAND = frozenset({"command", "description", "timeout", "timeout_ms", "background", "run_in_background", *_CWD})


class Situation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a call is made. `owner` is the guest that offers the tool, empty for a built-in or an agent's own."""

    cwd: str
    project: str = ""
    session: str = ""
    agent: str = ""
    owner: str = ""
    profile: str = ""

    def key(self, scope: Remember) -> str:
        """Whose a remembered decision of this scope is: this session's, this project's, or nobody's in particular."""
        if scope == "project":
            return os.path.realpath(self.project or self.cwd)
        return self.session if scope == "session" else ""


class Found(NamedTuple):
    """The values of one kind in the arguments, and why there may be others."""

    values: tuple[Any, ...] = ()
    odd: str = ""


class Subject:
    """One call in its situation."""

    def __init__(self, call: ToolCall, situation: Situation) -> None:
        self.call = call
        self.situation = situation
        self.who = call.asker or situation.agent or "unnamed"
        self.cwd = os.path.realpath(situation.cwd)
        said = {} if call.arguments is None else call.arguments
        self.arguments: dict[str, Any] = said if isinstance(said, dict) else {}
        self.odd = "" if isinstance(said, dict) else "arguments that are no object of names and values"

    @property
    def guest(self) -> bool:
        """Whether a guest asks: their ids have a colon."""
        return ":" in self.who

    @cached_property
    def cwds(self) -> Found:
        """Where the call may run: in the session's folder, unless it names one itself."""
        said = [self.arguments[name] for name in _CWD if self.arguments.get(name) not in (None, "")]
        return _resolved(said, (self.cwd,)) if said else Found((self.cwd,), self.odd)

    @cached_property
    def reading(self) -> Reading | None:
        """What its command runs; None when it has none."""
        command = self.arguments.get("command")
        if isinstance(command, str):
            return read(command)
        if isinstance(command, list) and all(isinstance(word, str) for word in command):
            return read(command)
        return None if command is None else Reading(None, unread="the command is neither a text nor a list of words")

    @cached_property
    def places(self) -> Found:
        """Where its paths lead, resolved; every meaning that a tool may give them."""
        found = _resolved(self._paths, self._bases)
        many = f"more than {_MOST} paths" if len(self._paths) == _MOST else ""
        return Found(found.values, self.odd or self.cwds.odd or many or found.odd)

    @cached_property
    def named(self) -> tuple[str, ...]:
        """Its paths as they are written, from the root on, no link followed: a rule against `**/.env` means the link too."""
        texts = [text for said in self._paths for text in meanings(said)[0]]
        return tuple(dict.fromkeys(lexical(text, base) for text in texts for base in self._bases))

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """Folders whose files it reads without naming them."""
        return tuple(filter(os.path.isdir, self.places.values)) if self.call.name == "grep" else ()

    @cached_property
    def hosts(self) -> Found:
        """`(host, port)` of its URLs."""
        found: list[tuple[str, int]] = []
        odd = self.odd
        urls = [said for name in ("url", "urls", "uri") for said in _each(self.arguments.get(name))]
        for said in urls[:_MOST]:
            try:
                found.append(host_of(said if isinstance(said, str) else ""))
            except ValueError as error:
                odd = str(error)
        return Found(tuple(found), f"more than {_MOST} URLs" if len(urls) > _MOST else odd)

    @cached_property
    def digest(self) -> str:
        """Of the arguments, however their keys are ordered. What cannot be written down is like nothing else."""
        try:
            return hashlib.sha256(msgspec.json.encode(self.call.arguments, order="deterministic")).hexdigest()
        except _UNWRITABLE:
            return secrets.token_hex(32)

    def field(self, name: str) -> Found:
        """The texts under a dotted name: of a list each, of what is no text its JSON."""
        values: list[Any] = [self.arguments]
        for key in name.split("."):
            values = [item for value in values for item in _each(value)]
            values = [value[key] for value in values if isinstance(value, dict) and key in value]
        found: list[str] = []
        odd = self.odd
        for text in (item for value in values for item in _each(value)):
            try:
                found.append(text if isinstance(text, str) else msgspec.json.encode(text).decode())
            except _UNWRITABLE:
                odd = f"a `{name}` that is nested too deep, or no JSON"
        return Found(tuple(found), odd)

    @cached_property
    def _bases(self) -> tuple[str, ...]:
        """Where a relative path may begin."""
        return tuple(dict.fromkeys((self.cwd, *self.cwds.values)))

    @cached_property
    def _paths(self) -> tuple[Any, ...]:
        """As they are said, and what patterns of paths among the arguments can reach."""
        said = [value for name in _PATHS for value in _each(self.arguments.get(name))]
        if not said and self.call.name in _FROM_HERE:
            said = ["."]
        below = [value for value in said if isinstance(value, str)]
        patterns = [value for name in _GLOBS.get(self.call.name, ()) for value in _each(self.arguments.get(name))]
        reached = [_reach(pattern) if isinstance(pattern, str) else pattern for pattern in patterns]
        joined = (os.path.join(base, reach) for reach in reached if isinstance(reach, str) for base in below)
        # Alone too: a pattern may be taken from the working directory on, and `~` means something only at the start.
        return tuple(islice(chain(said, reached, joined), _MOST))


_UNWRITABLE = (RecursionError, ValueError, TypeError, OverflowError)  # of what is no JSON, or too deep for it


def _resolved(said: Iterable[Any], bases: Sequence[str]) -> Found:
    """Where each leads for tools that go step by step, and for those that take `a/..` away first."""
    found: dict[str, None] = {}
    odd = ""
    for one in said:
        texts, why = meanings(one)
        odd = why or odd
        for text, base in product(texts, bases):
            for path in dict.fromkeys((text, lexical(text, base))):
                place, why = resolve(path, base)
                odd = why or odd
                if place:
                    found[place] = None
    return Found(tuple(found), odd)


def _reach(pattern: str) -> str:
    """The highest folder that a pattern of paths can look into."""
    names = _BRACES.sub("*", pattern).split("/")
    fixed = list(takewhile(lambda name: not any(char in name for char in "*?[{!(\\"), names))
    rest = "/".join(names[len(fixed) :])
    if any(sign in rest for sign in ("..", "{", "(", "\\")):
        return "/"  # up again behind a star, or alternatives that may be anything: anywhere
    return "/".join(fixed) or ("/" if pattern.startswith("/") else ".")


def _each(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return value if isinstance(value, list) else (value,)
