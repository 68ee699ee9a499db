"""What a resolved plugin could do, said without reading its package or running anything (spec yoi 11.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from serai.dialects.yoi import authorising
from serai.dialects.yoi.grants import Record
from serai.dialects.yoi.manifest import HostApi, ManifestError, Permission, PluginManifest, Surface, Target, check
from serai.dialects.yoi.targets import broad, covers, intersects, label

__all__ = ["HostRow", "Inspection", "NamedRow", "RuntimeRow", "ToolRow", "inspect"]

_Api = Literal["request", "websocket"]
_RUN: tuple[Surface, ...] = ("tool", "service", "ingress")  # what has a runtime behaviour


class RuntimeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    eligible: bool
    status: str
    diagnostic: str | None = None


class _Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    requested: bool
    granted: bool
    eligible: bool
    diagnostic: str | None = None


class HostRow(_Row, frozen=True, kw_only=True, omit_defaults=True):
    """A host interface, or one target of it; a diagnostic does not make it ineligible."""

    permission: str


class NamedRow(_Row, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    permission: str


class ToolRow(NamedRow, frozen=True, kw_only=True):
    external_write: bool


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    runtime: RuntimeRow
    host_apis: tuple[HostRow, ...] = ()
    tools: tuple[ToolRow, ...] = ()
    services: tuple[NamedRow, ...] = ()
    ingresses: tuple[NamedRow, ...] = ()

    @property
    def rows(self) -> tuple[HostRow | NamedRow, ...]:
        return (*self.host_apis, *self.tools, *self.services, *self.ingresses)

    @property
    def eligible(self) -> bool:
        return self.runtime.eligible and all(row.eligible for row in self.rows)

    @property
    def diagnostics(self) -> tuple[str, ...]:
        """All of them, each with what it is about."""
        said = [self.runtime.diagnostic] if self.runtime.diagnostic else []
        for row in self.rows:
            if row.diagnostic:
                what = row.permission if isinstance(row, HostRow) or row.permission else row.name
                said.append(f"{what}: {row.diagnostic}")
        return tuple(said)


def inspect(record: Record) -> Inspection:
    """Rows for the contributions that are selected, and for each target and each grant."""
    on = frozenset(record.enabled_surfaces)
    manifest = record.manifest
    return Inspection(
        runtime=_runtime(record),
        host_apis=tuple(_host_apis(record)),
        tools=tuple(
            _tool(record, tool.name, external_write=tool.external_write) for tool in (manifest.tools if "tool" in on else ())
        ),
        services=tuple(_named(record, "service", one.name) for one in (manifest.services if "service" in on else ())),
        ingresses=tuple(_named(record, "ingress", one.name) for one in (manifest.ingresses if "ingress" in on else ())),
    )


def _runtime(record: Record) -> RuntimeRow:
    manifest = record.manifest
    try:
        check(manifest)
    except ManifestError as error:
        return RuntimeRow(eligible=False, status=_status(manifest), diagnostic=str(error))
    if manifest.runtime is None:
        needed = any(surface in record.enabled_surfaces for surface in _RUN)
        why = "plugin manifest declares no runtime" if needed else None
        return RuntimeRow(eligible=not needed, status=_status(manifest), diagnostic=why)
    return RuntimeRow(eligible=True, status=_status(manifest))


def _status(manifest: PluginManifest) -> str:
    return "none" if manifest.runtime is None else f"{manifest.runtime.kind}/{manifest.runtime.world}"


def _tool(record: Record, name: str, *, external_write: bool) -> ToolRow:
    why = authorising.tool(record, name)
    return ToolRow(
        name=name,
        permission=f"tool.{name}",
        requested=_allows(record.manifest.permissions, name),
        granted=_allows(record.grants.permissions, name) and not authorising.binding(record),
        eligible=not why,
        diagnostic=why or None,
        external_write=external_write,
    )


def _allows(permissions: Iterable[Permission], name: str) -> bool:
    return any(authorising.allows_tool(held, name) for held in permissions)


def _named(record: Record, kind: Literal["service", "ingress"], name: str) -> NamedRow:
    why = authorising.service(record, name) if kind == "service" else authorising.ingress(record, name)
    wanted = Permission(kind=kind, name=name)
    return NamedRow(
        name=name,
        permission=wanted.label,
        requested=wanted in record.manifest.permissions,
        granted=wanted in record.grants.permissions and not authorising.binding(record),
        eligible=not why,
        diagnostic=why or None,
    )


def _host_apis(record: Record) -> Iterator[HostRow]:
    apis: tuple[HostApi, ...] = ("request", "websocket", "fs")
    for api in apis:
        wanted = Permission(kind="host_api", api=api)
        requested, granted = wanted in record.manifest.permissions, wanted in record.grants.permissions
        if requested or granted:
            why = authorising.host_api(record, api)
            bound = granted and not authorising.binding(record)
            yield HostRow(permission=wanted.label, requested=requested, granted=bound, eligible=not why, diagnostic=why or None)
    yield from _targets(record, "request", record.manifest.request, record.grants.request)
    yield from _targets(record, "websocket", record.manifest.websocket, record.grants.websocket)


def _targets(record: Record, api: _Api, declared: tuple[Target, ...], granted: tuple[Target, ...]) -> Iterator[HostRow]:
    unbound = authorising.binding(record)
    for target in declared:
        yield _declared(target, () if unbound else granted, api, unbound)
    for target in granted:
        yield _granted(target, declared, api, unbound)


def _declared(target: Target, granted: tuple[Target, ...], api: _Api, unbound: str) -> HostRow:
    met = any(intersects(target, grant, api) for grant in granted)
    said = []
    if not met:
        said.append(unbound or f"no enabled {api} grant matches this target")
    elif not any(covers(grant, target, api) for grant in granted):
        said.append(f"enabled {api} grants cover only a part of this target")
    return _row(f"host_api.{api} target", target, api, requested=True, granted=met, eligible=met, said=said)


def _granted(target: Target, declared: tuple[Target, ...], api: _Api, unbound: str) -> HostRow:
    met = any(intersects(target, one, api) for one in declared)
    said = []
    if not met:
        said.append(f"enabled {api} grant has no matching manifest declaration")
    elif unbound:
        said.append(unbound)
    elif not any(covers(one, target, api) for one in declared):
        said.append(f"only the part of this grant that the manifest declares counts for {api}")
    name = f"host_api.{api} grant" if met else f"host_api.{api} grant-only"
    return _row(name, target, api, requested=met, granted=not unbound, eligible=met and not unbound, said=said)


def _row(name: str, target: Target, api: _Api, *, requested: bool, granted: bool, eligible: bool, said: list[str]) -> HostRow:
    if broad(target):
        said = [*said, f"broad {api} target"]
    return HostRow(
        permission=f"{name} {label(target, api)}",
        requested=requested,
        granted=granted,
        eligible=eligible,
        diagnostic="; ".join(said) or None,
    )
