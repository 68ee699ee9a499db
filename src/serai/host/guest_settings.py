"""What counts for one guest: the author's `guest.toml`, the person's `config.toml`, and what a project may add to that.

The author may say at once how the guest is to be treated (`guard`, `exclusive`, `watch`, and `limits` and `services` where they
narrow), but only ask for more (`env`, `replace`, `keys`). The person grants: under `[guest."zot:weather"]`, or `[guest.weather]`
for that name in any dialect; where both say something of the same key, the first wins. A key that begins with a dialect is an id:
no guest can call itself `zot:weather` to have what that one has. `disabled_extensions` are the names of guests that are off, in any
dialect. `[limits]` are the person's for all guests. A typing error is an error: a guard that is spelled `gaurd` must not be none.

Settings that `serai.app.config` has merged have one key more, `project`: what counts of the project's own. It is kept apart,
because only here it is known who is a guard, under whichever key, and what a limit is lower than.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from math import inf
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from serai import paths
from serai.errors import BadManifest, BadSettings
from serai.host.adapters import DIALECTS, is_built, read_finder_settings
from serai.limits import HostLimits, Limits

# Services come in groups, so that a person can say which ones a guest may use.
GROUPS = (
    "tools", "config", "credentials", "chat", "conversation", "sessions", "models", "background", "control", "dialogs", "undo",
    "bus", "guests",
)  # fmt: skip


DISABLED = "disabled_extensions"
PROJECT = "project"  # the key of merged settings that no file can have

Home = Literal["zot", "piglet"]
Numbers = Mapping[str, float | None]
T = TypeVar("T")
_DOTS = 50  # in a line: the time to read `a.a.a` grows with the square of its length
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROVIDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CREDENTIALS = "credentials"
_USUAL_GROUPS = tuple(group for group in GROUPS if group != _CREDENTIALS)
_LIMITS = {item.name: str(item.type) for item in fields(Limits)}
_UNITS = {item.name: item.metadata["unit"] for item in fields(Limits)}
_MOST = 10**15
_MOST_OF = {"seconds": 100 * 365 * 86400, "days": 100 * 365}  # no clock goes further, and neither does a date
_LONGEST = 80  # characters of a value in an error
# What an author may raise, and how far: only the guest's own callers wait for these, or the guest itself.
_RAISED = {"tool": 600.0, "command": 600.0, "restart_wait": 3600.0, "restart_wait_most": 3600.0, "restart_healthy": 3600.0}
_NOT_LOWERED = frozenset({"restart_wait", "restart_wait_most", "restart_healthy"})  # more of these is less for the guest


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSettings:
    """How a guest is treated, and what it may have. `asked_…` is what its author wants and nobody has granted.

    `limits` are the person's; `author_limits` the author's, which count as far as `narrow_limits` lets them; `project_limits` count
    where they are lower than all of these. `services` are the groups of host services that somebody has listed, `keys` the
    providers whose key it may have.
    """

    guard: bool = False
    exclusive: bool = False
    watch: bool = True
    enabled: bool = True  # False: the person has switched it off, whatever its manifest says
    env: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    services: tuple[str, ...] | None = None  # None: all but credentials
    keys: tuple[str, ...] = ()
    limits: Numbers = field(default_factory=dict, hash=False)
    author_limits: Numbers = field(default_factory=dict, hash=False)
    project_limits: Numbers = field(default_factory=dict, hash=False)
    asked_env: tuple[str, ...] = ()
    asked_replace: tuple[str, ...] = ()
    asked_keys: tuple[str, ...] = ()

    @property
    def asked(self) -> tuple[str, ...]:
        """The same for people to read, such as `env GITHUB_TOKEN`."""
        return _format_grants(self.asked_env, self.asked_replace, self.asked_keys)

    @property
    def grants(self) -> tuple[str, ...]:
        """What was granted, likewise."""
        return _format_grants(self.env, self.replace, self.keys)

    @property
    def groups(self) -> frozenset[str]:
        """The groups of host services it may use: a key that was granted can be asked for."""
        listed = _USUAL_GROUPS if self.services is None else self.services
        return frozenset(listed) | ({_CREDENTIALS} if self.keys else set())

    def as_granted(self) -> GuestSettings:
        """With all that was asked for: trusting a project means to have read what its guests ask (design rule 12)."""
        env, tools, keys = self.env + self.asked_env, self.replace + self.asked_replace, self.keys + self.asked_keys
        return replace(self, env=env, replace=tools, keys=keys, asked_env=(), asked_replace=(), asked_keys=())

    def apply_limits(self, base: HostLimits) -> HostLimits:
        """`base`, which is the dialect's and the person's for all, narrowed by the author, then the person's for this guest."""
        if not (self.author_limits or self.limits or self.project_limits):
            return base  # the same for all of them: it is looked at and copied field by field otherwise
        found = base.but(**{**narrow_limits(self.author_limits, base), **self.limits})
        return found.but(**select_lower(self.project_limits, found))


