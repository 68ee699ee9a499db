"""Paths: where an argument really leads, and patterns over that.

A pattern is matched against the resolved path (symbolic links and `..` followed), so that `./link/../../etc/passwd` is what it
is. `./**` begins at the working directory of the session, `~/` at the home folder, `/` at the root; `**/.env` is found at any
depth. `*` and `?` stay within one name, `**` crosses folders, and `dir/**` is the folder too.

What allows means its own name alone: in `./build/**` a `build` that somebody made a link to `/` would else allow everything. What
denies or asks means where its name leads as well.
"""

from __future__ import annotations

import errno
import os
import re
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from serai.policy.globs import escaped, pieces, source

__all__ = ["PathPattern", "Place", "lexical", "meanings", "resolve"]

_MOST = 4096  # what the kernel takes for a path (PATH_MAX)
_MOST_LINKS = 40  # what it follows in one path (MAXSYMLINKS)
_UNSEEN = (errno.ENAMETOOLONG, errno.ELOOP)  # who goes there step by step may find a link where we cannot look


class Place(NamedTuple):
    """Where a path leads, as far as can be known, and why it may lead elsewhere."""

    path: str
    odd: str = ""


def resolve(path: str, cwd: str) -> Place:
    """Every link and `..` followed as the kernel does, whether or not it is there yet. `cwd` is resolved already.

    Not `os.path.realpath`: that takes whatever it cannot look at for a plain name, and does not tell.
    """
    if odd := _no_path(path):
        return Place("", odd)
    place, odd, links = ("" if path.startswith("/") else cwd.rstrip("/")), "", 0
    names = path.split("/")[::-1]
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        if name == "..":
            place = place.rpartition("/")[0]
            continue
        step = f"{place}/{name}"
        try:
            target = os.readlink(step)
        except OSError as error:
            odd = "a path longer than can be followed" if error.errno in _UNSEEN else odd
            place = step  # no link; or not there, and then this name is all there is
            continue
        links += 1
        if links > _MOST_LINKS:
            return Place(step, "a loop of links in its path")
        if step.startswith("/proc/"):
            odd = "a path through /proc, which leads elsewhere for each process"
        if target.startswith("/"):
            place = ""
        names += target.split("/")[::-1]
    return Place(place or "/", odd)


def lexical(path: str, cwd: str) -> str:
    """As it is written, from the root on: many tools take `a/..` away without a look at what `a` is."""
    return "/" + os.path.normpath(os.path.join(cwd, path)).lstrip("/")


def meanings(said: object) -> tuple[tuple[str, ...], str]:
    """Everything a tool may take an argument for, and why there may be more.

    Some trim it, some read `~` as the home folder (and some as a name) or put in variables, some take away the `@` that people
    put before a file.
    """
    if not isinstance(said, str):
        return (), "a path that is no text"
    if odd := _no_path(said):
        return (), odd
    found = [said, said.strip()]
    found += [text[1:].strip() for text in found if text.startswith("@")]
    found += [os.path.expandvars(text) for text in found if "$" in text]
    found += [os.path.expanduser(text) for text in found if text.startswith("~")]
    is_url = any(text[:5].lower() == "file:" for text in found)
    return tuple(dict.fromkeys(found)), "a URL where a path should be" if is_url else ""


def _no_path(text: str) -> str:
    """Why no file can have this path."""
    if "\0" in text:
        return "a path with a NUL in it"
    try:
        return f"a path longer than {_MOST} bytes" if len(os.fsencode(text)) > _MOST else ""
    except UnicodeEncodeError:
        return "a path with half a character in it"


class PathPattern:
    """One pattern over paths. Immutable; compiled for each base that it is used with."""

    def __init__(self, text: str) -> None:
        if not text:
            raise ValueError("an empty path pattern")
        if odd := _no_path(_plain(text)):
            raise ValueError(f"a pattern of {odd}")
        names = text.split("/")
        if any("**" in name and name != "**" for name in names):
            raise ValueError(f"`**` stands alone between slashes, as in **/*.env, not as in {text!r}")
        fixed = list(takewhile(lambda name: "*" not in name and "?" not in name, names))
        rest = [name for name in names[len(fixed) :] if name not in ("", ".")]
        if ".." in rest:
            raise ValueError(f"`..` behind a star leads anywhere: say where, not {text!r}")
        self.text = text
        self._fixed, self._rest = "/".join(fixed), rest
        self._anywhere = text.startswith("**")

    def __repr__(self) -> str:
        return f"PathPattern({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PathPattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def allows(self, place: str, cwd: str) -> bool:
        """Whether a resolved path is meant, or a folder above it that ends in `**`; links in the pattern are not followed."""
        return self._is(self._base(cwd), place)

    def finds(self, place: str, cwd: str) -> bool:
        """Whether a path, resolved or as written, is meant, by the pattern as it is written or where that leads."""
        base = self._base(cwd)
        return self._is(base, place) or self._is(resolve(base, cwd).path, place)

    def may_be_below(self, place: str, cwd: str) -> bool:
        """Whether something in this folder, or deeper, may be meant."""
        base, folder = f"{resolve(self._base(cwd), cwd).path.rstrip('/')}/", f"{place.rstrip('/')}/"
        return base.startswith(folder) or (bool(self._rest) and folder.startswith(base))

    def _is(self, base: str, place: str) -> bool:
        return _compiled("/".join([escaped(base).rstrip("/"), *self._rest]) or "/").fullmatch(place) is not None

    def _base(self, cwd: str) -> str:
        """The part without stars, from the root on. The working directory and the home folder are resolved: they are a person's."""
        if self._anywhere:
            return "/"
        text = _plain(self._fixed) or ("/" if self.text.startswith("/") else ".")
        if self.text.startswith("~"):
            home, _, rest = text.partition("/")
            return lexical(rest, resolve(os.path.expanduser(home), cwd).path)
        return lexical(text, cwd)


def _plain(pattern: str) -> str:
    return "".join(char for char, _ in pieces(pattern))


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Groups of names between `**`: each as early as it can be and never given back, the last one at the end (as in `globs`)."""
    groups = [""]
    for name in pattern.removeprefix("/").split("/"):
        if name == "**":
            groups.append("")
        else:
            groups[-1] += f"/{'(?=[^/])' if name else ''}{source(name, '[^/]')}"  # a name is never empty
    first, *rest = groups
    if not rest:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?>(?:/[^/]+)*?{group}(?![^/]))" for group in rest[:-1] if group)
    return re.compile(f"{first}{middle}(?:/[^/]+)*{rest[-1]}{'' if rest[-1] else '/?'}", re.DOTALL)
