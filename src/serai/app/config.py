"""What is set, for this person in this folder, and where each value comes from.

Later ones win: what is shipped, the person's `config.toml`, the project's `.serai/config.toml`, variables, the command line. But a
project is somebody else's word (design rule 12): `config_project` says of every key what it may do with it. What does not count
is noted with the reason and is never an error; a file that cannot be understood is one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from serai import paths
from serai.app.config_file import RESIDENT, Path, checked, flat, key_of, listed, read
from serai.app.config_project import DIALECTS_OWN, Outcome, Wish, may
from serai.errors import BadSettings
from serai.host.guest_settings import PROJECT, PersonSettings
from serai.host.trust import Trust
from serai.limits import Limits

__all__ = ["Config", "Source", "Value"]

Source = Literal["flag", "environment", "project", "person", "default"]

_SHIPPED: dict[str, tuple[object, str]] = {
    "agent": (RESIDENT, ""),
    "default_model": ("", "the first that a key is there for, else the offline parrot"),
    "small_model": ("", "the same as default_model"),
    "tools": (None, "all that there are"),
    "system_prompt": ("", "Serai's own"),
    "prompt_order": ({}, ""),
    "compact_at": (0, "only when the model is nearly full"),
    "record": (True, ""),
    "agents.claude.path": ("", "looked for where it is usually installed"),
    "guests.homes": (False, ""),
    "disabled_extensions": ((), ""),
    "feature.plugins.enabled": (False, ""),
    "plugins.preset": ("default", ""),
}
_VARIABLES = {
    "default_model": ("SERAI_DEFAULT_MODEL", "PIGLET_DEFAULT_MODEL"),
    "small_model": ("SERAI_SMALL_MODEL", "PIGLET_SMALL_MODEL"),
}
_FLAGS = ("agent", "default_model", "small_model", "tools", "system_prompt", "record", "limits")
_TABLES = ("agents", "guests", "guest", "feature", "plugins", "boxes", "limits")


class Value(NamedTuple):
    """One value in force. `file` is the file or the variable that it comes from; `note` says what else there is to know."""

    key: str
    value: object
    source: Source
    file: str = ""
    note: str = ""

    def __repr__(self) -> str:  # a value may be a secret
        return f"Value({self.key!r}, source={self.source!r}, file={self.file!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What is in force in a folder.

    `settings` have the form of `config.toml`: `Host.discover(config=…)` and the agents' `settings=` take them, limits included.
    `limits` are for everything that is no guest. `files` are those that were looked for: the person's, the project's.
    """

    cwd: str
    settings: Mapping[str, Any] = field(repr=False)
    limits: Limits = field(repr=False)
    agent: str = RESIDENT
    model: str = ""
    small_model: str = ""
    compact_at: int = 0  # tokens after which a guest's compactor is asked that does not say it itself
    record: bool = True
    tools: tuple[str, ...] | None = None  # None: all that there are
    values: tuple[Value, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    files: tuple[str, str]
    _load: Callable[[], Config] = field(repr=False, compare=False)

    @classmethod
    def load(
        cls,
        cwd: str | os.PathLike[str],
        *,
        environ: Mapping[str, str] = os.environ,
        trust: Trust | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> Config:
        """Read it all. `flags` are the command line's, in that form: what is empty was not given, a limit of None has no end."""
        folder = paths.absolute_path(os.fspath(cwd))
        person_file, project_file = _files(folder, environ)
        mine = paths.read_settings_in(os.path.dirname(person_file))
        merging = _Merging(mine, person_file, checked(mine, person_file))
        content = b"" if _same(person_file, project_file) else paths.read_project_settings(folder)
        if content:
            untrusted = (trust or Trust.usual(environ)).check_config(folder, content)
            merging.add_project(read(content, project_file), project_file, untrusted)
        merging.add_environment(environ)
        merging.add_flags(flags or {})
        found = {key: merging.values[key].value for key in _SHIPPED}
        return cls(
            cwd=folder,
            settings=merging.settings(),
            limits=merging.limits,
            agent=str(found["agent"]),
            model=str(found["default_model"]),
            small_model=str(found["small_model"]),
            compact_at=merging.compact_at,
            record=bool(found["record"]),
            tools=merging.tools,
            values=tuple(merging.in_order()),
            notes=tuple(merging.notes(project_file)),
            files=(person_file, project_file),
            _load=lambda: cls.load(cwd, environ=environ, trust=trust, flags=flags),
        )

    def again(self) -> Config:
        """The same, read anew."""
        return self._load()


class _Merging:
    """The values as they are put together, one source after the other."""

    def __init__(self, mine: Mapping[str, Any], file: str, person: PersonSettings) -> None:
        self._mine, self._person = mine, person
        self._in_vain: dict[str, list[str]] = {}  # keys by reason
        self._changes: dict[str, Any] = {}  # of the settings: of the project's what is no guest's, and the flags
        self._project: dict[str, Any] = {"guest": {}, "limits": {}}  # what counts of the project's for guests
        self.limits = Limits().but(**person.limits)
        self.values = {key: Value(key, value, "default", note=note) for key, (value, note) in _SHIPPED.items()}
        self.values |= {
            f"limits.{name}": Value(f"limits.{name}", value, "default", note=why) for name, value, _, why in Limits.explain()
        }
        for path, value in flat(mine):
            self._put(path, value, "person", file)

    @property
    def tools(self) -> tuple[str, ...] | None:
        found = self.values["tools"].value
        return tuple(found) if isinstance(found, list | tuple) else None

    @property
    def compact_at(self) -> int:
        found = self.values["compact_at"].value
        return found if isinstance(found, int) else 0

    def add_project(self, said: Mapping[str, Any], file: str, untrusted: str) -> None:
        for path, value in flat(said):
            row, key = may(path), key_of(path)
            if row.when == "trusted" and untrusted:
                self._in_vain.setdefault(untrusted, []).append(key)
                continue
            outcome = row.take(Wish(path, value, self._now(path), self._person))
            if outcome.in_vain:
                self._in_vain.setdefault(outcome.in_vain, []).append(key)
            if outcome.counts is not None:
                self._take(path, value, outcome)
                self._put(path, outcome.counts, "project", file, outcome.note)

    def _take(self, path: Path, value: Any, outcome: Outcome) -> None:
        """Put what counts where it is looked for: guests have it merged only when it is known which they are."""
        match path:
            case ("guest", name, "limits", limit):
                self._project["guest"].setdefault(name, {}).setdefault("limits", {})[limit] = value
            case ("guest", name, what):
                self._project["guest"].setdefault(name, {})[what] = value
            case ("limits", name):
                self.limits = self.limits.but(**{name: value})
                place = self._project["limits"] if name in DIALECTS_OWN else self._changes.setdefault("limits", {})
                place[name] = value
            case ("plugins", what):
                self._changes["plugins"] = {**self._changes.get("plugins", self._mine.get("plugins", {})), what: outcome.counts}
            case ("feature", name, what):
                self._changes["feature"] = {name: {what: outcome.counts}}
            case _:
                self._changes[path[0]] = outcome.counts

    def add_environment(self, environ: Mapping[str, str]) -> None:
        for key, names in _VARIABLES.items():
            name = next((name for name in names if environ.get(name, "").strip()), "")
            if name:
                self._put((key,), environ[name].strip(), "environment", name)
        for key, value, name in (
            ("home", paths.config_folder(environ), "SERAI_HOME"),
            ("no_color", bool(environ.get("NO_COLOR")), "NO_COLOR"),
        ):
            said = bool(environ.get(name))
            self._put((key,), value, "environment" if said else "default", name if said else "")
        own = os.path.join(paths.config_folder(environ), "prompt.md")
        if os.path.exists(own):  # it comes before what is configured (spec piglet 6.9)
            self.values["system_prompt"] = self.values["system_prompt"]._replace(note=f"{own} comes first")

    def add_flags(self, flags: Mapping[str, object]) -> None:
        """A person's own act in this moment: nothing is stronger."""
        for key in flags:
            if key not in _FLAGS:
                raise BadSettings(f"there is no flag {key!r}", who="the command line", hint=f"there is {', '.join(_FLAGS)}")
        given: dict[str, Any] = {key: value for key, value in flags.items() if value not in (None, "")}
        if isinstance(limits := given.get("limits"), Mapping):
            given["limits"] = limits = {name: "none" if value is None else value for name, value in limits.items()}
            for name in limits:
                self._project["limits"].pop(name, None)
        self.limits = self.limits.but(**checked(given, "the command line").limits)
        self._changes |= given | {"limits": {**self._changes.get("limits", {}), **given.get("limits", {})}}
        for path, value in flat(given):
            self._put(path, value, "flag", "")

    def settings(self) -> Mapping[str, Any]:
        found = {**self._mine, **self._changes, "limits": {**self._mine.get("limits", {}), **self._changes.get("limits", {})}}
        found[PROJECT] = {key: value for key, value in self._project.items() if value}
        return {key: value for key, value in found.items() if value or key not in ("limits", PROJECT)}

    def notes(self, file: str) -> Iterator[str]:
        for reason, keys in self._in_vain.items():
            yield f"{file}: {listed(keys)} {'does' if len(keys) == 1 else 'do'} not count: {reason}"

    def in_order(self) -> Iterator[Value]:
        """Those of the top first, then by table."""
        places = {name: place for place, name in enumerate(_TABLES)}
        return iter(sorted(self.values.values(), key=lambda value: places.get(value.key.partition(".")[0], -1)))

    def _now(self, path: Path) -> object:
        """What there is of it so far. None: nothing, or no end."""
        if path[0] == "limits":
            number: float | None = getattr(self.limits, path[1])
            return number
        known = self.values.get(key_of(path))
        return None if known is None or known.value == "none" else known.value

    def _put(self, path: Path, value: object, source: Source, file: str, note: str = "") -> None:
        key = key_of(path)
        if path[0] == "limits":
            note = note or self.values[key].note
        self.values[key] = Value(key, value, source, file, note)


def _files(folder: str, environ: Mapping[str, str]) -> tuple[str, str]:
    return os.path.join(paths.config_folder(environ), paths.CONFIG), os.path.join(folder, paths.PROJECT_CONFIG)


def _same(one: str, other: str) -> bool:
    """Whether the person's own file is what lies in the project, as in a home that is called `.serai`."""
    return os.path.realpath(one) == os.path.realpath(other)
