"""Whether a plugin may: requested in its manifest and granted, checked at registration and again at every use (spec yoi 11).

Each function returns the reason why not, or nothing. The binding of the grants comes first: a grant to other contents is a grant
to nobody. `inspect` says what a resolved plugin could do, without reading its package or running anything (spec yoi 11.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from serai.plugins import grants, targets
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.manifest import ContributionKind, HostApi, ManifestError, Permission, PluginManifest, Target, check

_Test = Callable[[Permission], bool]


def find_binding_refusal(record: ResolvedPlugin) -> str:
    return grants.find_binding_fault(record.grants, identity=record.identity, digest=record.digest, version=record.version)


def find_surface_refusal(record: ResolvedPlugin, surface: ContributionKind) -> str:
    """Whether the person has left it on; asked before any permission (spec yoi 14, 15.2)."""
    return "" if surface in record.enabled_surfaces else f"plugin {surface} surface is not enabled"


def find_tool_refusal(record: ResolvedPlugin, name: str) -> str:
    """Spec yoi 11.1."""
    declared = next((one for one in record.manifest.tools if one.name == name), None)
    if declared is None:
        return find_binding_refusal(record) or "requested tool is not declared by plugin manifest"
    return (
        find_binding_refusal(record)
        or _find_missing(record, "surfaces.tool permission", _make_surface_test("tool"))
        or _find_missing(record, f"tool permission for `{name}`", lambda held: allows_tool(held, name))
        or (
            _find_missing(record, "external_write permission", lambda held: held.kind == "external_write")
            if declared.external_write
            else ""
        )
    )


def find_service_refusal(record: ResolvedPlugin, name: str) -> str:
    """Spec yoi 11.2."""
    return _find_named_refusal(record, "service", name)


def find_ingress_refusal(record: ResolvedPlugin, name: str) -> str:
    """Spec yoi 11.3."""
    return _find_named_refusal(record, "ingress", name)


def find_api_refusal(record: ResolvedPlugin, api: HostApi) -> str:
    """Spec yoi 11.4."""
    return (
        find_binding_refusal(record)
        or _find_missing(record, f"host_api.{api} permission", lambda held: held.kind == "host_api" and held.api == api)
        or _find_scope_refusal(record, api)
    )


def _find_scope_refusal(record: ResolvedPlugin, api: HostApi) -> str:
    """Whether there is anything that it may be used for."""
    if api == "fs":
        return "" if any(grant.usable for grant in record.grants.fs) else "granted host_api.fs scope allowlist is missing"
    usable: Callable[[Target], bool] = targets.is_usable_request if api == "request" else targets.is_usable_websocket
    declared, granted = _get_targets(record, api)
    if not any(usable(target) for target in declared):
        return f"manifest host_api.{api} target declaration is missing"
    return "" if any(usable(target) for target in granted) else f"enabled host_api.{api} grants are missing"


def find_request_refusal(record: ResolvedPlugin, method: str, url: targets.ParsedUrl) -> str:
    """One target of the manifest and, for itself, one of the grants (spec yoi 4.3 steps 13 and 14)."""
    return find_binding_refusal(record) or _find_target_refusal(
        record, "request", f"{method} {url.safe}", lambda target: targets.request_matches(target, method, url)
    )


def find_websocket_refusal(record: ResolvedPlugin, url: targets.ParsedUrl) -> str:
    return find_binding_refusal(record) or _find_target_refusal(
        record, "websocket", url.safe, lambda target: targets.websocket_matches(target, url)
    )


def allows_private(record: ResolvedPlugin, api: HostApi, url: targets.ParsedUrl, method: str = "") -> bool:
    """Whether a grant that lets this URL through lets it go to a private, loopback or link-local address too (rule.027).

    Of `request` the method counts where it is given.
    """
    if find_binding_refusal(record):
        return False
    matching = (
        target
        for target in _get_targets(record, api)[1]
        if (targets.request_matches(target, method, url) if method and api == "request" else targets.websocket_matches(target, url))
    )
    return any(target.private or targets.names_private(target, url) for target in matching)


def _find_target_refusal(record: ResolvedPlugin, api: HostApi, where: str, matches: Callable[[Target], bool]) -> str:
    declared, granted = _get_targets(record, api)
    if not any(map(matches, declared)):
        return f"host_api.{api} target {where} is not declared by the plugin manifest"
    kind = "request" if api == "request" else "WebSocket"
    return "" if any(map(matches, granted)) else f"host_api.{api} target {where} is not covered by enabled {kind} grants"


def _get_targets(record: ResolvedPlugin, api: HostApi) -> tuple[tuple[Target, ...], tuple[Target, ...]]:
    if api == "request":
        return record.manifest.request, record.grants.request
    return (record.manifest.websocket, record.grants.websocket) if api == "websocket" else ((), ())


def _find_named_refusal(record: ResolvedPlugin, kind: ContributionKind, name: str) -> str:
    return (
        find_binding_refusal(record)
        or _find_missing(record, f"surfaces.{kind} permission", _make_surface_test(kind))
        or _find_missing(record, f"{kind} permission for `{name}`", lambda held: held.kind == kind and held.name == name)
    )


def _make_surface_test(surface: ContributionKind) -> _Test:
    return lambda held: held.kind == "surface" and held.surface == surface


def allows_tool(held: Permission, name: str) -> bool:
    if held.kind == "tool_namespace":  # an empty one is the beginning of every name, and means none (spec yoi 21.6)
        return bool(held.namespace) and name.startswith(held.namespace or name)
    return held.kind == "tool" and held.name == name


def _find_missing(record: ResolvedPlugin, what: str, test: _Test) -> str:
    """Requested by the manifest and granted, whichever is missing first."""
    if not _holds(record.manifest.permissions, test):
        return f"requested {what} is missing"
    return "" if _holds(record.grants.permissions, test) else f"granted {what} is missing"


def _holds(permissions: Iterable[Permission], test: _Test) -> bool:
    return any(test(permission) for permission in permissions)


_Api = Literal["request", "websocket"]
_RUN: tuple[ContributionKind, ...] = ("tool", "service", "ingress")  # what has a runtime behaviour


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


def inspect(record: ResolvedPlugin) -> Inspection:
    """Rows for the contributions that are selected, and for each target and each grant."""
    on = frozenset(record.enabled_surfaces)
    manifest = record.manifest
    return Inspection(
        runtime=_build_runtime_row(record),
        host_apis=tuple(_iter_api_rows(record)),
        tools=tuple(
            _build_tool_row(record, tool.name, external_write=tool.external_write)
            for tool in (manifest.tools if "tool" in on else ())
        ),
        services=tuple(_build_named_row(record, "service", one.name) for one in (manifest.services if "service" in on else ())),
        ingresses=tuple(_build_named_row(record, "ingress", one.name) for one in (manifest.ingresses if "ingress" in on else ())),
    )


def _build_runtime_row(record: ResolvedPlugin) -> RuntimeRow:
    manifest = record.manifest
    try:
        check(manifest)
    except ManifestError as error:
        return RuntimeRow(eligible=False, status=_format_runtime(manifest), diagnostic=str(error))
    if manifest.runtime is None:
        needed = any(surface in record.enabled_surfaces for surface in _RUN)
        why = "plugin manifest declares no runtime" if needed else None
        return RuntimeRow(eligible=not needed, status=_format_runtime(manifest), diagnostic=why)
    return RuntimeRow(eligible=True, status=_format_runtime(manifest))


def _format_runtime(manifest: PluginManifest) -> str:
    return "none" if manifest.runtime is None else f"{manifest.runtime.kind}/{manifest.runtime.world}"


def _build_tool_row(record: ResolvedPlugin, name: str, *, external_write: bool) -> ToolRow:
    why = find_tool_refusal(record, name)
    return ToolRow(
        name=name,
        permission=f"tool.{name}",
        requested=_allows(record.manifest.permissions, name),
        granted=_allows(record.grants.permissions, name) and not find_binding_refusal(record),
        eligible=not why,
        diagnostic=why or None,
        external_write=external_write,
    )


def _allows(permissions: Iterable[Permission], name: str) -> bool:
    return any(allows_tool(held, name) for held in permissions)


def _build_named_row(record: ResolvedPlugin, kind: Literal["service", "ingress"], name: str) -> NamedRow:
    why = find_service_refusal(record, name) if kind == "service" else find_ingress_refusal(record, name)
    wanted = Permission(kind=kind, name=name)
    return NamedRow(
        name=name,
        permission=wanted.label,
        requested=wanted in record.manifest.permissions,
        granted=wanted in record.grants.permissions and not find_binding_refusal(record),
        eligible=not why,
        diagnostic=why or None,
    )


def _iter_api_rows(record: ResolvedPlugin) -> Iterator[HostRow]:
    apis: tuple[HostApi, ...] = ("request", "websocket", "fs")
    for api in apis:
        wanted = Permission(kind="host_api", api=api)
        requested, granted = wanted in record.manifest.permissions, wanted in record.grants.permissions
        if requested or granted:
            why = find_api_refusal(record, api)
            bound = granted and not find_binding_refusal(record)
            yield HostRow(permission=wanted.label, requested=requested, granted=bound, eligible=not why, diagnostic=why or None)
    yield from _iter_target_rows(record, "request", record.manifest.request, record.grants.request)
    yield from _iter_target_rows(record, "websocket", record.manifest.websocket, record.grants.websocket)


def _iter_target_rows(
    record: ResolvedPlugin, api: _Api, declared: tuple[Target, ...], granted: tuple[Target, ...]
) -> Iterator[HostRow]:
    unbound = find_binding_refusal(record)
    for target in declared:
        yield _build_declared_row(target, () if unbound else granted, api, unbound)
    for target in granted:
        yield _build_granted_row(target, declared, api, unbound)


def _build_declared_row(target: Target, granted: tuple[Target, ...], api: _Api, unbound: str) -> HostRow:
    met = any(targets.intersects(target, grant, api) for grant in granted)
    said = []
    if not met:
        said.append(unbound or f"no enabled {api} grant matches this target")
    elif not any(targets.covers(grant, target, api) for grant in granted):
        said.append(f"enabled {api} grants cover only a part of this target")
    return _build_host_row(f"host_api.{api} target", target, api, requested=True, granted=met, eligible=met, said=said)


def _build_granted_row(target: Target, declared: tuple[Target, ...], api: _Api, unbound: str) -> HostRow:
    met = any(targets.intersects(target, one, api) for one in declared)
    said = []
    if not met:
        said.append(f"enabled {api} grant has no matching manifest declaration")
    elif unbound:
        said.append(unbound)
    elif not any(targets.covers(one, target, api) for one in declared):
        said.append(f"only the part of this grant that the manifest declares counts for {api}")
    name = f"host_api.{api} grant" if met else f"host_api.{api} grant-only"
    return _build_host_row(name, target, api, requested=met, granted=not unbound, eligible=met and not unbound, said=said)


def _build_host_row(
    name: str, target: Target, api: _Api, *, requested: bool, granted: bool, eligible: bool, said: list[str]
) -> HostRow:
    if targets.is_broad(target):
        said = [*said, f"broad {api} target"]
    return HostRow(
        permission=f"{name} {targets.format_target(target, api)}",
        requested=requested,
        granted=granted,
        eligible=eligible,
        diagnostic="; ".join(said) or None,
    )
