"""Where a path of a call leads, and whether it may lead there: into the working directory, unless that call was allowed more."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from serai.errors import BadSettings
from serai.model.tools import ToolCall
from serai.tools.failing import Failed
from serai.tools.programs.walking import printable

__all__ = ["Outside", "Place", "Places", "plain"]

Outside = Callable[[ToolCall, str], bool]  # whether this very call was allowed to lead to this real path

_LONGEST = 4096  # bytes: the machine takes no longer path, and to follow its links would take for ever


class Place(NamedTuple):
    """A path with every link followed, and as it is shown: from the working directory on where it is below."""

    path: str
    shown: str


class Places:
    """The folders that calls may look into and change things in."""

    def __init__(self, cwd: str | os.PathLike[str], also: Sequence[str | os.PathLike[str]], outside: Outside) -> None:
        self.cwd = os.path.realpath(cwd)
        if not os.path.isdir(self.cwd):
            raise BadSettings("the working directory of the tools is no folder", who=self.cwd, hint="name one that exists")
        self._roots = (self.cwd, *map(os.path.realpath, also))
        self._outside = outside

    def find(self, said: str, call: ToolCall) -> Place:
        """The place that a call names. By its real path: what is opened later follows no link at all (`files.opened`)."""
        path = self._real(said)
        if not self._inside(path) and not self._outside(call, path):
            hint = f"stay below {plain(self.cwd)}, or ask the person to allow this path"
            raise Failed("PERMISSION_DENIED", f"{plain(said)} leads to {plain(path)}, outside the working directory", hint)
        return Place(path, self.shown(path))

    def outside(self, said: str) -> tuple[str, ...]:
        """The real path that it leads to, when that is outside of all folders."""
        path = self._real(said)
        return () if self._inside(path) else (path,)

    def shown(self, path: str) -> str:
        return plain(os.path.relpath(path, self.cwd) if _within(path, self.cwd) else path)

    def _inside(self, path: str) -> bool:
        return any(_within(path, root) for root in self._roots)

    def _real(self, said: str) -> str:
        if "\0" in said:
            raise Failed("INVALID_ARGS", "no path has a NUL character in it")
        if not said.strip():
            raise Failed("INVALID_ARGS", "the path is empty", "`.` is the working directory")
        try:
            size = len(os.fsencode(said))
        except UnicodeEncodeError:
            raise Failed("INVALID_ARGS", "the path has half a character (a lone surrogate) in it") from None
        if size > _LONGEST:
            raise Failed("INVALID_ARGS", f"the path has {size} bytes", "give a shorter path")
        try:
            # A home folder, as in a shell: nobody means a folder that is called `~`.
            return os.path.realpath(os.path.join(self.cwd, os.path.expanduser(said)))
        except OSError:  # a link that became something else while it was followed
            raise Failed("PERMISSION_DENIED", f"{plain(said)} changed while it was looked for", "try again") from None


def plain(text: str) -> str:
    """A path for a message."""
    return printable(text if len(text) <= 300 else f"{text[:200]}…{text[-80:]}")


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
