"""Patterns of rules: globs over names and fields, host patterns, path patterns.

*Globs*, over names of tools and askers, and fields of an input. `*` stands for any characters, `?` for one, a backslash takes the
next character as it is. The whole text has to match, with its letter case. Matching takes time in proportion to the text, whatever
the pattern (the text is the model's).

*Hosts*: which host a URL really reaches. `example.com` is that host alone, `*.example.com` everything below it, `*` any. A port
may follow: `localhost:8080`. A URL that two programs could read in two ways has no host here: it raises a `ValueError` that says
why.

*Paths*: where an argument really leads. A pattern is matched against the resolved path (symbolic links and `..` followed), so that
`./link/../../etc/passwd` is what it is. `./**` begins at the working directory of the session, `~/` at the home folder, `/` at the
root; `**/.env` is found at any depth. `*` and `?` stay within one name, `**` crosses folders, and `dir/**` is the folder too. An
allow pattern means its own name alone: in `./build/**` a `build` that somebody made a link to `/` would else allow everything. A
deny or ask pattern means where its name leads as well.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple
from urllib.parse import urlsplit


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Compiled, for `fullmatch`."""
    return re.compile(glob_to_regex(pattern), re.DOTALL)


def glob_to_regex(pattern: str, one: str = ".") -> str:
    """As a regular expression; `one` is what a `?` stands for, and a `*` for any number of."""
    return pieces_to_regex(split_glob(pattern), one)


def pieces_to_regex(signs: Iterable[tuple[str, bool]], one: str = ".") -> str:
    """The same of characters of which somebody knows already whether they are plain."""
    parts = [""]
    for char, plain in signs:
        if plain or char not in "*?":
            parts[-1] += re.escape(char)
        elif char == "?":
            parts[-1] += one
        else:
            parts.append("")
    first, *rest = parts
    if not rest:
        return first
    # A star takes as little as it can up to the next piece and never gives back (atomic): enough for stars, and linear. The
    # last piece has to be the end.
    middle = "".join(f"(?>{one}*?{part})" for part in rest[:-1] if part)
    return f"{first}{middle}{one}*{rest[-1]}"


def split_glob(pattern: str) -> Iterator[tuple[str, bool]]:
    """`(character, whether a backslash made it plain)`."""
    characters = iter(pattern)
    for char in characters:
        if char == "\\":
            yield next(characters, "\\"), True
        else:
            yield char, False


def escape_glob(text: str) -> str:
    """A pattern that matches this text alone."""
    return re.sub(r"([*?\\])", r"\\\1", text)


_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_NETLOC = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@%]+))(?::([0-9]*))?")
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+))*")
_OCTAL = re.compile(r"(?:.*\.)?0[0-9].*")
_LONGEST = 253  # a name in the DNS


def parse_host(url: str) -> tuple[str, int]:
    """`(host, port)` as programs will use them: lower case, no dot at the end, numbers as addresses."""
    if re.search(r"[\x00-\x20\\\x7f]", url):
        raise ValueError("a URL with a backslash, a space or a control character in it")
    parts = urlsplit(url)  # a ValueError of its own for what is no URL at all
    if parts.scheme not in _PORTS or not parts.netloc:
        raise ValueError(f"not a URL of {', '.join(_PORTS)}")
    if "@" in parts.netloc:
        raise ValueError("a URL with a user name before its host")
    found = _NETLOC.fullmatch(parts.netloc)
    if found is None:
        raise ValueError("a URL whose host is no name, or whose port is no number")
    if found[3] and not re.fullmatch(r"[1-9][0-9]{0,4}", found[3]):  # 080 is 80 to most programs, and never one to rely on
        raise ValueError("a URL whose port is not written as a number from 1 to 65535")
    port = int(found[3]) if found[3] else _PORTS[parts.scheme]
    if port > 65535:
        raise ValueError("a URL whose port is not written as a number from 1 to 65535")
    return _parse_address(found[1]) if found[1] else _normalise_host(found[2].lower()), port


def _normalise_host(name: str) -> str:
    """In the form that is looked up. Where programs do not agree on that form, there is none."""
    name = name.removesuffix(".")
    if len(name) > _LONGEST:
        raise ValueError("a URL whose host is no name")
    if not name.isascii():
        name = _encode_idna(name)
    if _NUMBER.fullmatch(name):  # 2130706433 and 0x7f.1 are 127.0.0.1 to most programs
        if _OCTAL.fullmatch(name):  # and 010 is 8 to some, 10 to others
            raise ValueError("a URL whose host is a number with a 0 before it")
        try:
            return str(ipaddress.ip_address(socket.inet_aton(name)))
        except OSError:
            raise ValueError("a URL whose host is no address") from None
    if not _NAME.fullmatch(name):
        raise ValueError("a URL whose host is no name")
    return name


def _encode_idna(name: str) -> str:
    """The `xn--` form of a name in its normal form. Wide letters, a sharp s, an ideographic dot are read in two ways."""
    try:
        found = name.encode("idna").decode()
        normal = unicodedata.normalize("NFKC", name).casefold() == name == found.encode().decode("idna")
    except UnicodeError:
        found, normal = "", False
    if not normal:
        raise ValueError("a URL whose host is written with letters that programs read in different ways")
    return found


def _parse_address(name: str) -> str:
    try:
        found = ipaddress.IPv6Address(name)
    except ValueError:
        raise ValueError("a URL whose host is no address") from None
    return str(found.ipv4_mapped or found)


