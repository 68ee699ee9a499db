"""What counts for one guest: the author's `guest.toml` and the person's `config.toml`.

The author may say at once how the guest is to be treated (`guard`, `exclusive`, `watch`, and `limits` where they narrow), but only
ask for more (`env`, `replace`). The person grants: under `[guest."zot:weather"]`, or `[guest.weather]` for that name in any
dialect; where both say something of the same key, the first wins. A key that begins with a dialect is an id: no guest can call
itself `zot:weather` to have what that one has. `[limits]` are the person's for all guests. A typing error is an error: a guard
that is spelled `gaurd` must not be none.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from serai import home
from serai.errors import BadManifest, BadSettings
from serai.host.adapters import DIALECTS, is_built
from serai.limits import Limits

__all__ = ["Author", "GuestSettings", "Person", "changes_of", "combine", "keys_of", "narrowed", "read_author", "read_person"]

Home = Literal["zot", "piglet"]
Numbers = Mapping[str, float | None]
T = TypeVar("T")
_DOTS = 50  # in a line: the time to read `a.a.a` grows with the square of its length
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIMITS = {item.name: str(item.type) for item in fields(Limits)}
# What an author may raise, and how far: only the guest's own callers wait for these, or the guest itself.
_RAISED = {"tool": 600.0, "command": 600.0, "restart_wait": 3600.0, "restart_wait_most": 3600.0, "restart_healthy": 3600.0}
_NOT_LOWERED = frozenset({"restart_wait", "restart_wait_most", "restart_healthy"})  # more of these is less for the guest


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSettings:
    """How a guest is treated, and what it may have. `asked_…` is what its author wants and nobody has granted.

    `limits` are the person's; `author_limits` the author's, which count as far as `narrowed` lets them.
    """

    guard: bool = False
    exclusive: bool = False
    watch: bool = True
    enabled: bool = True  # False: the person has switched it off, whatever its manifest says
    env: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    limits: Numbers = field(default_factory=dict, hash=False)
    author_limits: Numbers = field(default_factory=dict, hash=False)
    asked_env: tuple[str, ...] = ()
    asked_replace: tuple[str, ...] = ()

    @property
    def asked(self) -> tuple[str, ...]:
        """The same for people to read, such as `env GITHUB_TOKEN`."""
        return (*(f"env {name}" for name in self.asked_env), *(f"replace {name}" for name in self.asked_replace))

    def granted(self) -> GuestSettings:
        """With all that was asked for: trusting a project means to have read what its guests ask (design rule 12)."""
        env, tools = self.env + self.asked_env, self.replace + self.asked_replace
        return replace(self, env=env, replace=tools, asked_env=(), asked_replace=())


class _Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    guard: bool | UnsetType = UNSET
    exclusive: bool | UnsetType = UNSET
    watch: bool | UnsetType = UNSET
    env: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    limits: dict[str, Any] = {}


class Author(_Common, frozen=True, kw_only=True):
    """A `guest.toml`. `dialect` chooses among several manifests of the folder."""

    dialect: str = ""


class _Entry(_Common, frozen=True, kw_only=True):
    """One `[guest.…]` of the person's settings."""

    enabled: bool | UnsetType = UNSET


