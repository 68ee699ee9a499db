"""From what is enabled and what was found to what runs (spec yoi 10.1). Each enablement for itself; the first failure drops it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from serai.dialects.yoi.grants import Enablement, Record, Source, binding, pinned, split_identity
from serai.dialects.yoi.manifest import MESSAGE, PluginManifest, Surface, check
from serai.dialects.yoi.package import Package
from serai.dialects.yoi.texts import told

__all__ = ["Discovered", "Kind", "PackageDiagnostic", "Phase", "Plan", "check_record", "plan", "resolve"]

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
        msgspec.structs.force_setattr(self, "message", told(self.message, MESSAGE - len("…".encode())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
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
    def of(cls, package: Package, *, source: Source, path: str, label: str) -> Discovered:
        return cls(source=source, path=path, label=label, manifest=package.manifest, digest=package.digest)


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a run has resolved; kept with its session, so that it never moves to newer contents by itself (spec yoi 10.2)."""

    records: tuple[Record, ...] = ()
    diagnostics: tuple[PackageDiagnostic, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.records or self.diagnostics)


def resolve(enablement: Enablement, packages: Iterable[Discovered]) -> Record | PackageDiagnostic:
    """The record of one enablement, or why there is none."""
    parts = split_identity(enablement.id)
    if parts is None:
        return _unnamed(enablement)
    fitting = [package for package in packages if package.identity == enablement.id]
    if not fitting:
        message = "enabled plugin package was not discovered"
        return PackageDiagnostic(kind="missing", phase="resolution", source=parts[0], identity=enablement.id, message=message)
    found = fitting[0]
    if len(fitting) > 1:
        return _told(found, "duplicate", "several plugin packages have the enabled identity")
    if enablement.digest and not pinned(enablement.digest, found.digest):
        return _told(found, "digest", "enabled plugin digest does not match package digest")
    if enablement.version and enablement.version != found.manifest.version:
        return _told(found, "version", "enabled plugin version does not match package version")
    if why := binding(enablement.grants, identity=found.identity, digest=found.digest, version=found.manifest.version):
        return _told(found, "grant", why)
    declared = found.manifest.declared
    for surface in enablement.surfaces:
        if surface not in declared:
            return _told(found, "surface", f"enabled plugin requested undeclared surface `{surface}`")
    return _record(enablement, found, tuple(sorted(set(enablement.surfaces) or declared)))


def _record(enablement: Enablement, found: Discovered, surfaces: tuple[Surface, ...]) -> Record:
    return Record(
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


def _unnamed(enablement: Enablement) -> PackageDiagnostic:
    if ":" in enablement.id:
        message = "plugin enablement id is not a valid source-qualified plugin id"
        return PackageDiagnostic(kind="malformed", phase="resolution", identity=enablement.id, message=message)
    message = "plugin enablement id must be source-qualified as user:<id>, project:<id>, or builtin:<id>"
    return PackageDiagnostic(kind="ambiguous", phase="resolution", identity=enablement.id, message=message)


def _told(found: Discovered, kind: Kind, message: str) -> PackageDiagnostic:
    return PackageDiagnostic(
        kind=kind,
        phase="resolution",
        source=found.source,
        identity=found.identity,
        package=found.label,
        digest=found.digest,
        message=message,
    )


def plan(enablements: Iterable[Enablement], packages: Sequence[Discovered]) -> Plan:
    """All of them, in their order. Of several for one plugin the last that resolves counts: layers append, and a grant that was
    given later is what the person wants now. The others are told."""
    records: dict[str, Record] = {}
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
    return Plan(records=tuple(records.values()), diagnostics=tuple(diagnostics))


_IN_PROJECT = 4  # slashes of /PROJECT/.serai/guests/NAME at least


def applies(enablement: Enablement, record: Record) -> bool:
    """Whether what it grants, which may be nothing, is for the contents of this record."""
    grants = enablement.grants
    pins = {enablement.digest, grants.digest} - {""}
    bound = binding(grants, identity=record.identity, digest=record.digest, version=record.version)
    return all(pinned(pin, record.digest) for pin in pins) and enablement.version in ("", record.version) and not bound


def check_record(record: Record) -> None:
    """A record that was kept, once more: a `ValueError` says what cannot be."""
    check(record.manifest)
    if record.identity != f"{record.source}:{record.manifest.id}" or record.version != record.manifest.version:
        raise ValueError("resolved plugin record does not fit its own manifest")
    if not record.package_path.startswith("/") or (record.source == "project" and record.package_path.count("/") < _IN_PROJECT):
        raise ValueError("resolved plugin record has no path of a package")
    if why := binding(record.grants, identity=record.identity, digest=record.digest, version=record.version):
        raise ValueError(why)
    if undeclared := set(record.enabled_surfaces) - record.manifest.declared:
        raise ValueError(f"enabled plugin requested undeclared surface `{min(undeclared)}`")