class _Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    guard: bool | UnsetType = UNSET
    exclusive: bool | UnsetType = UNSET
    watch: bool | UnsetType = UNSET
    env: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    services: tuple[str, ...] | UnsetType = UNSET
    keys: tuple[str, ...] = ()
    limits: dict[str, Any] = {}


class AuthorSettings(_Common, frozen=True, kw_only=True):
    """A `guest.toml`. `dialect` chooses among several manifests of the folder."""

    dialect: str = ""


class _Entry(_Common, frozen=True, kw_only=True):
    """One `[guest.…]` of the settings."""

    enabled: bool | UnsetType = UNSET


class _Guests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[guests]` of the person's settings."""

    homes: bool | tuple[Home, ...] = False


class _Project(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What counts of a project's settings: what it grants once it is trusted, and what it narrows."""

    guest: dict[str, _Entry] = {}
    limits: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class PersonSettings:
    """What the person's settings say of guests: the foreign homes searched too, an entry by id or name, and limits for all.

    `off` are the guests that are switched off by a list, by dialect (empty: any) and name as the manifest has it.
    """

    homes: tuple[Home, ...] = ()
    entries: Mapping[str, _Entry] = field(default_factory=dict)
    limits: Numbers = field(default_factory=dict)
    project: _Project = field(default_factory=_Project)
    own: Mapping[str, Any] = field(default_factory=dict)  # what a dialect's own finder has read of them, by dialect
    off: frozenset[tuple[str, str]] = frozenset()

    def with_off(self, dialect: str, names: Iterable[str]) -> PersonSettings:
        """The same with these switched off too."""
        return replace(self, off=self.off | {(dialect, name) for name in names})

    def is_off(self, dialect: str, name: str) -> bool:
        """Exactly, with case: a list of names is no pattern (spec piglet 10.23)."""
        return ("", name) in self.off or (dialect, name) in self.off

    @property
    def guards(self) -> frozenset[str]:
        """The keys of those that are called guards and not switched off: each must be found (design rule 8)."""
        said = {key for key, entry in self.entries.items() if entry.guard is True and entry.enabled is not False}
        return frozenset(key for key in said if not self.is_off("", key) and not self.is_off(*key.partition(":")[::2]))

    @property
    def project_guards(self) -> frozenset[str]:
        """The keys of those that the project wants to be guards."""
        return frozenset(key for key, entry in self.project.guest.items() if entry.guard is True) - self.guards

    def find_entries(self, dialect: str, name: str) -> Iterator[_Entry]:
        """The entries that mean this guest, the strongest first."""
        return (self.entries[key] for key in list_keys(dialect, name) if key in self.entries)


def read_person_settings(config: Mapping[str, Any], *, who: str = "config.toml") -> PersonSettings:
    """The part of the settings that is about guests, all of it checked."""
    paths.check_setting_keys({key: value for key, value in config.items() if key != PROJECT}, who=who)
    try:
        homes = _convert(config.get("guests", {}), _Guests, "guests").homes
        tables = _convert(config.get("guest", {}), dict[str, dict[str, Any]], "guest")
        entries = {key: _check_table(_convert(table, _Entry, f'guest."{key}"'), f'guest."{key}"') for key, table in tables.items()}
        limits = _check_limits(_convert(config.get("limits", {}), dict[str, Any], "limits"), "limits")
        off = _convert(config.get(DISABLED, ()), tuple[str, ...], DISABLED)
        project = _convert(config.get(PROJECT, {}), _Project, PROJECT)
        for key, entry in project.guest.items():
            _check_table(entry, f'{PROJECT}: guest."{key}"')
        _check_limits(project.limits, f"{PROJECT}: limits")
    except ValueError as error:
        raise BadSettings(str(error), who=who) from None
    both: tuple[Home, ...] = ("zot", "piglet")
    where = (both if homes else ()) if isinstance(homes, bool) else homes
    person = PersonSettings(where, entries, _to_numbers(limits), project, read_finder_settings(config, who))
    return person.with_off("", off)


def read_author_settings(text: bytes, *, who: str) -> AuthorSettings:
    """A `guest.toml`, checked; `who` is the guest's folder."""
    if any(line.count(b".") > _DOTS for line in text.splitlines()):
        raise BadManifest(f"guest.toml: a line with more than {_DOTS} dots", who=who)
    try:
        author = _check_table(_convert(tomllib.loads(text.decode()), AuthorSettings, "guest.toml"), "guest.toml")
    except (ValueError, RecursionError, MemoryError) as error:  # no UTF-8, no TOML, nested too deep, not what belongs there
        reason = str(error)
        raise BadManifest(reason if reason.startswith("guest.toml") else f"guest.toml: {reason}", who=who) from None
    if endless := [name for name, value in author.limits.items() if value == "none"]:
        raise BadManifest(f"guest.toml: limits: {endless[0]} without an end is for the person's settings to say", who=who)
    return author


def merge_settings(author: AuthorSettings, person: PersonSettings, *, dialect: str, name: str) -> GuestSettings:
    """What counts: the person's word where there is one, else the author's, key by key; grants are the person's alone."""
    said = tuple(person.find_entries(dialect, name))
    env, tools, keys = (_union(*(getattr(entry, key) for entry in said)) for key in ("env", "replace", "keys"))
    listed = (*(entry.services for entry in said), _drop_credentials(author.services))
    limits: dict[str, Any] = {}
    for entry in reversed(said):
        limits |= entry.limits
    found = GuestSettings(
        guard=_pick_first(False, *(entry.guard for entry in said), author.guard),
        exclusive=_pick_first(False, *(entry.exclusive for entry in said), author.exclusive),
        watch=_pick_first(True, *(entry.watch for entry in said), author.watch),
        enabled=_pick_first(True, *(entry.enabled for entry in said)) and not person.is_off(dialect, name),
        env=env,
        replace=tools,
        services=next((_sort_groups(groups) for groups in listed if groups is not UNSET), None),
        keys=_to_lowercase(keys),
        limits=_to_numbers(limits),
        author_limits=_to_numbers(author.limits),
        asked_env=tuple(item for item in _union(author.env) if item not in env),
        asked_replace=tuple(item for item in _union(author.replace) if item not in tools),
        asked_keys=tuple(item for item in _to_lowercase(author.keys) if item not in _to_lowercase(keys)),
    )
    return _merge_project(found, person.project, list_keys(dialect, name))


def _merge_project(found: GuestSettings, project: _Project, names: tuple[str, ...]) -> GuestSettings:
    """With what counts of the project's settings. A guard stays one, stays on and keeps what it relies on (design rule 12)."""
    said = tuple(project.guest[key] for key in names if key in project.guest)
    if not said and not project.limits:
        return found
    guard = found.guard or any(entry.guard is True for entry in said)
    env, tools = _union(found.env, *(entry.env for entry in said)), _union(found.replace, *(entry.replace for entry in said))
    keys, asked = _to_lowercase(_union(found.keys, *(entry.keys for entry in said))), found.asked_keys
    listed = [entry.services for entry in said if entry.services is not UNSET]
    services = found.services
    if listed and not found.guard:
        services = _sort_groups(tuple((found.groups | ({_CREDENTIALS} if keys else set())).intersection(*listed)))
        if any(_CREDENTIALS not in groups for groups in listed):
            keys, asked = (), ()  # they would open the group again
    return replace(
        found,
        guard=guard,
        exclusive=_pick_first(found.exclusive, *(entry.exclusive for entry in said)),
        watch=_pick_first(found.watch, *(entry.watch for entry in said)),
        enabled=found.enabled and (guard or not any(entry.enabled is False for entry in said)),
        env=env,
        replace=tools,
        services=services,
        keys=keys,
        project_limits={} if found.guard else _merge_lowest(project.limits, *(entry.limits for entry in said)),
        asked_env=tuple(item for item in found.asked_env if item not in env),
        asked_replace=tuple(item for item in found.asked_replace if item not in tools),
        asked_keys=tuple(item for item in asked if item not in keys),
    )


def list_keys(dialect: str, name: str) -> tuple[str, ...]:
    """The keys in the person's settings that mean this guest: its id, and its name unless that looks like an id."""
    first, colon, _ = name.partition(":")
    looks = colon and (first in DIALECTS or is_built(first))
    return (f"{dialect}:{name}",) if looks else (f"{dialect}:{name}", name)


def are_related(key: str, other: str) -> bool:
    """Whether two keys of the settings may mean the same guest."""
    return key == other or key.partition(":")[2] == other or other.partition(":")[2] == key


def narrow_limits(author: Numbers, base: HostLimits) -> dict[str, float | None]:
    """The author's limits as far as they count: a guest may ask for less than it has, and others must not wait for it."""
    found: dict[str, float | None] = {}
    for name, wanted in author.items():
        now: float | None = getattr(base, name)
        if wanted is None or (name in _NOT_LOWERED and now is not None and wanted <= now):
            continue
        if now is None or wanted < now:
            found[name] = wanted
        elif name in _RAISED:
            found[name] = max(now, min(wanted, _RAISED[name]))
    return found


def select_lower(wanted: Numbers, base: HostLimits) -> dict[str, float | None]:
    """Those that are lower than what there is."""
    found: dict[str, float | None] = {}
    for name, value in wanted.items():
        now: float | None = getattr(base, name)
        if value is not None and (now is None or value < now):
            found[name] = value
    return found


def _convert(value: object, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {error}".replace("`$.", "`")) from None


C = TypeVar("C", bound=_Common)


def _check_table(table: C, where: str) -> C:
    """What types cannot say: names of variables and tools, limits."""
    for name in table.env:
        if not _VARIABLE.fullmatch(name):  # also no patterns: they would grant tomorrow's secrets too (design rule 13)
            raise ValueError(f"{where}: env: {_quote_value(name)} is not the name of a variable")
    if "" in table.replace:
        raise ValueError(f"{where}: replace: a tool has a name")
    for name in () if table.services is UNSET else table.services:
        if name not in GROUPS:
            near = get_close_matches(name[:_LONGEST], GROUPS) or GROUPS
            raise ValueError(f"{where}: services: there is no group {_quote_value(name)}; there is {', '.join(near)}")
    for name in table.keys:
        if not _PROVIDER.fullmatch(name):  # no patterns here either
            raise ValueError(f"{where}: keys: {_quote_value(name)} is not the name of a provider")
    _check_limits(table.limits, f"{where}: limits")
    return table


def _check_limits(limits: dict[str, Any], where: str) -> dict[str, Any]:
    """Their names and values."""
    for name, value in limits.items():
        if name not in _LIMITS:
            raise ValueError(f"{where}: there is no limit {name}")
        if value == "none" and "None" in _LIMITS[name]:
            continue
        if not isinstance(value, int if _LIMITS[name] == "int" else int | float) or isinstance(value, bool) or not 0 < value < inf:
            kind = "whole number above 0" if _LIMITS[name] == "int" else "number above 0"
            raise ValueError(f"{where}: {name} is a {kind}, not {_quote_value(value)}")
        if value > (most := _MOST_OF.get(_UNITS[name], _MOST)):
            raise ValueError(f"{where}: {name} is at most {most} {_UNITS[name]}, not {_quote_value(value)}")
    return limits


def _quote_value(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        return "one of so many digits"
    return text if len(text) <= _LONGEST else "something so long"  # a part of it may be a secret that nobody knows again


def _pick_first(default: bool, *values: bool | UnsetType) -> bool:
    return next((value for value in values if value is not UNSET), default)


def _union(*parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for part in parts for item in part))


def _to_lowercase(names: tuple[str, ...]) -> tuple[str, ...]:
    """Providers: case is nothing."""
    return _union(tuple(name.lower() for name in names))


def _drop_credentials(groups: tuple[str, ...] | UnsetType) -> tuple[str, ...] | UnsetType:
    """What an author lists of services: the keys it asks for are what opens `credentials`."""
    return groups if groups is UNSET else tuple(group for group in groups if group != _CREDENTIALS)


def _sort_groups(groups: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(group for group in GROUPS if group in groups)


def _merge_lowest(*parts: Mapping[str, Any]) -> Numbers:
    found: dict[str, float | None] = {}
    for name, value in (item for part in parts for item in _to_numbers(part).items()):
        now = found.get(name)
        if value is not None and (now is None or value < now):
            found[name] = value
    return found


def _format_grants(env: tuple[str, ...], tools: tuple[str, ...], keys: tuple[str, ...]) -> tuple[str, ...]:
    return (*(f"env {name}" for name in env), *(f"replace {name}" for name in tools), *(f"key {name}" for name in keys))


def _to_numbers(limits: Mapping[str, Any]) -> Numbers:
    return {name: None if value == "none" else value for name, value in limits.items()}


def get_limit_changes(limits: Mapping[str, float | None] | HostLimits | None) -> Mapping[str, float | None]:
    """Limits by name; of a whole record those that are not the usual ones, which a dialect may set otherwise."""
    return limits.changes() if isinstance(limits, HostLimits) else limits or {}
