"""From enabled and discovered plugins to those that run (spec yoi 10.1). Each enablement for itself; the first failure drops it.

The settings are `[feature.plugins]` and `[plugins]` (spec yoi 10, 17.1), with their layers merged by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

import msgspec

from serai.errors import BadSettings
from serai.limits import MIB
from serai.plugins.bounds import DEFAULT, PRESETS, STACK_MOST, Bounds, Preset
from serai.plugins.grants import Enablement, ResolvedPlugin, Source, check_grants, find_binding_fault, is_pinned, split_identity
from serai.plugins.manifest import MESSAGE, TIMEOUT_MOST, ContributionKind, PluginManifest, check
from serai.plugins.package import Package
from serai.plugins.untrusted_text import convert, operator_text, to_json_value

Kind = Literal[
    "missing", "duplicate", "ambiguous", "version", "digest", "api", "surface", "grant", "malformed", "traversal", "bounds", "io"
]  # fmt: skip
Phase = Literal["discovery", "manifest", "resolution"]


class PackageDiagnostic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is the matter with a package or an enablement (spec yoi 9); `package` is the file's name."""

    kind: Kind
    phase: Phase
    message: str
    source: Source | None = None
    identity: str | None = None
    package: str | None = None
    digest: str | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "message", operator_text(self.message, MESSAGE - len("…".encode())))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredPackage:
    """A package as it lies in a store. Who it is says its manifest, whatever the file is called (spec yoi 9)."""

    source: Source
    path: str
    label: str  # the file's name
    manifest: PluginManifest
    digest: str

    @property
    def identity(self) -> str:
        return f"{self.source}:{self.manifest.id}"

    @classmethod
    def of(cls, package: Package, *, source: Source, path: str, label: str) -> DiscoveredPackage:
        return cls(source=source, path=path, label=label, manifest=package.manifest, digest=package.digest)


class PluginPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a run has resolved; kept with its session, so that it never moves to newer contents by itself (spec yoi 10.2)."""

    records: tuple[ResolvedPlugin, ...] = ()
    diagnostics: tuple[PackageDiagnostic, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.records or self.diagnostics)


def resolve(enablement: Enablement, packages: Iterable[DiscoveredPackage]) -> ResolvedPlugin | PackageDiagnostic:
    """The record of one enablement, or why there is none."""
    parts = split_identity(enablement.id)
    if parts is None:
        return _diagnose_id(enablement)
    fitting = [package for package in packages if package.identity == enablement.id]
    if not fitting:
        message = "enabled plugin package was not discovered"
        return PackageDiagnostic(kind="missing", phase="resolution", source=parts[0], identity=enablement.id, message=message)
    found = fitting[0]
    if len(fitting) > 1:
        return _diagnose(found, "duplicate", "several plugin packages have the enabled identity")
    if enablement.digest and not is_pinned(enablement.digest, found.digest):
        return _diagnose(found, "digest", "enabled plugin digest does not match package digest")
    if enablement.version and enablement.version != found.manifest.version:
        return _diagnose(found, "version", "enabled plugin version does not match package version")
    if why := find_binding_fault(enablement.grants, identity=found.identity, digest=found.digest, version=found.manifest.version):
        return _diagnose(found, "grant", why)
    declared = found.manifest.declared
    for surface in enablement.surfaces:
        if surface not in declared:
            return _diagnose(found, "surface", f"enabled plugin requested undeclared surface `{surface}`")
    return _build_record(enablement, found, tuple(sorted(set(enablement.surfaces) or declared)))


def _build_record(enablement: Enablement, found: DiscoveredPackage, surfaces: tuple[ContributionKind, ...]) -> ResolvedPlugin:
    return ResolvedPlugin(
        identity=found.identity,
        source=found.source,
        package_path=found.path,
        package_label=found.label,
        digest=found.digest,
        version=found.manifest.version,
        manifest=found.manifest,
        enabled_surfaces=surfaces,
        grants=enablement.grants,
        config=enablement.config,
    )


def _diagnose_id(enablement: Enablement) -> PackageDiagnostic:
    if ":" in enablement.id:
        message = "plugin enablement id is not a valid source-qualified plugin id"
        return PackageDiagnostic(kind="malformed", phase="resolution", identity=enablement.id, message=message)
    message = "plugin enablement id must be source-qualified as user:<id>, project:<id>, or builtin:<id>"
    return PackageDiagnostic(kind="ambiguous", phase="resolution", identity=enablement.id, message=message)


def _diagnose(found: DiscoveredPackage, kind: Kind, message: str) -> PackageDiagnostic:
    return PackageDiagnostic(
        kind=kind,
        phase="resolution",
        source=found.source,
        identity=found.identity,
        package=found.label,
        digest=found.digest,
        message=message,
    )


def plan(enablements: Iterable[Enablement], packages: Sequence[DiscoveredPackage]) -> PluginPlan:
    """All of them, in their order. Of several for one plugin the last that resolves counts: layers append, and a grant that was
    given later is what the person wants now. The others are told."""
    records: dict[str, ResolvedPlugin] = {}
    diagnostics: list[PackageDiagnostic] = []
    for enablement in enablements:
        found = resolve(enablement, packages)
        if isinstance(found, PackageDiagnostic):
            diagnostics.append(found)
            continue
        if earlier := records.pop(found.identity, None):
            message = "plugin is enabled more than once; the last entry counts"
            diagnostics.append(
                PackageDiagnostic(
                    kind="duplicate", phase="resolution", source=earlier.source, identity=earlier.identity,
                    package=earlier.package_label, digest=earlier.digest, message=message,
                )
            )  # fmt: skip
        records[found.identity] = found
    return PluginPlan(records=tuple(records.values()), diagnostics=tuple(diagnostics))


_IN_PROJECT = 4  # slashes of /PROJECT/.serai/guests/NAME at least


def applies(enablement: Enablement, record: ResolvedPlugin) -> bool:
    """Whether what it grants, which may be nothing, is for the contents of this record."""
    grants = enablement.grants
    pins = {enablement.digest, grants.digest} - {""}
    bound = find_binding_fault(grants, identity=record.identity, digest=record.digest, version=record.version)
    return all(is_pinned(pin, record.digest) for pin in pins) and enablement.version in ("", record.version) and not bound


def check_record(record: ResolvedPlugin) -> None:
    """A record that was kept, once more: a `ValueError` says what cannot be."""
    check(record.manifest)
    if record.identity != f"{record.source}:{record.manifest.id}" or record.version != record.manifest.version:
        raise ValueError("resolved plugin record does not fit its own manifest")
    if not record.package_path.startswith("/") or (record.source == "project" and record.package_path.count("/") < _IN_PROJECT):
        raise ValueError("resolved plugin record has no path of a package")
    if why := find_binding_fault(record.grants, identity=record.identity, digest=record.digest, version=record.version):
        raise ValueError(why)
    if undeclared := set(record.enabled_surfaces) - record.manifest.declared:
        raise ValueError(f"enabled plugin requested undeclared surface `{min(undeclared)}`")


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
    resolved: PluginPlan | None = None


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
    resolved: PluginPlan | None = None

    @property
    def counting(self) -> tuple[Enablement, ...]:
        """What is enabled and counts: nothing without the switch (spec yoi 10)."""
        return self.enabled if self.on else ()


def read_plugin_settings(config: Mapping[str, Any], *, who: str = "config.toml") -> PluginSettings:
    """That part of the settings, all of it checked; `BadSettings` says what cannot be."""
    try:
        return _read(config)
    except ValueError as error:
        raise BadSettings(str(error), who=who) from None


def _read(config: Mapping[str, Any]) -> PluginSettings:
    feature = _read_part(config, "feature", _Feature)
    plugins = _read_part(config, "plugins", _Plugins)
    enabled = tuple(_check_enablement(enablement, number) for number, enablement in enumerate(plugins.enabled))
    plan = plugins.resolved
    for record in plan.records if plan is not None else ():
        try:
            check_record(record)
        except ValueError as error:
            raise ValueError(f"plugins: resolved: {error}") from None
    return PluginSettings(
        on=feature.plugins.enabled,
        enabled=enabled,
        bounds=build_bounds(plugins.preset, plugins.bounds),
        resolved=None if plan is None or plan.empty else plan,
    )


def _read_part(config: Mapping[str, Any], key: str, kind: type[Any]) -> Any:
    try:
        return convert(config.get(key, {}), kind)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _check_enablement(enablement: Enablement, number: int) -> Enablement:
    """What types cannot say; its `config` as JSON has it from here on."""
    try:
        check_grants(enablement.grants)
        return msgspec.structs.replace(enablement, config=to_json_value(enablement.config))
    except ValueError as error:
        raise ValueError(f"plugins: enabled[{number}]: {error}") from None


def build_bounds(preset: Preset, changes: Mapping[str, Any]) -> Bounds:
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