class HostPattern:
    """One pattern over hosts, with or without a port."""

    def __init__(self, text: str) -> None:
        self.text = text
        found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:/\s\[\]\\]+))(?::(\d+))?", text, re.ASCII)
        if found is None:
            raise ValueError(f"a host pattern is a name such as *.example.com, with a port or without, not {text!r}")
        self._port = int(found[3]) if found[3] else None
        try:
            name = _parse_address(found[1]) if found[1] else _normalise_pattern(found[2].lower())
        except ValueError:
            raise ValueError(f"a host pattern is a name such as *.example.com, not {text!r}") from None
        # 192.168.* means addresses; 192.168.example.com is a name.
        self._numbers = re.fullmatch(r"[0-9*?.]*[0-9][0-9*?.]*", name) is not None
        self._host = compile_glob(name)

    def __repr__(self) -> str:
        return f"HostPattern({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostPattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, host: str, port: int) -> bool:
        if self._port not in (None, port) or self._host.fullmatch(host) is None:
            return False
        return not self._numbers or host.replace(".", "").isdigit()


def _normalise_pattern(name: str) -> str:
    """Hosts are compared in the form that is looked up, so that is how a pattern has to be."""
    if "*" not in name and "?" not in name:
        return _normalise_host(name)
    labels = name.removesuffix(".").split(".")
    if any("*" in label or "?" in label for label in labels if not label.isascii()):
        raise ValueError("a star within letters that are encoded")
    return ".".join(label if label.isascii() else _encode_idna(label) for label in labels)


_MOST = 4096  # what the kernel takes for a path (PATH_MAX)
_MOST_LINKS = 40  # what it follows in one path (MAXSYMLINKS)
_UNSEEN = (errno.ENAMETOOLONG, errno.ELOOP)  # who goes there step by step may find a link where we cannot look


class ResolvedPath(NamedTuple):
    """Where a path leads, as far as can be known, and why it may lead elsewhere."""

    path: str
    odd: str = ""


def resolve_path(path: str, cwd: str) -> ResolvedPath:
    """Every link and `..` followed as the kernel does, whether or not it is there yet. `cwd` is resolved already.

    Not `os.path.realpath`: that takes whatever it cannot look at for a plain name, and does not tell.
    """
    if odd := _find_path_flaw(path):
        return ResolvedPath("", odd)
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
            return ResolvedPath(step, "a loop of links in its path")
        if step.startswith("/proc/"):
            odd = "a path through /proc, which leads elsewhere for each process"
        if target.startswith("/"):
            place = ""
        names += target.split("/")[::-1]
    return ResolvedPath(place or "/", odd)


def normalise_path(path: str, cwd: str) -> str:
    """As it is written, from the root on: many tools take `a/..` away without a look at what `a` is."""
    return "/" + os.path.normpath(os.path.join(cwd, path)).lstrip("/")


def list_candidates(said: object) -> tuple[tuple[str, ...], str]:
    """Everything a tool may take an argument for, and why there may be more.

    Some trim it, some read `~` as the home folder (and some as a name) or put in variables, some take away the `@` that people
    put before a file.
    """
    if not isinstance(said, str):
        return (), "a path that is no text"
    if odd := _find_path_flaw(said):
        return (), odd
    found = [said, said.strip()]
    found += [text[1:].strip() for text in found if text.startswith("@")]
    found += [os.path.expandvars(text) for text in found if "$" in text]
    found += [os.path.expanduser(text) for text in found if text.startswith("~")]
    is_url = any(text[:5].lower() == "file:" for text in found)
    return tuple(dict.fromkeys(found)), "a URL where a path should be" if is_url else ""


def _find_path_flaw(text: str) -> str:
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
        if odd := _find_path_flaw(_unescape(text)):
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
        return self._matches(self._resolve_base(cwd), place)

    def finds(self, place: str, cwd: str) -> bool:
        """Whether a path, resolved or as written, is meant, by the pattern as it is written or where that leads."""
        base = self._resolve_base(cwd)
        return self._matches(base, place) or self._matches(resolve_path(base, cwd).path, place)

    def may_be_below(self, place: str, cwd: str) -> bool:
        """Whether something in this folder, or deeper, may be meant."""
        base, folder = f"{resolve_path(self._resolve_base(cwd), cwd).path.rstrip('/')}/", f"{place.rstrip('/')}/"
        return base.startswith(folder) or (bool(self._rest) and folder.startswith(base))

    def _matches(self, base: str, place: str) -> bool:
        return _compile("/".join([escape_glob(base).rstrip("/"), *self._rest]) or "/").fullmatch(place) is not None

    def _resolve_base(self, cwd: str) -> str:
        """The part without stars, from the root on. The working directory and the home folder are resolved: they are a person's."""
        if self._anywhere:
            return "/"
        text = _unescape(self._fixed) or ("/" if self.text.startswith("/") else ".")
        if self.text.startswith("~"):
            home, _, rest = text.partition("/")
            return normalise_path(rest, resolve_path(os.path.expanduser(home), cwd).path)
        return normalise_path(text, cwd)


def _unescape(pattern: str) -> str:
    return "".join(char for char, _ in split_glob(pattern))


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> re.Pattern[str]:
    """Groups of names between `**`: each as early as it can be and never given back, the last one at the end (as in `globs`)."""
    groups = [""]
    for name in pattern.removeprefix("/").split("/"):
        if name == "**":
            groups.append("")
        else:
            groups[-1] += f"/{'(?=[^/])' if name else ''}{glob_to_regex(name, '[^/]')}"  # a name is never empty
    first, *rest = groups
    if not rest:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?>(?:/[^/]+)*?{group}(?![^/]))" for group in rest[:-1] if group)
    return re.compile(f"{first}{middle}(?:/[^/]+)*{rest[-1]}{'' if rest[-1] else '/?'}", re.DOTALL)
