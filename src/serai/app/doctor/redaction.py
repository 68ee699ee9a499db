"""What may be shown to strangers: no secret, neither the person's nor the machine's name, and the home folder as `~`."""

from __future__ import annotations

import json
import os
import pwd
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from serai.limits import MIB
from serai.record import secret_patterns
from serai.record.secrets import Secrets

# Where a person's name is looked for; who works as root has often come as somebody else.
_PERSON = ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER")
_ANYBODY = frozenset({"", "root", "home", "user", "nobody", "localhost"})  # they tell nothing
_THINGS, _GUESTS = frozenset({"id"}), frozenset({"name", "version"})  # what things are called by: in settings, in a manifest
_LARGE = 1 << 64  # a number beyond it is quoted nowhere
_SHORT = 4  # characters: a shorter name or value is in too many words


class Redactor:
    """Takes out of texts what is nobody else's business. Made once: what is known is what the environment said then."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._secrets = Secrets.from_env(environ)
        hidden = {
            "home": _join_patterns(map(_build_path_pattern, _find_homes(environ))),
            "other": r"(?<![\w/.~-])/(?:home|Users)/[^/\s'\":;,]+",
            "folder": _join_patterns(map(_build_folder_pattern, _find_homes(environ))),
            "user": _join_patterns(map(_build_name_pattern, _find_user_names(environ))),
            "machine": _join_patterns(map(_build_name_pattern, _find_host_names(environ))),
        }
        # All at once: what stands in the place of one must not be taken for another.
        self._names = re.compile("|".join(f"(?P<{group}>{form})" for group, form in hidden.items() if form), re.IGNORECASE)

    def __call__(self, text: str) -> str:
        """The same, to be shown to anybody. Secrets first: half of one would not be known any more."""
        return self._names.sub(_get_replacement, secret_patterns.mask_text(self._secrets.mask_text(text)))


def _get_replacement(found: re.Match[str]) -> str:
    if found.lastgroup == "other":
        return f"{os.path.dirname(found[0])}/<user>"
    return {"home": "~", "folder": "<user>", "user": "<user>", "machine": "<machine>"}[str(found.lastgroup)]


def _find_homes(environ: Mapping[str, str]) -> Iterator[str]:
    for path in (environ.get("HOME", ""), os.path.expanduser("~"), _get_account_field("pw_dir")):
        if os.path.isabs(path) and path.rstrip("/"):
            yield path.rstrip("/")
            yield os.path.realpath(path)


def _find_user_names(environ: Mapping[str, str]) -> Iterator[str]:
    yield from (environ.get(name, "") for name in _PERSON)
    yield _get_account_field("pw_name")
    yield _get_account_field("pw_gecos").partition(",")[0]


def _find_host_names(environ: Mapping[str, str]) -> Iterator[str]:
    for name in (os.uname().nodename, environ.get("HOSTNAME", "")):
        yield name
        yield name.partition(".")[0]


def _get_account_field(field: str) -> str:
    with suppress(KeyError):  # a user of a container often has no account
        return str(getattr(pwd.getpwuid(os.getuid()), field))
    return ""


def _join_patterns(forms: Iterable[str]) -> str:
    """The longest first: one may begin with another."""
    return "|".join(sorted(filter(None, set(forms)), key=lambda form: (-len(form), form)))


def _build_path_pattern(path: str) -> str:
    return rf"(?<![\w/.~-]){re.escape(path)}(?![\w-])"


def _build_folder_pattern(path: str) -> str:
    """The last name of a home, where it is a part of another path: most are called like the person."""
    name = os.path.basename(path)
    return "" if name.lower() in _ANYBODY else rf"(?<=/){re.escape(name)}(?![^/\s'\":;,])"


def _build_name_pattern(name: str) -> str:
    name = name.strip()
    if name.lower() in _ANYBODY:
        return ""
    return re.escape(name) if len(name) >= _SHORT else rf"(?<![^\W_]){re.escape(name)}(?![^\W_])"


def remove_values(text: str, *paths: str) -> str:
    """An error about a file of settings quotes what is wrong in it. Where that is a value, and no name, it is left out."""
    values = {value for path in paths for value in _read_values(path) if len(value) >= _SHORT}
    for value in sorted(values, key=lambda value: (-len(value), value)):
        for form in (value, repr(value)[1:-1]):
            text = text.replace(form, "…")
    return text


def _read_values(path: str) -> Iterator[str]:
    """Those of a TOML or JSON file; of one that is neither no value was quoted."""
    if not os.path.isfile(path):  # a pipe of that name would let us wait
        return
    with suppress(OSError, ValueError, RecursionError), open(path, "rb") as file:
        text = file.read(MIB).decode()
        yield from _iter_leaves(json.loads(text), _GUESTS) if path.endswith(".json") else _iter_leaves(tomllib.loads(text), _THINGS)


def _iter_leaves(value: Any, called: frozenset[str]) -> Iterator[str]:
    """All values that stand in it but those of these keys, by which the things in a file are called."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in called:
                yield from _iter_leaves(inner, called)
    elif isinstance(value, list):
        for inner in value:
            yield from _iter_leaves(inner, called)
    elif not isinstance(value, int) or abs(value) < _LARGE:
        yield str(value)
