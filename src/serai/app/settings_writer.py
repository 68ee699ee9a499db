"""A person's files, changed with care: what they wrote stays as they wrote it, comments and all.

A change is a new text that is read back before it takes the old one's place: it must say the same as before but for what was to be
changed. Else nothing is written, and the person is told what to write themselves.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator

from serai.agents.models import catalogue
from serai.agents.models.catalogue import Override, merge_overrides
from serai.atomic_file import write_atomically
from serai.errors import BadSettings, NotWritten
from serai.paths import make_private_folder
from serai.plain_text import escape_line, is_visible
from serai.toml_writer import spell_toml, to_toml, to_toml_pairs

_OURS = "# What follows was written for a guest, and is written anew the next time. What is above stays.\n"
_HINT = "give each change an [[override]] of its own, and see that the file does not grow too long"


def set_toml_value(path: str, key: str, value: str) -> None:
    """Have a TOML file say `key = "value"` at its top."""
    old = _read(path)
    try:
        wanted = {**tomllib.loads(old), key: value}
    except ValueError as error:
        raise BadSettings(str(error), who=path) from None
    for text in _propose_value_edits(old, key, value):
        if _parses_to(text, wanted):
            _replace(path, text)
            return
    raise NotWritten(f"{key} cannot be set there without changing more", who=path, hint=f"write {key} = {to_toml(value)} yourself")


def _propose_value_edits(old: str, key: str, value: str) -> Iterator[str]:
    """The file with the value changed where the key stands, or with a line at its top, where it belongs to no table."""
    there = re.compile(rf"""^([ \t]*(?:{key}|"{key}"|'{key}')[ \t]*=[ \t]*)(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*')""", re.MULTILINE)
    for found in there.finditer(old):
        yield old[: found.start()] + found[1] + to_toml(value) + old[found.end() :]
    yield f"{key} = {to_toml(value)}\n{old}"


def set_guest_enabled(path: str, guest: str, *, enabled: bool) -> None:
    """Have the person's settings say `enabled` of the guest with this id: in its table where it has one, else in a new one."""
    old = _read(path)
    try:
        said = tomllib.loads(old)
        tables = said.get("guest", {})
        wanted = {**said, "guest": {**tables, guest: {**tables.get(guest, {}), "enabled": enabled}}}
    except (ValueError, TypeError, AttributeError) as error:  # no TOML, or no tables where they belong
        raise BadSettings(str(error), who=path) from None
    for text in _propose_switch_edits(old, guest, f"enabled = {str(enabled).lower()}"):
        if _parses_to(text, wanted):
            _replace(path, text)
            return
    hint = f"write `enabled = {str(enabled).lower()}` under `[guest.{to_toml(guest)}]` yourself"
    raise NotWritten(f"{guest} cannot be switched there without changing more", who=path, hint=hint)


def _propose_switch_edits(old: str, guest: str, line: str) -> Iterator[str]:
    """The file with the switch changed where it stands, with one below a table's head, or with a table at its end."""
    for found in re.finditer(r"^([ \t]*)enabled[ \t]*=[ \t]*(?:true|false)", old, re.MULTILINE):
        yield old[: found.start()] + found[1] + line + old[found.end() :]
    for found in re.finditer(r"^[ \t]*\[[ \t]*guest[ \t]*\.[^\n]*(?:\n|\Z)", old, re.MULTILINE):
        gap = "" if found[0].endswith("\n") else "\n"
        yield f"{old[: found.end()]}{gap}{line}\n{old[found.end() :]}"
    gap = "" if not old else "\n" if old.endswith("\n") else "\n\n"
    yield f"{old}{gap}[guest.{to_toml(guest)}]\n{line}\n"


def _parses_to(text: str, wanted: object) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except ValueError:
        return False


def write_model_overrides(path: str, changes: Iterable[Override]) -> int:
    """Have the person's `models.toml` say otherwise what these say; of how many models it says something then.

    Nothing but that is written: whatever they say of a model, now or later, counts where no override does.
    """
    old = _read(path)
    before = catalogue.parse_catalogue(old, who=path)
    mine, ours = _split_section(old, path)
    section = merge_overrides([*ours, *changes])
    gap = "" if not mine or mine.endswith("\n\n") else "\n" if mine.endswith("\n") else "\n\n"
    text = mine + gap + _OURS + _format_overrides(section.values())
    wanted = merge_overrides([*before.overrides, *section.values()])
    try:
        after = catalogue.parse_catalogue(text, who=path)
    except BadSettings as error:  # such as `override = [...]`, to which nothing can be added, or too long a file
        raise NotWritten(f"nothing can be added to it: {error.message}", who=path, hint=_HINT) from None
    if after.models != before.models or merge_overrides(after.overrides) != wanted:
        raise NotWritten("nothing can be added to it", who=path, hint=_HINT)
    _replace(path, text)
    return len({model.key.lower() for model in after.models} | wanted.keys())


def _split_section(old: str, path: str) -> tuple[str, tuple[Override, ...]]:
    """What stays, and what is written anew: only what has the form that we give it."""
    mine, mark, ours = old.rpartition(_OURS)
    try:
        section = catalogue.parse_catalogue(ours, who=path).overrides if mark else ()
    except BadSettings:  # the mark stands in somebody's text
        return old, ()
    # Earlier versions wrote what cannot be seen as it is, and control characters with small letters.
    spelt = "\n".join(escape_line(line, spell_toml, is_visible) for line in ours.split("\n"))
    same = _capitalise_escapes(spelt) == _capitalise_escapes(_format_overrides(section))
    return (mine, section) if mark and same else (old, ())


def _capitalise_escapes(text: str) -> str:
    return re.sub(r"(?<=\\u)[0-9a-f]{4}", lambda digits: digits[0].upper(), text)


def _format_overrides(overrides: Iterable[Override]) -> str:
    return "".join(f"\n{_format_override(override)}" for override in overrides)


def _format_override(override: Override) -> str:
    fields = {name: getattr(override, name) for name in ("key", "name", "context_window", "max_tokens")}
    return f"[[override]]\n{to_toml_pairs({name: value for name, value in fields.items() if value})}"


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
    try:
        make_private_folder(os.path.dirname(real))
        mode = stat.S_IMODE(os.stat(real).st_mode) if os.path.exists(real) else 0o600
        write_atomically(real, text.encode(), mode=mode, sync=True)
    except OSError as error:
        raise NotWritten(f"it cannot be written: {error.strerror}", who=path) from None