class _Guests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[guests]` of the person's settings."""

    homes: bool | tuple[Home, ...] = False


@dataclass(frozen=True, slots=True)
class Person:
    """What the person's settings say of guests: the foreign homes searched too, an entry by id or name, and limits for all."""

    homes: tuple[Home, ...] = ()
    entries: Mapping[str, _Entry] = field(default_factory=dict)
    limits: Numbers = field(default_factory=dict)

    @property
    def guards(self) -> frozenset[str]:
        """The keys of those that are called guards and not switched off: each must be found (design rule 8)."""
        return frozenset(key for key, entry in self.entries.items() if entry.guard is True and entry.enabled is not False)


def read_person(config: Mapping[str, Any], *, who: str = "config.toml") -> Person:
    """The part of the settings that is about guests, all of it checked."""
    home.check_keys(config, who=who)
    try:
        homes = _convert(config.get("guests", {}), _Guests, "guests").homes
        tables = _convert(config.get("guest", {}), dict[str, dict[str, Any]], "guest")
        entries = {key: _checked(_convert(table, _Entry, f'guest."{key}"'), f'guest."{key}"') for key, table in tables.items()}
        limits = _checked_limits(_convert(config.get("limits", {}), dict[str, Any], "limits"), "limits")
    except ValueError as error:
        raise BadSettings(str(error), who=who) from None
    both: tuple[Home, ...] = ("zot", "piglet")
    return Person((both if homes else ()) if isinstance(homes, bool) else homes, entries, _numbers(limits))


def read_author(text: bytes, *, who: str) -> Author:
    """A `guest.toml`, checked; `who` is the guest's folder."""
    if any(line.count(b".") > _DOTS for line in text.splitlines()):
        raise BadManifest(f"guest.toml: a line with more than {_DOTS} dots", who=who)
    try:
        author = _checked(_convert(tomllib.loads(text.decode()), Author, "guest.toml"), "guest.toml")
    except (ValueError, RecursionError, MemoryError) as error:  # no UTF-8, no TOML, nested too deep, not what belongs there
        reason = str(error)
        raise BadManifest(reason if reason.startswith("guest.toml") else f"guest.toml: {reason}", who=who) from None
    if endless := [name for name, value in author.limits.items() if value == "none"]:
        raise BadManifest(f"guest.toml: limits: {endless[0]} without an end is for the person's settings to say", who=who)
    return author


def combine(author: Author, person: Person, *, dialect: str, name: str) -> GuestSettings:
    """What counts: the person's word where there is one, else the author's, key by key; grants are the person's alone."""
    by_id, by_name, *_ = (*(person.entries.get(key, _Entry()) for key in keys_of(dialect, name)), _Entry())
    sources = (by_id, by_name, author)
    env, tools = _union(by_id.env, by_name.env), _union(by_id.replace, by_name.replace)
    return GuestSettings(
        guard=_first(False, *(source.guard for source in sources)),
        exclusive=_first(False, *(source.exclusive for source in sources)),
        watch=_first(True, *(source.watch for source in sources)),
        enabled=_first(True, by_id.enabled, by_name.enabled),
        env=env,
        replace=tools,
        limits=_numbers({**by_name.limits, **by_id.limits}),
        author_limits=_numbers(author.limits),
        asked_env=tuple(item for item in _union(author.env) if item not in env),
        asked_replace=tuple(item for item in _union(author.replace) if item not in tools),
    )


def keys_of(dialect: str, name: str) -> tuple[str, ...]:
    """The keys in the person's settings that mean this guest: its id, and its name unless that looks like an id."""
    first, colon, _ = name.partition(":")
    looks = colon and (first in DIALECTS or is_built(first))
    return (f"{dialect}:{name}",) if looks else (f"{dialect}:{name}", name)


def narrowed(author: Numbers, base: Limits) -> dict[str, float | None]:
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


def _convert(value: object, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {error}".replace("`$.", "`")) from None


C = TypeVar("C", bound=_Common)


def _checked(table: C, where: str) -> C:
    """What types cannot say: names of variables and tools, limits."""
    for name in table.env:
        if not _VARIABLE.fullmatch(name):  # also no patterns: they would grant tomorrow's secrets too (design rule 13)
            raise ValueError(f"{where}: env: {name!r} is not the name of a variable")
    if "" in table.replace:
        raise ValueError(f"{where}: replace: a tool has a name")
    _checked_limits(table.limits, f"{where}: limits")
    return table


def _checked_limits(limits: dict[str, Any], where: str) -> dict[str, Any]:
    """Their names and values."""
    for name, value in limits.items():
        if name not in _LIMITS:
            raise ValueError(f"{where}: there is no limit {name}")
        if value == "none" and "None" in _LIMITS[name]:
            continue
        if not isinstance(value, int if _LIMITS[name] == "int" else int | float) or isinstance(value, bool) or not 0 < value < inf:
            kind = "whole number above 0" if _LIMITS[name] == "int" else "number above 0"
            raise ValueError(f"{where}: {name} is a {kind}, not {value!r}")
    return limits


def _first(default: bool, *values: bool | UnsetType) -> bool:
    return next((value for value in values if value is not UNSET), default)


def _union(*parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for part in parts for item in part))


def _numbers(limits: Mapping[str, Any]) -> Numbers:
    return {name: None if value == "none" else value for name, value in limits.items()}


def changes_of(limits: Mapping[str, float | None] | Limits | None) -> Mapping[str, float | None]:
    """Limits by name; of a whole record those that are not the usual ones, which a dialect may set otherwise."""
    return limits.changes() if isinstance(limits, Limits) else limits or {}
