"""`[feature.plugins]` and `[plugins]` of the settings (spec yoi 10, 17.1). The layers are merged by whoever has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import msgspec

from serai.dialects.yoi.bounds import DEFAULT, PRESETS, STACK_MOST, Bounds, Preset
from serai.dialects.yoi.grants import Enablement, check_grants
from serai.dialects.yoi.manifest import TIMEOUT_MOST
from serai.dialects.yoi.reading import convert, plain
from serai.dialects.yoi.resolving import Plan, check_record
from serai.errors import BadSettings
from serai.limits import MIB

__all__ = ["FUEL", "Plan", "PluginSettings", "bounds_of", "read"]

FUEL = 2_000_000_000  # what `fuel = true` means (spec yoi 17.1)
_SECONDS = 3600.0  # the longest that anybody waits (design rule 6)
_TOOLS = dict.fromkeys(("tool", "tool_with_host"), TIMEOUT_MOST / 1000)  # no tool has more, whoever says so (spec yoi 14.3)
_MOST = {"stack": STACK_MOST, "memory": 4096 * MIB, "package": 1024 * MIB, "file": 1024 * MIB, "expanded": 1024 * MIB}
_MOST_OTHERS = 2**31 - 1
_MAY_BE_0 = ("fuel", "ratio")
_MOST_FUEL = 2**63 - 1


class _Plugins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    preset: Preset = "default"
    bounds: dict[str, Any] = {}
    enabled: tuple[Enablement, ...] = ()
    resolved: Plan | None = None


class _Switch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool = False


class _Feature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    plugins: _Switch = _Switch()


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """`resolved` is a plan that was kept: then nothing is discovered (spec yoi 10.2)."""

    on: bool = False
    enabled: tuple[Enablement, ...] = ()
    bounds: Bounds = DEFAULT
    resolved: Plan | None = None

    @property
    def counting(self) -> tuple[Enablement, ...]:
        """What is enabled and counts: nothing without the switch (spec yoi 10)."""
        return self.enabled if self.on else ()


def read(config: Mapping[str, Any], *, who: str = "config.toml") -> PluginSettings:
    """That part of the settings, all of it checked; `BadSettings` says what cannot be."""
    try:
        return _read(config)
    except ValueError as error:
        raise BadSettings(str(error), who=who) from None


def _read(config: Mapping[str, Any]) -> PluginSettings:
    feature = _part(config, "feature", _Feature)
    plugins = _part(config, "plugins", _Plugins)
    enabled = tuple(_checked(enablement, number) for number, enablement in enumerate(plugins.enabled))
    plan = plugins.resolved
    for record in plan.records if plan is not None else ():
        try:
            check_record(record)
        except ValueError as error:
            raise ValueError(f"plugins: resolved: {error}") from None
    return PluginSettings(
        on=feature.plugins.enabled,
        enabled=enabled,
        bounds=bounds_of(plugins.preset, plugins.bounds),
        resolved=None if plan is None or plan.empty else plan,
    )


def _part(config: Mapping[str, Any], key: str, kind: type[Any]) -> Any:
    try:
        return convert(config.get(key, {}), kind)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _checked(enablement: Enablement, number: int) -> Enablement:
    """What types cannot say; its `config` as JSON has it from here on."""
    try:
        check_grants(enablement.grants)
        return msgspec.structs.replace(enablement, config=plain(enablement.config))
    except ValueError as error:
        raise ValueError(f"plugins: enabled[{number}]: {error}") from None


def bounds_of(preset: Preset, changes: Mapping[str, Any]) -> Bounds:
    """The preset's with these changed. No stack is more than 2 MiB: the process would abort."""
    base = msgspec.to_builtins(PRESETS[preset])
    given = {**changes, "fuel": FUEL if changes["fuel"] else 0} if isinstance(changes.get("fuel"), bool) else dict(changes)
    try:
        bounds = convert({**base, **given}, Bounds)
        for name in given:
            _check_bound(name, getattr(bounds, name))
    except ValueError as error:
        raise ValueError(f"plugins.bounds: {error}") from None
    return bounds


def _check_bound(name: str, value: Any) -> None:
    if isinstance(value, bool):
        return
    if isinstance(value, float):
        longest = _TOOLS.get(name, _SECONDS)
        if not isfinite(value) or not 0 < value <= longest:
            raise ValueError(f"{name} is more than 0 and at most {longest:.0f} seconds")
        return
    least = 0 if name in _MAY_BE_0 else 1
    most = _MOST_FUEL if name == "fuel" else _MOST.get(name, _MOST_OTHERS)
    if not least <= value <= most:
        raise ValueError(f"{name} is {least} to {most}")
