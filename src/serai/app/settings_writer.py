"""A person's files, changed with care: what they wrote stays as they wrote it, comments and all.

A change is a new text that is read back before it takes the old one's place: it must say the same as before but for what was to be
changed. Else nothing is written, and the person is told what to write themselves.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Iterable, Iterator

from serai.agents.models import catalogue
from serai.agents.models.catalogue import Override, merged
from serai.errors import BadSettings, NotWritten
from serai.paths import make_private_folder

_OURS = "# What follows was written for a guest, and is written anew the next time. What is above stays.\n"
_HINT = "give each change an [[override]] of its own, and see that the file does not grow too long"


def set_toml_value(path: str, key: str, value: str) -> None:
    """Have a TOML file say `key = "value"` at its top."""
    old = _read(path)
    try:
        wanted = {**tomllib.loads(old), key: value}
    except ValueError as error:
        raise BadSettings(str(error), who=path) from None
    for text in _candidates(old, key, value):
        if _says(text, wanted):
            _replace(path, text)
            return
    raise NotWritten(f"{key} cannot be set there without changing more", who=path, hint=f"write {key} = {_string(value)} yourself")


def _candidates(old: str, key: str, value: str) -> Iterator[str]:
    """The file with the value changed where the key stands, or with a line at its top, where it belongs to no table."""
    there = re.compile(rf"""^([ \t]*(?:{key}|"{key}"|'{key}')[ \t]*=[ \t]*)(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*')""", re.MULTILINE)
    for found in there.finditer(old):
        yield old[: found.start()] + found[1] + _string(value) + old[found.end() :]
    yield f"{key} = {_string(value)}\n{old}"


def set_guest_enabled(path: str, guest: str, *, enabled: bool) -> None:
    """Have the person's settings say `enabled` of the guest with this id: in its table where it has one, else in a new one."""
    old = _read(path)
    try:
        said = tomllib.loads(old)
        tables = said.get("guest", {})
        wanted = {**said, "guest": {**tables, guest: {**tables.get(guest, {}), "enabled": enabled}}}
    except (ValueError, TypeError, AttributeError) as error:  # no TOML, or no tables where they belong
        raise BadSettings(str(error), who=path) from None
    for text in _switched(old, guest, f"enabled = {str(enabled).lower()}"):
        if _says(text, wanted):
            _replace(path, text)
            return
    hint = f"write `enabled = {str(enabled).lower()}` under `[guest.{_string(guest)}]` yourself"
    raise NotWritten(f"{guest} cannot be switched there without changing more", who=path, hint=hint)


def _switched(old: str, guest: str, line: str) -> Iterator[str]:
    """The file with the switch changed where it stands, with one below a table's head, or with a table at its end."""
    for found in re.finditer(r"^([ \t]*)enabled[ \t]*=[ \t]*(?:true|false)", old, re.MULTILINE):
        yield old[: found.start()] + found[1] + line + old[found.end() :]
    for found in re.finditer(r"^[ \t]*\[[ \t]*guest[ \t]*\.[^\n]*(?:\n|\Z)", old, re.MULTILINE):
        gap = "" if found[0].endswith("\n") else "\n"
        yield f"{old[: found.end()]}{gap}{line}\n{old[found.end() :]}"
    gap = "" if not old else "\n" if old.endswith("\n") else "\n\n"
    yield f"{old}{gap}[guest.{_string(guest)}]\n{line}\n"


def _says(text: str, wanted: object) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except ValueError:
        return False


def write_model_overrides(path: str, changes: Iterable[Override]) -> int:
    """Have the person's `models.toml` say otherwise what these say; of how many models it says something then.

    Nothing but that is written: whatever they say of a model, now or later, counts where no override does.
    """
    old = _read(path)
    before = catalogue.read(old, who=path)
    mine, ours = _parted(old, path)
    section = merged([*ours, *changes])
    gap = "" if not mine or mine.endswith("\n\n") else "\n" if mine.endswith("\n") else "\n\n"
    text = mine + gap + _OURS + _all(section.values())
    wanted = merged([*before.overrides, *section.values()])
    try:
        after = catalogue.read(text, who=path)
    except BadSettings as error:  # such as `override = [...]`, to which nothing can be added, or too long a file
        raise NotWritten(f"nothing can be added to it: {error.message}", who=path, hint=_HINT) from None
    if after.models != before.models or merged(after.overrides) != wanted:
        raise NotWritten("nothing can be added to it", who=path, hint=_HINT)
    _replace(path, text)
    return len({model.key.lower() for model in after.models} | wanted.keys())


def _parted(old: str, path: str) -> tuple[str, tuple[Override, ...]]:
    """What stays, and what is written anew: only what has the form that we give it."""
    mine, mark, ours = old.rpartition(_OURS)
    try:
        section = catalogue.read(ours, who=path).overrides if mark else ()
    except BadSettings:  # the mark stands in somebody's text
        return old, ()
    return (mine, section) if mark and ours == _all(section) else (old, ())


def _all(overrides: Iterable[Override]) -> str:
    return "".join(f"\n{_described(override)}" for override in overrides)


def _described(override: Override) -> str:
    lines = ["[[override]]", f"key = {_string(override.key)}"]
    lines += [f"name = {_string(override.name)}"] if override.name else []
    lines += [f"{name} = {number}" for name in ("context_window", "max_tokens") if (number := getattr(override, name))]
    return "\n".join(lines) + "\n"


def _string(text: str) -> str:
    """As TOML writes it: like JSON, but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(str(error), who=path) from None


def _replace(path: str, text: str) -> None:
    """In one step; a link stays one, and the mode stays. A new file is for this user alone: it may name keys."""
    real = os.path.realpath(path)
    temporary = f"{real}.{secrets.token_hex(8)}"
    try:
        make_private_folder(os.path.dirname(real))
        mode = stat.S_IMODE(os.stat(real).st_mode) if os.path.exists(real) else 0o600
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fchmod(descriptor, mode)
                os.fsync(descriptor)
            os.rename(temporary, real)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise NotWritten(f"it cannot be written: {error.strerror}", who=path) from None
